//! Floors: steps at or below which no snapshot is saved any more, so that pruned records can be deleted (`docs/store.md` §8).

use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Step;
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::floor::Floor;
use crate::objects::remote::Object;
use crate::records::store::Store;

/// A floor as it is listed.
pub(crate) struct ListedFloor {
    pub(crate) step: Step,
    pub(crate) generation: u32,
    pub(crate) object: Object,
}

/// The floor that counts.
pub(crate) struct LastFloor {
    pub(crate) step: Step,
    /// The steps up to its own that had a snapshot when it was written; or why it cannot be read.
    pub(crate) kept: Result<Vec<Step>>,
}

impl LastFloor {
    /// Whether a missing record of this step is lost: otherwise it was pruned, and collected. Of a floor that cannot be read, nothing is
    /// known, and [`Store::verify_all`] says so.
    pub(crate) fn may_lose(&self, step: Step) -> bool {
        step > self.step || self.kept.as_ref().is_ok_and(|kept| kept.binary_search(&step).is_ok())
    }
}

impl Store {
    /// All floors; the last one counts.
    pub(crate) fn floors(&self) -> Result<Vec<ListedFloor>> {
        let mut objects = self.remote().objects_after(&keys::floors(), None)?;
        let mut floors = vec![];
        self.remote().wait(async {
            while let Some(object) = objects.next().await? {
                if let Some((step, generation)) = keys::parse_floor(&object.key) {
                    floors.push(ListedFloor { step, generation, object });
                }
            }
            Ok::<_, Error>(())
        })?;
        floors.sort_unstable_by_key(|f| (f.step, f.generation));
        Ok(floors)
    }

    pub(crate) fn last_floor(&self) -> Result<Option<LastFloor>> {
        self.floors()?.last().map(|floor| self.read_floor(floor)).transpose()
    }

    /// # Errors
    /// `Store` when the request fails.
    pub(crate) fn read_floor(&self, floor: &ListedFloor) -> Result<LastFloor> {
        let &ListedFloor { step, ref object, .. } = floor;
        let read = self.remote().wait(self.remote().get(&object.key, Floor::MAX));
        let kept = read.and_then(|bytes| {
            let read = Floor::parse(&bytes).map_err(|e| e.at(&object.key))?;
            match read.step == step {
                true => Ok(read.kept),
                false => Err(Error::damaged(format!("{}: is the floor of step {}", object.key, read.step))),
            }
        });
        match kept {
            Err(e) if matches!(e.kind(), ErrorKind::Store | ErrorKind::Io) => Err(e),
            kept => Ok(LastFloor { step, kept: kept.map_err(Error::or_damaged) }),
        }
    }

    /// Fails if no snapshot can be saved at a step any more.
    ///
    /// # Errors
    /// `Usage` then; `Store` when the request fails.
    pub(crate) fn check_above_floor(&self, step: Step) -> Result<()> {
        match self.floors()?.last() {
            Some(floor) if step <= floor.step => Err(Error::usage(format!(
                "step {step} cannot be saved: {} says that nothing is saved up to step {} any more, as the records of snapshots that were \
                 pruned there are deleted; save under a later step, or into another store",
                floor.object.key, floor.step
            ))),
            _ => Ok(()),
        }
    }
}
