//! Kernels for x86-64. Every function here that may be called takes an [`Isa`] of the right kind: that is what makes it sound.

mod autovec;

pub(super) use autovec::{avx2_decode_group, avx2_encode_group, avx512_decode_group, avx512_encode_group};
pub(super) use autovec::{avx2_run_stats, avx512_run_stats};
