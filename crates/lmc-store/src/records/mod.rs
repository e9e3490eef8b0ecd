//! Snapshots by their records, tags and floors (`docs/store.md` §3, §8), and the store that has them.

pub(crate) mod find;
pub(crate) mod floors;
pub(crate) mod history;
pub(crate) mod listing;
pub(crate) mod newest;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod tags;
