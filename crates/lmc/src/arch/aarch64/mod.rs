//! Kernels for aarch64. Every entry point takes an [`Isa`](crate::isa::Isa) of the right kind, which makes it sound.

mod neon;

pub(super) use neon::entries::{decode_cluster as neon_decode_cluster, encode_cluster as neon_encode_cluster};
