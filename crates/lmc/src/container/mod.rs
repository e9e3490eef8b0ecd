//! Whole `.lmc` files: opened from the end, read front to back, and written.

pub(crate) mod open;
pub(crate) mod stream;
pub(crate) mod writer;
