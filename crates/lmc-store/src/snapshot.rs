//! A snapshot, and how one is named.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::ids::{PartId, SaveId, Step};
use crate::manifest::record::Record;

/// Which snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// That of the largest step.
    #[default]
    Latest,
    /// That of a step.
    Step(Step),
    /// The one of this id.
    Id(SaveId),
}

impl std::str::FromStr for At {
    type Err = Error;

    /// `latest`, a step, or an id.
    fn from_str(s: &str) -> Result<Self> {
        if s == "latest" {
            return Ok(At::Latest);
        }
        // An id may have nothing but decimal digits, but no step has so many.
        if let Ok(id) = s.parse() {
            return Ok(At::Id(id));
        }
        let step =
            s.parse().map_err(|_| Error::usage(format!("{s:?} is not a step, not an id, and not \"latest\"")))?;
        Ok(At::Step(Step::new(step)?))
    }
}

/// A snapshot of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The step of the run.
    pub step: Step,
    /// Names it for ever.
    pub id: SaveId,
    /// When it was committed, in seconds since 1970 by the store's clock.
    pub time: u64,
    /// What the user said about it.
    pub metadata: BTreeMap<String, String>,
    /// One for each process that saved.
    pub parts: Vec<PartId>,
    /// Bytes of its files.
    pub raw_size: u64,
    /// Bytes that were stored for it.
    pub new_size: u64,
}

impl Snapshot {
    pub(crate) fn of(r: Record) -> Self {
        let Record { step, id, time, metadata, parts, raw_size, new_size, .. } = r;
        Self { step, id, time, metadata, parts, raw_size, new_size }
    }
}
