//! Kernels for aarch64.

pub(super) mod neon;
