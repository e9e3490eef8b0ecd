//! The entropy stage: tables over 64 interleaved lanes (`docs/format.md` §5).
//!
//! A state's low bits name a slot: seven bits, so that a table fits two 64-byte registers and a look-up is one permute, or
//! twelve where 128 slots are too few. The lanes of a set read 16-bit words from one stream, in a fixed order. The
//! construction is interleaved rANS (Duda 2013, arXiv:1311.2540; interleaving and vector refills: Giesen 2014,
//! arXiv:1402.3392); Huffman codes are the case of frequencies that are powers of two.

mod code_lengths;
pub mod coder;
pub mod cost;
pub mod entries;
pub mod histogram;
pub mod huffman;
pub mod hybrid_uint;
pub mod lanes;
pub mod merge;
pub mod rans;
pub mod table;

/// Lane sets of a block that has lanes: one works while the other waits for its look-ups.
pub const SETS: usize = 2;
/// Lanes of a lane set.
pub const LANES: usize = 64;
/// Symbols of a chunk: two per lane.
pub(crate) const CHUNK: usize = 2 * LANES;
/// Lower end of a state's range; encoders start and decoders end at it.
pub(crate) const STATE_MIN: u32 = 1 << 16;
/// Most words that one refill takes.
pub(crate) const REFILL_WORDS: usize = LANES;
/// Most words that one chunk takes: two refills, as fine tables need.
pub(crate) const CHUNK_WORDS: usize = 2 * REFILL_WORDS;

/// The `i`-th lane in the order in which lanes take words: 0, 4, …, 60, 1, 5, …, 63.
#[inline(always)]
pub(crate) const fn refill_order(i: usize) -> usize {
    4 * (i % 16) + i / 16
}
