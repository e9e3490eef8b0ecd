//! The `.lmc` container: header, records, index, trailer; writers and readers of it.

pub(crate) mod bases;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod open;
pub(crate) mod record;
pub(crate) mod segments;
pub(crate) mod stream;
pub(crate) mod tensors;
pub(crate) mod trailer;
pub(crate) mod writer;
