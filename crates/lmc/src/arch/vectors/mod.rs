//! What kernels for vectors of 16 bytes share: tables, without the instructions that look them up.

pub(super) mod index;
pub(super) mod shuffles;
pub(super) mod slots;
pub(super) mod ways;
