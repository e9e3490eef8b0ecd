//! Input and output files: read without change, complete under their names or absent, never one for another.

pub(crate) mod durable;
pub(crate) mod guard;
pub(crate) mod handles;
pub(crate) mod input;
pub(crate) mod leftovers;
pub(crate) mod links;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod temporary;
pub(crate) mod walk;
