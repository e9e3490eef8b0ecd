//! Huffman tables: code lengths of at most seven bits, from a histogram.

use super::code_lengths;
use super::cost::BIT;
use super::entries::{ESCAPE, Entries};
use super::histogram::{Histogram, cheapest};
use super::rans::COARSE_BITS;
use crate::inline::array;
use crate::varint::Cursor;
use lmc_layout::error::Result;

const MAX_LEN: u8 = COARSE_BITS as u8;

/// The lengths of a complete code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Huffman {
    pub(crate) lens: Entries,
}

impl Huffman {
    /// Checks that the lengths are those of a complete code.
    pub(crate) fn new(lens: Entries) -> Result<Self> {
        code_lengths::check("a table's code", lens.all().map(|(_, len)| len), MAX_LEN)?;
        Ok(Self { lens })
    }

    /// Reads a table of 4-bit code lengths, for symbols of `symbol_bits` bits.
    pub(super) fn parse(c: &mut Cursor<'_>, symbol_bits: u32) -> Result<Self> {
        Self::new(Entries::parse(c, symbol_bits, code_lengths::read)?)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.lens.put(out, code_lengths::write);
    }

    /// The pad symbol: the one with the shortest code.
    pub(super) fn pad(&self) -> u8 {
        self.lens.first_by(|a, b| a < b)
    }

    /// The bit-reversed canonical code of every symbol and of the escape (`docs/format.md` §5.3).
    pub(super) fn codes(&self) -> [u8; 257] {
        code_lengths::codes(&array(|symbol| self.lens.get(symbol)), MAX_LEN).map(|code| code as u8)
    }
}

/// Code lengths for a histogram, and the cost of coding it with them in 1/256 bit; see `cheapest`.
pub fn build(hist: &Histogram, complete: bool) -> (Huffman, u64) {
    cheapest(hist, complete, &[1200, 300], 126, |kept, escaped| {
        let mut kept = kept.to_vec();
        if let Some(escaped) = escaped {
            kept.push((escaped as u32, ESCAPE as u16));
            kept.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut lens = Entries::none();
        let mut bits = 0;
        for (&(count, symbol), len) in kept.iter().zip(code_lengths::limited(&kept, MAX_LEN)) {
            bits += u64::from(count) * u64::from(len) * BIT;
            lens.set(usize::from(symbol), len.into());
        }
        (Huffman { lens }, bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_histogram_gives_a_complete_code() {
        let mut seed = 7u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u32
        };
        for n in 1..=256usize {
            for skew in [0u32, 1, 4, 16] {
                let mut h = [0u32; 256];
                for i in 0..n {
                    h[(i * 91) % 256] = 1 + (random() >> (8 + skew * i as u32 / 8).min(31));
                }
                for complete in [false, true] {
                    let lens = build(&h, complete).0.lens;
                    Huffman::new(lens.clone()).unwrap();
                    assert!((0..256).all(|s| h[s] == 0 || lens.of[s] > 0 || lens.escape > 0));
                }
            }
        }
    }

    #[test]
    fn codes_are_canonical_and_reversed() {
        let mut e = Entries { escape: 3, ..Entries::none() };
        (e.of[5], e.of[9], e.of[4]) = (1, 2, 3);
        let c = Huffman { lens: e }.codes();
        assert_eq!([c[5], c[9], c[4], c[ESCAPE]], [0b0, 0b01, 0b011, 0b111]);
    }
}
