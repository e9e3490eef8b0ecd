//! Where the AVX-512 kernels of groups are entered.

use super::super::super::job::{DecodeJob, EncodeJob};
use super::{decode, encode};
use crate::error::Result;

entries! {
    Avx512
    pub(in crate::arch) fn decode_group(job: &mut DecodeJob<'_, '_>) -> Result<()> = decode::group;
    pub(in crate::arch) fn encode_group(job: &mut EncodeJob<'_>) = encode::group;
}
