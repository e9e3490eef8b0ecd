//! What a symbol costs and becomes: the encoder's tables.
//!
//! rANS divides by multiplication, as [`Row`](crate::entropy::table::Row) says. f = 1 takes no `more`: its quotient is then
//! one too low, and its start makes up for that. One frequency above 64 at most is left that may need it.

use super::super::super::vectors::index::{ESCAPED, Index};
use super::lookup::{Column, column};
use crate::entropy::rans::COARSE;
use crate::entropy::table::{Codes, Row};
use crate::inline::array;
use std::arch::aarch64::*;

/// Columns by index.
pub(super) struct Symbols {
    pub(super) index: Index,
    /// Huffman: the length of the code. rANS: 128 − f. `ESCAPED` or not.
    size: [u8; COARSE],
    /// Huffman: the code. rANS: the first slot.
    code: [u8; COARSE],
    /// rANS: c − 1, less than 0, and the bytes of M.
    shift: [u8; COARSE],
    reciprocal: [[u8; COARSE]; 4],
    more: Option<u32>,
}

/// Columns in registers.
pub(super) struct Columns<const N: usize> {
    pub(super) size: Column<N>,
    pub(super) code: Column<N>,
    pub(super) shift: Column<N>,
    pub(super) reciprocal: [Column<N>; 4],
    /// 128 − f of the frequency whose reciprocal is rounded down, if there is one.
    pub(super) more: Option<u32>,
    first: uint8x16_t,
    last: uint8x16_t,
}

impl Symbols {
    pub(super) fn huffman(codes: &Codes, kept: &[bool; 256]) -> Self {
        Self::new(kept, |s, i, symbol| (s.size[i], s.code[i]) = (codes.len[symbol], codes.code[symbol]))
    }

    pub(super) fn rans(rows: &[Row; 256], kept: &[bool; 256]) -> Self {
        Self::new(kept, |s, i, symbol| {
            let row = rows[symbol];
            if row.freq() == 0 {
                // Without an escape, all symbols that occur are kept.
                return;
            }
            assert!(row.freq() < 128 && row.start() < 128, "slots of a coarse table");
            s.size[i] = 128 - row.freq() as u8;
            s.code[i] = row.start() as u8;
            s.shift[i] = (row.shift() as u8).wrapping_neg();
            if row.freq() == 1 {
                s.code[i] += s.size[i];
            } else if row.more() {
                let gap = s.size[i].into();
                assert!(s.more.is_none_or(|more| more == gap), "frequencies up to 64 need no more");
                s.more = Some(gap);
            }
            let bytes = row.reciprocal().to_le_bytes();
            s.reciprocal.iter_mut().zip(bytes).for_each(|(column, byte)| column[i] = byte);
        })
    }

    /// `put` fills in the entries of a symbol, at its index.
    fn new(kept: &[bool; 256], put: impl Fn(&mut Self, usize, usize)) -> Self {
        let (index, entries) = Index::new(kept);
        let none = [0; COARSE];
        let mut s = Self { index, size: none, code: none, shift: none, reciprocal: [none; 4], more: None };
        for (i, (symbol, escaped)) in entries.into_iter().enumerate() {
            put(&mut s, i, symbol);
            s.size[i] |= if escaped { ESCAPED } else { 0 };
        }
        s
    }

    kernels! {
        pub(super) fn columns<const N: usize>(&self) -> Columns<N> {
            Columns {
                size: column(&self.size),
                code: column(&self.code),
                shift: column(&self.shift),
                reciprocal: array(|i| column(&self.reciprocal[i])),
                more: self.more,
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
