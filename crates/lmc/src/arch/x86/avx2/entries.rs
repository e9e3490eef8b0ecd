//! Entry points of the AVX2 kernels of clusters and statistics.

use super::super::super::job::{DecodeJob, EncodeJob};
use super::{decode, encode, stats};
use crate::cluster::runs::RunStats;
use crate::error::Result;
use crate::map::Map;

entries! {
    Avx2
    pub(in crate::arch) fn decode_cluster(job: &mut DecodeJob<'_, '_>) -> Result<()> = decode::cluster;
    pub(in crate::arch) fn encode_cluster(job: &mut EncodeJob<'_>) = encode::cluster;
    pub(in crate::arch) fn run_ors(width: usize, elements: &[u8], ors: &mut Vec<u64>) = stats::ors;
    pub(in crate::arch) fn run_stats(width: usize, map: Map, elements: &[u8], stats: &mut RunStats) = stats::all;
}
