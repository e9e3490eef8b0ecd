//! Snapshots, and how they are named.

use std::num::NonZeroU64;

use crate::error::{Error, Result};
use crate::format::ids::{SaveId, ShardId, Step, TagName};
use crate::format::manifest::metadata::Metadata;
use crate::format::manifest::record::Record;

/// Selects a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The one of the largest step.
    #[default]
    Latest,
    /// The one of a step.
    Step(Step),
    /// The one with an id.
    Id(SaveId),
    /// The one that a tag names.
    Tag(TagName),
}

impl std::str::FromStr for At {
    type Err = Error;

    /// Parses `latest`, a step, an id, or the name of a tag.
    fn from_str(s: &str) -> Result<Self> {
        if s == "latest" {
            return Ok(At::Latest);
        }
        // An id may consist of decimal digits only, but no step has that many digits.
        if let Ok(id) = s.parse() {
            return Ok(At::Id(id));
        }
        if let Ok(step) = s.parse() {
            return Ok(At::Step(Step::new(step)?));
        }
        let neither = || Error::usage(format!("{s:?} is neither a step, nor an id, nor a tag, nor \"latest\""));
        s.parse().map(At::Tag).map_err(|_| neither())
    }
}

/// A snapshot of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The step of the run.
    pub step: Step,
    /// Its permanent id.
    pub id: SaveId,
    /// When it was committed, in seconds since 1970 by the store's clock.
    pub time: u64,
    /// The user's metadata.
    pub metadata: Metadata,
    /// Its shards: one for each process that saved.
    pub shards: Vec<ShardId>,
    /// Bytes of its files.
    pub raw_size: u64,
    /// Bytes stored for it.
    pub new_size: u64,
    /// Bytes of files that it had before it lost the states of its optimizer; 0 if it has all that was saved.
    pub dropped: u64,
}

impl Snapshot {
    /// One that was found before, as in another process.
    pub fn new(
        step: Step,
        id: SaveId,
        time: u64,
        metadata: Metadata,
        shards: Vec<ShardId>,
        raw_size: u64,
        new_size: u64,
    ) -> Self {
        Self { step, id, time, metadata, shards, raw_size, new_size, dropped: 0 }
    }

    pub(crate) fn of(r: Record) -> Self {
        let Record { step, id, time, metadata, shards, raw_size, new_size, dropped, .. } = r;
        Self { step, id, time, metadata, shards, raw_size, new_size, dropped: dropped.map_or(0, NonZeroU64::get) }
    }
}
