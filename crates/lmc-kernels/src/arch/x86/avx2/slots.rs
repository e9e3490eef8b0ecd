//! The decoder's tables in registers.

use super::super::super::vectors::slots::{ByRank, Entries, SHORT, Slots};
use super::lookup::{Column, column};
use super::{HUFFMAN, load_16};
use crate::inline::Each;
use std::arch::x86_64::*;

/// Registers of a column that is looked up by rank, and by slot.
pub(super) const BY_RANK: usize = 1;
pub(super) const BY_SLOT: usize = 8;

/// A table in registers.
pub(super) struct Columns<const N: usize> {
    pub(super) ranks: Ranks,
    pub(super) symbol: Column<N>,
    /// Twice the frequency: the 16-bit factor of a state is f·2^9.
    pub(super) scale: Column<N>,
    /// Subtracted from the slot to get the offset; not used for Huffman.
    pub(super) start: Column<N>,
}

/// From slot to rank.
pub(super) struct Ranks {
    first: __m256i,
    border: __m256i,
    mixed: __m256i,
    rest: __m256i,
}

kernels! {
    /// Ranks of 32 slots.
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

impl Ranks {
    kernels! {
        fn none() -> Self {
            let none = _mm256_setzero_si256();
            Self { first: none, border: none, mixed: none, rest: none }
        }
    }
}

impl<const N: usize> Columns<N> {
    kernels! {
        fn new(e: &Entries, ranks: Ranks) -> Columns<N> {
            Columns { ranks, symbol: column(&e.symbol), scale: column(&e.freq.each(|f| 2 * f)), start: column(&e.start) }
        }
    }
}

impl Columns<BY_RANK> {
    kernels! {
        pub(super) fn by_rank(t: &ByRank) -> Self {
            let both = |t: &[u8; SHORT]| _mm256_broadcastsi128_si256(load_16(t));
            let ranks =
                Ranks { first: both(&t.first), border: both(&t.border), mixed: both(&t.mixed), rest: both(&t.rest) };
            Self::new(&t.entries, ranks)
        }

        /// For a coder with its table in memory.
        pub(super) fn none() -> Self {
            let none = [_mm256_setzero_si256()];
            Self { ranks: Ranks::none(), symbol: none, scale: none, start: none }
        }
    }
}

impl Columns<BY_SLOT> {
    kernels! {
        pub(super) fn by_slot(t: &Slots) -> Self {
            Self::new(&t.entries, Ranks::none())
        }
    }
}
