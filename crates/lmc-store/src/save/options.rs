//! How to save.

use lmc::Level;

use crate::ids::Step;

/// What a snapshot's pieces are made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BasePolicy {
    /// The same piece of the snapshot before, unless that saves next to nothing, or more than three times its bytes would have to be read for that one.
    #[default]
    Auto,
    /// The same piece of the snapshot before.
    Previous,
    /// The piece that the one of the snapshot before began with: larger than with `Previous`, and restored from two pieces at most.
    Anchor,
    /// Nothing: each snapshot stands alone. What did not change is not stored again all the same.
    Nothing,
}

/// How to save.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SaveOptions {
    /// How hard the codec tries.
    pub level: Level,
    /// Threads to compress with; 0 for as many as the machine has. Nothing but speed depends on it.
    pub threads: usize,
    /// What pieces are made from.
    pub base: BasePolicy,
    /// Every so many saves a piece is stored alone, so that no more than these are ever needed to restore one: 1 to 64.
    pub anchor_every: u32,
    /// The snapshot that is the one before; by default the last one of an earlier step.
    pub from: Option<Step>,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self { level: Level::Default, threads: 0, base: BasePolicy::Auto, anchor_every: 16, from: None }
    }
}
