//! What a slot stands for: the decoder's tables.
//!
//! Most groups have at most 16 symbols. Their slots are first looked up as the rank of a symbol, so that every column
//! of the table is one shuffle. The rank itself takes three or four shuffles, because most slots need only four of
//! their seven bits (the low ones for Huffman, whose codes are read from the bottom, the high ones for rANS, whose
//! slots are in the order of symbols): such a *prefix* has one symbol or, for rANS, two and a border between them. Up to
//! two prefixes may be mixed; they get a table of eight entries each, for the other three bits.

use super::lookup::{Column, ENTRIES, column};
use super::{HUFFMAN, load_16};
use crate::entropy::table::CoarseTable;
use std::arch::x86_64::*;

/// Stretches of a column that is looked up by rank, and by slot.
pub(super) const BY_RANK: usize = 1;
pub(super) const BY_SLOT: usize = 8;

/// Ranks and prefixes.
const SHORT: usize = 16;
/// Not an index: a shuffle makes it 0.
const NONE: u8 = 0x80;

/// A table in registers.
pub(super) struct Columns<const N: usize> {
    pub(super) ranks: Ranks,
    pub(super) symbol: Column<N>,
    /// Twice the frequency.
    pub(super) scale: Column<N>,
    /// What to subtract from the slot to get the offset; not used for Huffman.
    pub(super) start: Column<N>,
}

/// From slot to rank.
pub(super) struct Ranks {
    first: __m256i,
    border: __m256i,
    mixed: __m256i,
    rest: __m256i,
}

/// A table by slot, and by rank where it can be.
pub(super) struct Slots {
    pub(super) huffman: bool,
    pub(super) by_rank: Option<ByRank>,
    symbol: [u8; ENTRIES],
    scale: [u8; ENTRIES],
    start: [u8; ENTRIES],
}

pub(super) struct ByRank {
    symbol: [u8; ENTRIES],
    scale: [u8; ENTRIES],
    start: [u8; ENTRIES],
    /// By prefix: the rank of its first slot, 0 if it is mixed.
    first: [u8; SHORT],
    /// By prefix: the last slot with that rank, 127 if all have it.
    border: [u8; SHORT],
    /// By prefix: where its entries in `rest` begin, `NONE` if it is not mixed.
    mixed: [u8; SHORT],
    /// Ranks of the slots of mixed prefixes.
    rest: [u8; SHORT],
}

impl Slots {
    pub(super) fn new(t: &CoarseTable) -> Self {
        // The 16-bit factor of a state is f·2^9.
        assert!(t.freq.iter().all(|&f| f < 128), "frequencies were checked");
        let huffman = (0..ENTRIES).all(|slot| {
            let len = 7 - t.freq[slot].ilog2();
            t.freq[slot].is_power_of_two() && usize::from(t.offset[slot]) == slot >> len
        });
        let start = std::array::from_fn(|slot| (slot as u8).wrapping_sub(t.offset[slot]));
        let mut slots = Self { huffman, by_rank: None, symbol: t.symbol, scale: t.freq.map(|f| 2 * f), start };
        slots.by_rank = slots.ranked();
        slots
    }

    fn ranked(&self) -> Option<ByRank> {
        let mut r = ByRank {
            symbol: [0; ENTRIES],
            scale: [0; ENTRIES],
            start: [0; ENTRIES],
            first: [0; SHORT],
            border: [127; SHORT],
            mixed: [NONE; SHORT],
            rest: [0; SHORT],
        };
        let mut rank = [0u8; ENTRIES];
        let mut ranks = 0;
        for (slot, rank) in rank.iter_mut().enumerate() {
            let entry = (self.symbol[slot], self.scale[slot], self.start[slot]);
            let same = |i: &usize| entry.0 == r.symbol[*i] && (self.huffman || entry.2 == r.start[*i]);
            let found = (0..ranks).rev().find(same).unwrap_or(ranks);
            if found == ranks {
                ranks += 1;
                (r.symbol[found], r.scale[found], r.start[found]) = entry;
            }
            *rank = found as u8;
        }
        let mut mixed = 0;
        for p in 0..SHORT {
            let slots: [usize; 8] = std::array::from_fn(|q| if self.huffman { p | q << 4 } else { p << 3 | q });
            let a = rank[slots[0]];
            let border = slots.iter().take_while(|&&s| rank[s] == a).count();
            if border == 8 {
                r.first[p] = a;
            } else if !self.huffman && slots[border..].iter().all(|&s| rank[s] == a + 1) {
                r.first[p] = a;
                r.border[p] = slots[border] as u8 - 1;
            } else {
                let entries = r.rest.as_chunks_mut::<8>().0.get_mut(mixed)?;
                *entries = slots.map(|s| rank[s]);
                r.mixed[p] = 8 * mixed as u8;
                mixed += 1;
            }
        }
        (ranks <= SHORT).then_some(r)
    }
}

kernels! {
    /// Ranks of 32 slots.
    #[inline]
    pub(super) fn rank<const CODER: u8>(slot: __m256i, t: &Ranks) -> __m256i {
        if CODER == HUFFMAN {
            let rest = _mm256_and_si256(_mm256_srli_epi16::<4>(slot), _mm256_set1_epi8(7));
            let rest = _mm256_or_si256(rest, _mm256_shuffle_epi8(t.mixed, slot));
            _mm256_or_si256(_mm256_shuffle_epi8(t.first, slot), _mm256_shuffle_epi8(t.rest, rest))
        } else {
            let prefix = _mm256_and_si256(_mm256_srli_epi16::<3>(slot), _mm256_set1_epi8(15));
            let beyond = _mm256_cmpgt_epi8(slot, _mm256_shuffle_epi8(t.border, prefix));
            let rest = _mm256_and_si256(slot, _mm256_set1_epi8(7));
            let rest = _mm256_or_si256(rest, _mm256_shuffle_epi8(t.mixed, prefix));
            let first = _mm256_sub_epi8(_mm256_shuffle_epi8(t.first, prefix), beyond);
            _mm256_or_si256(first, _mm256_shuffle_epi8(t.rest, rest))
        }
    }
}

impl ByRank {
    kernels! {
        pub(super) fn columns(&self) -> Columns<BY_RANK> {
            let both = |t: &[u8; SHORT]| _mm256_broadcastsi128_si256(load_16(t));
            let ranks =
                Ranks { first: both(&self.first), border: both(&self.border), mixed: both(&self.mixed), rest: both(&self.rest) };
            Columns { ranks, symbol: column(&self.symbol), scale: column(&self.scale), start: column(&self.start) }
        }
    }
}

impl Ranks {
    kernels! {
        fn none() -> Self {
            let none = _mm256_setzero_si256();
            Self { first: none, border: none, mixed: none, rest: none }
        }
    }
}

impl Columns<BY_RANK> {
    kernels! {
        /// For a coder that has its table in memory.
        pub(super) fn none() -> Self {
            let none = [_mm256_setzero_si256()];
            Self { ranks: Ranks::none(), symbol: none, scale: none, start: none }
        }
    }
}

impl Slots {
    kernels! {
        pub(super) fn columns(&self) -> Columns<BY_SLOT> {
            let ranks = Ranks::none();
            Columns { ranks, symbol: column(&self.symbol), scale: column(&self.scale), start: column(&self.start) }
        }
    }
}
