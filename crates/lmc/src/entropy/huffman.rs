//! Huffman tables: code lengths of at most seven bits, from a histogram.

use super::code_lengths;
use super::cost::BIT;
use super::entries::{ESCAPE, Entries};
use super::histogram::{Histogram, by_count};
use super::rans::COARSE_BITS;
use crate::error::Result;
use crate::inline::array;
use crate::varint::Cursor;

const MAX_LEN: u8 = COARSE_BITS as u8;

/// The lengths of a complete code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Huffman {
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

/// Code lengths for a histogram, and the cost of coding it with them in 1/256 bit; see [`super::rans::build`].
pub(crate) fn build(hist: &Histogram, complete: bool) -> (Huffman, u64) {
    let order = by_count(hist);
    assert!(!order.is_empty(), "a table needs a symbol");
    let total: u32 = order.iter().map(|o| o.0).sum();
    let mut best: Option<(Huffman, u64)> = None;
    let mut tried = usize::MAX;
    for share in [1200, 300] {
        let keep = order.partition_point(|o| u64::from(o.0) * share >= u64::from(total)).clamp(1, 126);
        if keep == tried {
            continue;
        }
        tried = keep;
        let mut kept = order[..keep].to_vec();
        let escaped: u32 = order[keep..].iter().map(|o| o.0).sum();
        if !(complete && keep == order.len()) || keep == 1 {
            kept.push((escaped.max(1), ESCAPE as u16));
            kept.sort_unstable_by(|a, b| b.cmp(a));
        }
        let lens = code_lengths::limited(&kept, MAX_LEN);
        let mut e = Entries::none();
        let mut bits = u64::from(escaped) * 8 * BIT;
        for (&(count, symbol), &len) in kept.iter().zip(&lens) {
            bits += u64::from(count) * u64::from(len) * BIT;
            e.set(usize::from(symbol), len.into());
        }
        if best.as_ref().is_none_or(|b| bits < b.1) {
            best = Some((Huffman { lens: e }, bits));
        }
    }
    best.expect("at least one split was tried")
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
