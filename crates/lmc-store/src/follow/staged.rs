//! The options and the versions of a directory that follows.

use std::path::PathBuf;

use crate::format::ids::{RunId, SaveId, Step};

/// Options of following, for directories and for tensors.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct FollowOptions {
    /// Threads to decode with; 0 for one per core.
    pub threads: usize,
    /// Whether a snapshot of an earlier step, another one of the same step, or one of another run, may follow.
    pub rewind: bool,
    /// Whether files that did not change are read and verified, too, instead of linked ([`Follower::repair`](super::Follower::repair) does so
    /// without a new version); or all bytes of tensors are compared with the committed ones, and all new bytes with their recorded hashes, in
    /// case another program changes them.
    pub verify: bool,
}

/// What was restored in the current version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// The names of files that were missing, or were not what was published.
    pub files: Vec<String>,
    /// Their bytes.
    pub written_size: u64,
    /// Bytes fetched from the store, to compare and to restore.
    pub fetched_size: u64,
}

/// A version in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Version {
    /// The step of its snapshot.
    pub step: Step,
    /// The id of its snapshot.
    pub id: SaveId,
    /// The directory of its files.
    pub path: PathBuf,
}

/// A version that is complete and on disk, but not the current one yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Staged {
    /// The version.
    pub version: Version,
    /// The run of the store that it is from.
    pub(super) run: RunId,
    /// The step of the version that it was made from, if there was one.
    pub from: Option<Step>,
    /// Bytes of files that are the same in that version, and are links to them.
    pub linked_size: u64,
    /// Bytes of files that were written.
    pub written_size: u64,
    /// Bytes fetched from the store for them.
    pub fetched_size: u64,
}
