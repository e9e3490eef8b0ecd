//! Entry points of the AVX-512 kernels of clusters.

use super::super::super::job::{DecodeJob, EncodeJob};
use super::{decode, encode};
use crate::error::Result;

entries! {
    Avx512
    pub(in crate::arch) fn decode_cluster(job: &mut DecodeJob<'_, '_>) -> Result<()> = decode::cluster;
    pub(in crate::arch) fn encode_cluster(job: &mut EncodeJob<'_>) = encode::cluster;
}
