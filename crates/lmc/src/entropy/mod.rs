//! The entropy stage: tables over 64 interleaved lanes (`docs/format.md` §5).
//!
//! A state's low bits name a slot: seven bits, so that a table is two 64-byte registers and a look-up one permute, or
//! twelve, for what 128 slots are too few. Sixteen-bit words are taken from one stream a lane set, in a fixed order of
//! lanes. The construction is interleaved rANS (Duda
//! 2013, arXiv:1311.2540; interleaving and vector refills: Giesen 2014, arXiv:1402.3392); Huffman codes are the case of
//! frequencies that are powers of two.

mod code_lengths;
pub(crate) mod coder;
pub(crate) mod cost;
pub(crate) mod entries;
pub(crate) mod histogram;
pub(crate) mod huffman;
pub(crate) mod hybrid_uint;
pub(crate) mod lanes;
pub(crate) mod merge;
pub(crate) mod rans;
pub(crate) mod table;

/// Lane sets of a block that has lanes: while one waits for what it looks up, the other works.
pub(crate) const SETS: usize = 2;
/// Lanes of a lane set.
pub(crate) const LANES: usize = 64;
/// Symbols of a chunk: two a lane.
pub(crate) const CHUNK: usize = 2 * LANES;
/// Lower end of a state's range; where encoders start and decoders end.
pub(crate) const STATE_MIN: u32 = 1 << 16;
/// Words that one refill can take at most.
pub(crate) const REFILL_WORDS: usize = LANES;
/// Words that one chunk can take at most: those of two refills, which fine tables need.
pub(crate) const CHUNK_WORDS: usize = 2 * REFILL_WORDS;

/// The `i`-th lane in the order in which lanes take words: 0, 4, …, 60, 1, 5, …, 63.
#[inline(always)]
pub(crate) const fn refill_order(i: usize) -> usize {
    4 * (i % 16) + i / 16
}
