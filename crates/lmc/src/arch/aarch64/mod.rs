//! Kernels for aarch64. Every function here that may be called takes an [`Isa`](crate::isa::Isa) of the right kind: that is what makes it sound.

mod neon;

pub(super) use neon::entries::{decode_cluster as neon_decode_cluster, encode_cluster as neon_encode_cluster};
