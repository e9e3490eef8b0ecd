//! The entropy stage: tables over 64 interleaved lanes (`docs/format.md` §5).
//!
//! A state's low seven bits name a slot, so that a table is two 64-byte registers and a look-up one permute; the fine
//! coder's tables have 4096 slots, for what 128 are too few. Sixteen-bit
//! words are taken from one stream a lane set, in a fixed order of lanes. The construction is interleaved rANS (Duda
//! 2013, arXiv:1311.2540; interleaving and vector refills: Giesen 2014, arXiv:1402.3392); Huffman codes are the case of
//! frequencies that are powers of two.

use crate::arch::inline::{array, zip};

pub(crate) mod coder;
pub(crate) mod cost;
pub(crate) mod fine;
pub(crate) mod huffman;
pub(crate) mod lanes;
pub(crate) mod number;
pub(crate) mod rans;
pub(crate) mod table;

/// Slots of a coarse table.
pub(crate) const SLOTS: usize = 128;
/// Lanes of a lane set.
pub(crate) const LANES: usize = 64;
/// Symbols of a chunk: two a lane.
pub(crate) const CHUNK: usize = 2 * LANES;
/// Lower end of a state's range; where encoders start and decoders end.
pub(crate) const STATE_MIN: u32 = 1 << 16;
/// Words that one refill can take at most.
pub(crate) const REFILL_WORDS: usize = LANES;
/// Words that one chunk can take at most: those of two refills, which the fine coder has.
pub(crate) const CHUNK_WORDS: usize = 2 * REFILL_WORDS;

/// Number of symbols of each value.
pub(crate) type Histogram = [u32; 256];

/// The symbols that occur, and how often: the most frequent first, of equally frequent ones the highest.
fn by_count(h: &Histogram) -> Vec<(u32, u16)> {
    // As one number each, which are sorted several times as fast.
    let mut order: Vec<u64> = Vec::with_capacity(h.len());
    for (s, &c) in h.iter().enumerate() {
        if c > 0 {
            order.push(u64::from(c) << 16 | s as u64);
        }
    }
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.into_iter().map(|o| ((o >> 16) as u32, o as u16)).collect()
}

/// How often each place is named. Four tables, so that equal neighbours, of which residuals have many, do not wait for each other.
pub(crate) fn histogram<T: Copy, const N: usize>(values: &[T], place: impl Fn(T) -> usize) -> [u32; N] {
    let mut tables = [[0u32; N]; 4];
    let (quads, rest) = values.as_chunks::<4>();
    for quad in quads {
        zip(&mut tables, quad, |h, &v| h[place(v)] += 1);
    }
    rest.iter().for_each(|&v| tables[0][place(v)] += 1);
    array(|i| sum_of(&tables, i))
}

/// Count of a symbol in a histogram that was taken in four.
#[inline(always)]
pub(crate) fn sum_of<const N: usize>(h: &[[u32; N]; 4], symbol: usize) -> u32 {
    h[0][symbol] + h[1][symbol] + h[2][symbol] + h[3][symbol]
}

/// The `i`-th lane in the order in which lanes take words: 0, 4, …, 60, 1, 5, …, 63.
#[inline(always)]
pub(crate) const fn refill_order(i: usize) -> usize {
    4 * (i % 16) + i / 16
}
