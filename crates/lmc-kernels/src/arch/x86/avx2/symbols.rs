//! The encoder's tables by symbol.
//!
//! rANS divides states by frequencies. In base 256, and 16-bit arithmetic, the long division of a 32-bit state by f ≤ 127
//! has three digits: the first from the upper half, less than 512·f, the others from a remainder and eight more bits,
//! less than 256·f. With c = ⌈log2 f⌉ and R = ⌈2^(15+c) / f⌉ < 2^16, a digit is
//! `((a · 2^(7−c)) · R >> 16) >> 6`: the first product is below 2^16, and the quotient exact while a·(R·f − 2^(15+c)) <
//! 2^(15+c). That always holds for f ≤ 64 and for the lower digits; the first digit may be one too high for a few
//! frequencies above 64; a table has at most one ([`Columns::correct`]).

use super::super::super::vectors::index::{ESCAPED, Index};
use super::lookup::{Column, ENTRIES, column};
use crate::entropy::table::{Codes, Row};
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
    pub(super) fn huffman(codes: &Codes, kept: &[bool; 256]) -> Self {
        Self::new(kept, |s, i, symbol| (s.size[i], s.code[i]) = (1 << codes.len[symbol], codes.code[symbol]))
    }

    pub(super) fn rans(rows: &[Row; 256], kept: &[bool; 256]) -> Self {
        Self::new(kept, |s, i, symbol| {
            let (f, start) = (rows[symbol].freq(), rows[symbol].start());
            if f == 0 {
                // Without an escape, all symbols that occur are kept.
                return;
            }
            assert!(f < 128 && start < 128, "slots of a coarse table");
            let c = 32 - (f - 1).leading_zeros();
            let r = (1u32 << (15 + c)).div_ceil(f);
            s.correct |= (512 * f - 1) * (r * f - (1 << (15 + c))) >= 1 << (15 + c);
            (s.size[i], s.code[i], s.scale[i]) = (f as u8, start as u8, 1 << (7 - c));
            [s.reciprocal[0][i], s.reciprocal[1][i], ..] = r.to_le_bytes();
        })
    }

    /// `put` sets the entries of a symbol, at its index.
    fn new(kept: &[bool; 256], put: impl Fn(&mut Self, usize, usize)) -> Self {
        let (index, entries) = Index::new(kept);
        let none = [0; ENTRIES];
        let mut s = Self { index, size: none, code: none, scale: none, reciprocal: [none; 2], correct: false };
        for (i, (symbol, escaped)) in entries.into_iter().enumerate() {
            put(&mut s, i, symbol);
            s.code[i] |= if escaped { ESCAPED } else { 0 };
        }
        s
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
        /// Indices of 32 symbols, or of 32 ranks.
        pub(super) fn index(&self, symbols: __m256i) -> __m256i {
            _mm256_min_epu8(_mm256_sub_epi8(symbols, self.first), self.last)
        }
    }
}
