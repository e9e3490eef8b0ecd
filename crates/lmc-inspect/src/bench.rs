//! The stages of the codec apart from each other, for benchmarks.

mod delta;
mod stages;

pub use delta::{Expected, raw_bytes};
pub use stages::{Blocks, PredictStage};

use lmc::{Level, internals};

/// Builds one table for a histogram of at least one symbol; returns its cost in 1/256 bit.
pub fn build_table(level: Level, histogram: &[u32; 256]) -> u64 {
    internals::build_table(level, histogram)
}

/// XXH3 digests of all leaves of `raw`, as encoding and decoding compute them; combined, so that none is left out.
pub fn digests(raw: &[u8]) -> u8 {
    internals::digests(raw).iter().fold(0, |a, d| a ^ d[0])
}
