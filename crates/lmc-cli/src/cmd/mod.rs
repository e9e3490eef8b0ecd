//! The commands, one module each: arguments, and a `run` function.

#[cfg(feature = "lab")]
pub(crate) mod analyze;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod compress;
pub(crate) mod decompress;
#[cfg(feature = "lab")]
pub(crate) mod diff;
pub(crate) mod estimate;
pub(crate) mod follow;
pub(crate) mod hub;
pub(crate) mod list;
#[cfg(feature = "mount")]
pub(crate) mod mount;
#[cfg(feature = "lab")]
mod page;
mod poll;
pub(crate) mod publish;
pub(crate) mod snapshot;
pub(crate) mod test;
pub(crate) mod unpack;
pub(crate) mod version;
