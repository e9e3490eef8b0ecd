//! Operations on snapshots, a file or folder each.

pub(crate) mod cancel;
pub(crate) mod copy;
pub(crate) mod cost;
pub(crate) mod gc;
pub(crate) mod latest;
pub(crate) mod merge;
pub(crate) mod overwrite;
pub(crate) mod previous;
pub(crate) mod prune;
pub(crate) mod publish;
pub(crate) mod rebase;
pub(crate) mod restore;
pub(crate) mod save;
pub(crate) mod states;
pub(crate) mod target;
pub(crate) mod verify;
