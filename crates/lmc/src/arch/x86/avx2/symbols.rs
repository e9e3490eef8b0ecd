//! What a symbol costs and becomes: the encoder's tables.
//!
//! rANS divides states by frequencies. In base 256, and 16-bit arithmetic, the long division of a 32-bit state by f ≤ 127
//! has three digits: the first from the upper half, less than 512·f, the others from a remainder and eight more bits,
//! less than 256·f. With c = ⌈log2 f⌉ and R = ⌈2^(15+c) / f⌉ < 2^16, a digit is
//! `((a · 2^(7−c)) · R >> 16) >> 6`: the first product is below 2^16, and the quotient exact while a·(R·f − 2^(15+c)) <
//! 2^(15+c). That always holds for f ≤ 64 and for the lower digits; the first digit may be one too high for a few
//! frequencies above 64, of which a table has one at most ([`Columns::correct`]).

use super::super::super::vectors::index::{ESCAPED, Index};
use super::lookup::{Column, ENTRIES, column};
use crate::entropy::table::EncodeKind;
use std::arch::x86_64::*;

/// Columns by index.
pub(super) struct Symbols {
    pub(super) index: Index,
    /// Huffman: 2^length. rANS: the frequency.
    size: [u8; ENTRIES],
    /// Huffman: the code. rANS: the first slot. `ESCAPED` or not.
    code: [u8; ENTRIES],
    /// rANS: 2^(7−c), and the halves of R.
    scale: [u8; ENTRIES],
    reciprocal: [[u8; ENTRIES]; 2],
    correct: bool,
}

/// Columns in registers.
pub(super) struct Columns<const N: usize> {
    pub(super) size: Column<N>,
    pub(super) code: Column<N>,
    pub(super) scale: Column<N>,
    pub(super) reciprocal: [Column<N>; 2],
    /// Whether the first digit of a quotient may be one too high.
    pub(super) correct: bool,
    first: __m256i,
    last: __m256i,
}

impl Symbols {
    pub(super) fn new(t: &EncodeKind, kept: &[bool; 256]) -> Self {
        let (index, entries) = Index::new(kept);
        let mut s = Self {
            index,
            size: [0; ENTRIES],
            code: [0; ENTRIES],
            scale: [0; ENTRIES],
            reciprocal: [[0; ENTRIES]; 2],
            correct: false,
        };
        for (i, (symbol, escaped)) in entries.into_iter().enumerate() {
            s.put(t, i, symbol, if escaped { ESCAPED } else { 0 });
        }
        s
    }

    fn put(&mut self, t: &EncodeKind, i: usize, symbol: usize, escaped: u8) {
        match t {
            EncodeKind::Huffman(t) => {
                (self.size[i], self.code[i]) = (1 << t.len[symbol], t.code[symbol] | escaped);
            }
            EncodeKind::Coarse(rows) | EncodeKind::Fine(rows) if rows[symbol].freq() > 0 => {
                let (f, start) = (rows[symbol].freq(), rows[symbol].start());
                assert!(f < 128 && start < 128, "slots of a coarse table");
                let c = 32 - (f - 1).leading_zeros();
                let r = (1u32 << (15 + c)).div_ceil(f);
                self.correct |= (512 * f - 1) * (r * f - (1 << (15 + c))) >= 1 << (15 + c);
                (self.size[i], self.code[i], self.scale[i]) = (f as u8, start as u8 | escaped, 1 << (7 - c));
                [self.reciprocal[0][i], self.reciprocal[1][i], ..] = r.to_le_bytes();
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
                scale: column(&self.scale),
                reciprocal: [column(&self.reciprocal[0]), column(&self.reciprocal[1])],
                correct: self.correct,
                first: _mm256_set1_epi8(self.index.first as i8),
                last: _mm256_set1_epi8(self.index.last as i8),
            }
        }
    }
}

impl<const N: usize> Columns<N> {
    kernels! {
        /// Indexes of 32 symbols, or of 32 ranks.
        pub(super) fn index(&self, symbols: __m256i) -> __m256i {
            _mm256_min_epu8(_mm256_sub_epi8(symbols, self.first), self.last)
        }
    }
}
