//! Kernels for x86-64. Every entry point takes an [`Isa`](crate::isa::Isa) of the right kind, which makes it sound.

mod avx2;
mod avx512;

pub(super) use avx2::changes::changes as avx2_changes;
pub(super) use avx2::entries::{decode_cluster as avx2_decode_cluster, encode_cluster as avx2_encode_cluster};
pub(super) use avx2::entries::{run_ors as avx2_run_ors, run_stats as avx2_run_stats};
pub(super) use avx2::predict as avx2_predict;
pub(super) use avx512::changes::changes as avx512_changes;
pub(super) use avx512::entries::{decode_cluster as avx512_decode_cluster, encode_cluster as avx512_encode_cluster};
pub(super) use avx512::predict as avx512_predict;
pub(super) use avx512::{run_ors as avx512_run_ors, run_stats as avx512_run_stats};
