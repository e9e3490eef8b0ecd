//! Tables that kernels with 16-byte vectors share.

pub(super) mod boundaries;
pub(super) mod index;
pub(super) mod shuffles;
pub(super) mod slots;
pub(super) mod ways;
