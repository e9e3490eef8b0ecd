//! What a symbol costs and becomes: the encoder's tables.
//!
//! rANS divides by multiplication. With c = ⌈log2 f⌉ and M = ⌈2^(31+c) / f⌉, x / f is the high half of x·M shifted right by
//! c − 1, exactly, for every f that [`rans::divides_exactly`] lets through; f = 1 takes M = 2^32 − 1, whose quotient is one
//! too low, and a start that makes up for it.

use super::super::super::vectors::index::{ESCAPED, Index};
use super::lookup::{Column, column};
use crate::arch::inline::array;
use crate::entropy::table::CoarseKind;
use crate::entropy::{SLOTS, rans};
use std::arch::aarch64::*;

/// Columns by index.
pub(super) struct Symbols {
    pub(super) index: Index,
    /// Huffman: the length of the code. rANS: 128 − f. `ESCAPED` or not.
    size: [u8; SLOTS],
    /// Huffman: the code. rANS: the first slot.
    code: [u8; SLOTS],
    /// rANS: c − 1, less than 0, and the bytes of M.
    shift: [u8; SLOTS],
    reciprocal: [[u8; SLOTS]; 4],
}

/// Columns in registers.
pub(super) struct Columns<const N: usize> {
    pub(super) size: Column<N>,
    pub(super) code: Column<N>,
    pub(super) shift: Column<N>,
    pub(super) reciprocal: [Column<N>; 4],
    first: uint8x16_t,
    last: uint8x16_t,
}

impl Symbols {
    pub(super) fn new(t: &CoarseKind, kept: &[bool; 256]) -> Self {
        let (index, entries) = Index::new(kept);
        let none = [0; SLOTS];
        let mut s = Self { index, size: none, code: none, shift: none, reciprocal: [none; 4] };
        for (i, (symbol, escaped)) in entries.into_iter().enumerate() {
            s.put(t, i, symbol);
            s.size[i] |= if escaped { ESCAPED } else { 0 };
        }
        s
    }

    fn put(&mut self, t: &CoarseKind, i: usize, symbol: usize) {
        match t {
            CoarseKind::Huffman { len, code } => (self.size[i], self.code[i]) = (len[symbol], code[symbol]),
            CoarseKind::Rans { freq, start } if freq[symbol] > 0 => {
                let f = u32::from(freq[symbol]);
                assert!(rans::divides_exactly(f) && f < 128, "encoders build tables with such frequencies only");
                self.size[i] = 128 - f as u8;
                let c = 32 - (f - 1).leading_zeros();
                let reciprocal = if f == 1 {
                    self.code[i] = start[symbol] + self.size[i];
                    u32::MAX
                } else {
                    self.code[i] = start[symbol];
                    self.shift[i] = (c as u8 - 1).wrapping_neg();
                    (1u64 << (31 + c)).div_ceil(f.into()) as u32
                };
                self.reciprocal.iter_mut().zip(reciprocal.to_le_bytes()).for_each(|(column, byte)| column[i] = byte);
            }
            // A table without an escape: what is not kept does not occur.
            CoarseKind::Rans { .. } => {}
        }
    }

    kernels! {
        pub(super) fn columns<const N: usize>(&self) -> Columns<N> {
            Columns {
                size: column(&self.size),
                code: column(&self.code),
                shift: column(&self.shift),
                reciprocal: array(|i| column(&self.reciprocal[i])),
                first: vdupq_n_u8(self.index.first),
                last: vdupq_n_u8(self.index.last),
            }
        }
    }
}

impl<const N: usize> Columns<N> {
    kernels! {
        /// Indexes of 16 symbols, or of 16 ranks.
        pub(super) fn index(&self, symbols: uint8x16_t) -> uint8x16_t {
            vminq_u8(vsubq_u8(symbols, self.first), self.last)
        }
    }
}
