//! The format of `.lmc` files (`docs/format.md`): bytes to plain structs and back, within limits.

pub(crate) mod bases;
pub(crate) mod checksum;
pub(crate) mod digests;
pub(crate) mod extents;
pub(crate) mod frames;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod limits;
mod names;
pub(crate) mod record;
pub(crate) mod segments;
pub(crate) mod tensors;
pub(crate) mod trailer;
