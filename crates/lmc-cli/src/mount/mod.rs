//! A read-only file system in user space: what a [`Tree`] shows, its files decoded block by block when they are read.

mod blocks;
mod filesystem;
mod log;
mod nodes;
mod sequence;
mod tree;

pub(crate) use blocks::Blocks;
pub(crate) use filesystem::Mounted;
pub(crate) use log::Log;
pub(crate) use tree::{Attributes, Decoded, Opened, Tree, version, version_of_bytes};
