//! Where the AVX2 kernels of groups and of statistics are entered.

use super::super::super::job::{DecodeJob, EncodeJob};
use super::{decode, encode, stats};
use crate::error::Result;
use crate::group::classes::RunStats;
use crate::isa::{Isa, Kind};
use crate::map::Map;

pub(in crate::arch) fn decode_group(isa: Isa, job: &mut DecodeJob<'_, '_>) -> Result<()> {
    assert_eq!(isa.kind(), Kind::Avx2);
    // SAFETY: an `Isa` of this kind exists only where the features were detected.
    unsafe { decode::group(job) }
}

pub(in crate::arch) fn encode_group(isa: Isa, job: &mut EncodeJob<'_>) {
    assert_eq!(isa.kind(), Kind::Avx2);
    // SAFETY: as above.
    unsafe { encode::group(job) }
}

pub(in crate::arch) fn run_ors(isa: Isa, width: usize, elements: &[u8], ors: &mut Vec<u64>) {
    assert_eq!(isa.kind(), Kind::Avx2);
    // SAFETY: as above.
    unsafe { stats::ors(width, elements, ors) }
}

pub(in crate::arch) fn run_stats(isa: Isa, width: usize, map: Map, elements: &[u8], stats: &mut RunStats) {
    assert_eq!(isa.kind(), Kind::Avx2);
    // SAFETY: as above.
    unsafe { stats::all(width, map, elements, stats) }
}
