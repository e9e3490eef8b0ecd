//! The files that a command works on: found, named, with their bases, and reported.

pub(crate) mod args;
pub(crate) mod bases;
pub(crate) mod beside;
pub(crate) mod external;
pub(crate) mod files;
pub(crate) mod forecast;
pub(crate) mod missing;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod restorable;
pub(crate) mod run;
pub(crate) mod shards;
pub(crate) mod steps;
pub(crate) mod unchanged;
