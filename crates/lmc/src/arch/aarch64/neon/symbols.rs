//! What a symbol costs and becomes: the encoder's tables.
//!
//! rANS divides by multiplication, as [`Row`](crate::entropy::table::Row) says. f = 1 takes no `more`: its quotient is then
//! one too low, and its start makes up for that. One frequency above 64 at most is left that may need it.

use super::super::super::vectors::index::{ESCAPED, Index};
use super::lookup::{Column, column};
use crate::arch::inline::array;
use crate::entropy::rans::COARSE;
use crate::entropy::table::EncodeKind;
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
    pub(super) fn new(t: &EncodeKind, kept: &[bool; 256]) -> Self {
        let (index, entries) = Index::new(kept);
        let none = [0; COARSE];
        let mut s = Self { index, size: none, code: none, shift: none, reciprocal: [none; 4], more: None };
        for (i, (symbol, escaped)) in entries.into_iter().enumerate() {
            s.put(t, i, symbol);
            s.size[i] |= if escaped { ESCAPED } else { 0 };
        }
        s
    }

    fn put(&mut self, t: &EncodeKind, i: usize, symbol: usize) {
        match t {
            EncodeKind::Huffman(t) => (self.size[i], self.code[i]) = (t.len[symbol], t.code[symbol]),
            EncodeKind::Coarse(rows) | EncodeKind::Fine(rows) if rows[symbol].freq() > 0 => {
                let row = rows[symbol];
                assert!(row.freq() < 128 && row.start() < 128, "slots of a coarse table");
                self.size[i] = 128 - row.freq() as u8;
                self.code[i] = row.start() as u8;
                self.shift[i] = (row.shift() as u8).wrapping_neg();
                if row.freq() == 1 {
                    self.code[i] += self.size[i];
                } else if row.more() {
                    let gap = self.size[i].into();
                    assert!(self.more.is_none_or(|more| more == gap), "frequencies up to 64 need no more");
                    self.more = Some(gap);
                }
                let bytes = row.reciprocal().to_le_bytes();
                self.reciprocal.iter_mut().zip(bytes).for_each(|(column, byte)| column[i] = byte);
            }
            // A table without an escape: what is not kept does not occur.
            EncodeKind::Coarse(_) | EncodeKind::Fine(_) => {}
        }
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
