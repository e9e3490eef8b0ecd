//! Finding a snapshot, and telling one that is not there from one whose record is lost.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::format::ids::{SaveId, Step};
use crate::records::history::{DamagedRecord, Listing};
use crate::records::snapshot::{At, Snapshot};
use crate::records::store::Store;
use crate::records::tags;

impl Store {
    /// One snapshot.
    ///
    /// # Errors
    /// `NotFound` when it is not there, `Damaged` or `Unsupported` when that is unknown because a record cannot be read, `Store` when
    /// requests fail.
    pub fn find(&self, at: At) -> Result<Snapshot> {
        let found = match at {
            At::Latest => self.latest()?,
            At::Tag(ref name) => {
                let (step, id) = self.tagged(name)?;
                let there = self.find(At::Step(step)).map_err(|e| e.at(format_args!("the tag {name}")))?;
                if there.id != id {
                    return Err(Error::not_found(format!(
                        "the tag {name} names the snapshot {id} of step {step}, which was pruned; {}",
                        tags::remedy(name)
                    )));
                }
                Some(there)
            }
            At::Step(step) => match self.newest(step)? {
                Some(current) if current.is_kept() => Some(Snapshot::of(current.record)),
                Some(_) => return Err(Error::no_snapshot(step, ": it was pruned")),
                // Others may name its record.
                None => match self.lost_among(&[step])?.remove(&step) {
                    Some(bad) => return Err(bad.error("")),
                    None => None,
                },
            },
            At::Id(id) => self.of_id(id)?,
        };
        found.ok_or_else(|| match at {
            At::Latest | At::Tag(_) => Error::not_found("the store has no snapshots"),
            At::Step(step) => Error::no_snapshot(step, ""),
            At::Id(id) => Error::not_found(format!("the store has no snapshot with the id {id}")),
        })
    }

    /// The snapshot with an id.
    fn of_id(&self, id: SaveId) -> Result<Option<Snapshot>> {
        let Listing { snapshots, damaged, .. } = self.list()?;
        match (snapshots.into_iter().find(|s| s.id == id), damaged.first()) {
            // The unreadable record may be its.
            (None, Some(bad)) => Err(bad.error(&format!("no other snapshot has the id {id}; "))),
            (found, _) => Ok(found),
        }
    }

    /// The records of these steps that are lost: they are not listed, but others name them. Reads all records, unless the steps come after
    /// all others: such a step may be asked for again and again, until it is there.
    pub(crate) fn lost_among(&self, steps: &[Step]) -> Result<BTreeMap<Step, DamagedRecord>> {
        let recent = self.recent(None)?;
        let mut lost: Vec<DamagedRecord> = recent.damaged().cloned().collect();
        if steps.iter().any(|&step| recent.keys.last().is_some_and(|last| step < last)) {
            lost = self.history()?.damaged().cloned().collect();
        }
        lost.retain(|bad| bad.is_lost && steps.contains(&bad.step));
        Ok(lost.into_iter().map(|bad| (bad.step, bad)).collect())
    }
}
