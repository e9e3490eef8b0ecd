//! Options of saving.

use lmc::Level;

use crate::format::ids::Step;
use crate::ops::cancel::Cancel;

/// The policy that selects bases for a snapshot's chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BasePolicy {
    /// The same chunk of the previous snapshot, unless that saves next to nothing, or restoring it would read more than three times its
    /// bytes.
    #[default]
    Auto,
    /// The same chunk of the previous snapshot.
    Previous,
}

/// Options of saving.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SaveOptions<'a> {
    /// Compression level.
    pub level: Level,
    /// Threads to compress with; 0 for one per core. The output does not depend on it.
    pub threads: usize,
    /// How bases are selected.
    pub base: BasePolicy,
    /// The step of the snapshot whose chunks are bases. By default that before the new one; or, where snapshots have tags, as in a store of
    /// several models, the one of these that the files are most like: the first save of a [`Store`](crate::Store) compares them.
    pub from: Option<Step>,
    /// Interval, in saves, at which a chunk is stored without a base, so that its chain is never longer than this: 1 to 64. With 1, there
    /// are no deltas from earlier snapshots; unchanged chunks are still shared with them, as they are stored there.
    pub anchor_every: u32,
    /// Whether a chunk that starts a new chain is also stored as a delta from the chunk before, if that is at most half as large.
    /// Followers that hold that one fetch the delta.
    pub alternatives: bool,
    /// Asked last, before anything refers to the stored data, which is deleted if it fails: for inputs that may have changed while they
    /// were read.
    pub cancel: Cancel<'a>,
}

impl Default for SaveOptions<'_> {
    fn default() -> Self {
        Self {
            level: Level::Default,
            threads: 0,
            base: BasePolicy::Auto,
            from: None,
            anchor_every: 16,
            alternatives: false,
            cancel: Cancel::default(),
        }
    }
}
