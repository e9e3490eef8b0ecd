//! Where the AVX2 kernels of groups and of statistics are entered.

use super::super::super::job::{DecodeJob, EncodeJob};
use super::{decode, encode, stats};
use crate::error::Result;
use crate::group::classes::RunStats;
use crate::map::Map;

entries! {
    Avx2
    pub(in crate::arch) fn decode_group(job: &mut DecodeJob<'_, '_>) -> Result<()> = decode::group;
    pub(in crate::arch) fn encode_group(job: &mut EncodeJob<'_>) = encode::group;
    pub(in crate::arch) fn run_ors(width: usize, elements: &[u8], ors: &mut Vec<u64>) = stats::ors;
    pub(in crate::arch) fn run_stats(width: usize, map: Map, elements: &[u8], stats: &mut RunStats) = stats::all;
}
