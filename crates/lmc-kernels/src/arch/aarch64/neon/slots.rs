//! The decoder's tables in registers.

use super::super::super::vectors::slots::{ByRank, Entries, Slots};
use super::lookup::{Column, column};
use super::{HUFFMAN, load};
use crate::inline::Each;
use std::arch::aarch64::*;

/// Stretches of a column that is looked up by rank, and by slot.
pub(super) const BY_RANK: usize = 1;
pub(super) const BY_SLOT: usize = 8;

/// A table in registers.
pub(super) struct Columns<const N: usize> {
    ranks: Ranks,
    pub(super) symbol: Column<N>,
    /// Huffman: the length of the code, less than 0, by which a state is shifted left. rANS: the frequency.
    pub(super) scale: Column<N>,
    /// What to subtract from the slot to get the offset; not used for Huffman.
    pub(super) start: Column<N>,
}

/// From slot to rank.
struct Ranks {
    first: uint8x16_t,
    border: uint8x16_t,
    mixed: uint8x16_t,
    rest: uint8x16_t,
}

impl<const N: usize> Columns<N> {
    kernels! {
        fn new<const CODER: u8>(e: &Entries, ranks: Ranks) -> Columns<N> {
            let length = |f: u8| (7 - f.checked_ilog2().unwrap_or(0) as u8).wrapping_neg();
            let scale = if CODER == HUFFMAN { e.freq.each(length) } else { e.freq };
            Columns { ranks, symbol: column(&e.symbol), scale: column(&scale), start: column(&e.start) }
        }

        /// The index in the columns of the entries of 16 slots.
        pub(super) fn index<const CODER: u8>(&self, slot: uint8x16_t) -> uint8x16_t {
            let t = &self.ranks;
            if N == BY_SLOT {
                slot
            } else if CODER == HUFFMAN {
                let prefix = vandq_u8(slot, vdupq_n_u8(15));
                let rest = vorrq_u8(vshrq_n_u8::<4>(slot), vqtbl1q_u8(t.mixed, prefix));
                vorrq_u8(vqtbl1q_u8(t.first, prefix), vqtbl1q_u8(t.rest, rest))
            } else {
                let prefix = vshrq_n_u8::<3>(slot);
                let beyond = vcgtq_u8(slot, vqtbl1q_u8(t.border, prefix));
                let rest = vorrq_u8(vandq_u8(slot, vdupq_n_u8(7)), vqtbl1q_u8(t.mixed, prefix));
                let first = vsubq_u8(vqtbl1q_u8(t.first, prefix), beyond);
                vorrq_u8(first, vqtbl1q_u8(t.rest, rest))
            }
        }
    }
}

impl Columns<BY_RANK> {
    kernels! {
        pub(super) fn by_rank<const CODER: u8>(t: &ByRank) -> Self {
            let ranks = Ranks { first: load(&t.first), border: load(&t.border), mixed: load(&t.mixed), rest: load(&t.rest) };
            Self::new::<CODER>(&t.entries, ranks)
        }
    }
}

impl Columns<BY_SLOT> {
    kernels! {
        pub(super) fn by_slot<const CODER: u8>(t: &Slots) -> Self {
            let none = vdupq_n_u8(0);
            Self::new::<CODER>(&t.entries, Ranks { first: none, border: none, mixed: none, rest: none })
        }
    }
}
