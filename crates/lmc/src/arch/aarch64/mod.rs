//! Kernels for aarch64. Every function here that may be called takes an [`Isa`](crate::isa::Isa) of the right kind: that is what makes it sound.

mod neon;

pub(super) use neon::entries::{decode_group as neon_decode_group, encode_group as neon_encode_group};
