//! Whole `.lmc` files: opened from their end, read from their front, and written.

pub(crate) mod open;
pub(crate) mod stream;
pub(crate) mod writer;
