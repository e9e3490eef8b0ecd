//! Whole `.lmc` files: cut into blocks and written, opened from the end, or read front to back.

pub(crate) mod access;
pub(crate) mod blocks;
pub(crate) mod cut;
pub(crate) mod handover;
pub(crate) mod hashing;
pub(crate) mod open;
pub(crate) mod origin;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod writer;
