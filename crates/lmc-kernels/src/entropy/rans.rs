//! rANS tables: frequencies that sum to 128 or to 4096.
//!
//! 128 slots fit registers. 4096 slots save the 0.2 to 0.3 % that rounding to 1/128 costs, most of the cost of rare symbols
//! as literals, and much more where one symbol dominates. Such a table takes 16 KiB, and lanes refill after every symbol,
//! which may take twelve bits.

use super::cost::{BIT, log2};
use super::entries::Entries;
use super::histogram::{Histogram, cheapest};
use crate::varint::{self, Cursor};
use lmc_layout::error::{Error, Result};

/// log2 of the slots of a coarse table.
pub const COARSE_BITS: u32 = 7;
/// log2 of the slots of a fine table.
pub const FINE_BITS: u32 = 12;
/// Slots of a coarse table.
pub(crate) const COARSE: usize = 1 << COARSE_BITS;
/// Slots of a fine table.
pub(crate) const FINE: usize = 1 << FINE_BITS;

/// The frequencies of symbols; their sum is 2^`log_slots`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rans {
    /// [`COARSE_BITS`] or [`FINE_BITS`].
    pub log_slots: u32,
    /// Frequencies of the symbols, in slots.
    pub freqs: Entries,
}

impl Rans {
    /// Checks that the frequencies sum to 2^`log_slots`, none of them alone, and leave a byte value for the escape.
    pub(crate) fn new(log_slots: u32, freqs: Entries) -> Result<Self> {
        let slots = 1 << log_slots;
        let sum: u32 = freqs.all().map(|(_, f)| u32::from(f)).sum();
        if sum != slots {
            return Err(Error::damaged(format!("a table's frequencies sum to {sum}, not {slots}")));
        }
        if freqs.all().any(|(_, f)| u32::from(f) >= slots) {
            return Err(Error::damaged(format!("a table has a single symbol, of frequency {slots}")));
        }
        if freqs.escape > 0 && freqs.escape_mark().is_none() {
            return Err(Error::damaged("a table has entries for all 256 symbols and for the escape"));
        }
        Ok(Self { log_slots, freqs })
    }

    /// Reads a table for symbols of `symbol_bits` bits.
    pub(super) fn parse(log_slots: u32, c: &mut Cursor<'_>, symbol_bits: u32) -> Result<Self> {
        let largest = (1 << log_slots) - 1;
        let freqs = Entries::parse(c, symbol_bits, |c, freqs| {
            for f in freqs {
                *f = c.size(largest, "a frequency of a table")? as u16;
            }
            Ok(())
        })?;
        Self::new(log_slots, freqs)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.freqs.put(out, |freqs, out| freqs.iter().for_each(|&f| varint::put(out, f.into())));
    }

    /// The pad symbol: the most frequent one.
    pub(super) fn pad(&self) -> u8 {
        self.freqs.first_by(|a, b| a > b)
    }

    /// The first slot of every symbol and of the escape; slots are assigned in order.
    pub(super) fn starts(&self) -> [u16; 257] {
        let mut starts = [0; 257];
        let mut at = 0;
        for (s, start) in starts.iter_mut().enumerate() {
            *start = at;
            at += self.freqs.get(s);
        }
        starts
    }
}

/// A table for a histogram, and the cost of coding the histogram with it in 1/256 bit; see `cheapest`.
pub fn build(hist: &Histogram, complete: bool, log_slots: u32) -> (Rans, u64) {
    let slots = 1u64 << log_slots;
    // A symbol in the table takes at least one slot from the others; a literal costs the escape's slots and eight bits. With
    // 4096 slots a literal is cheaper for symbols rarer than one in some 20 000, and for more frequent ones where many are
    // rare.
    let shares = if log_slots == COARSE_BITS { [1200, 450, 160] } else { [u64::MAX, 20_000, 4_000] };
    cheapest(hist, complete, &shares, slots as usize - 2, |kept, escaped| {
        let counts: Vec<u64> = kept.iter().map(|o| o.0.into()).chain(escaped).collect();
        let f = normalise(&counts, slots);
        let bits = counts.iter().zip(&f).map(|(c, &f)| c * u64::from(log_slots * BIT as u32 - log2(f))).sum();
        let mut freqs = Entries::none();
        kept.iter().zip(&f).for_each(|(o, &f)| freqs.of[usize::from(o.1)] = f as u16);
        if escaped.is_some() {
            freqs.escape = f[kept.len()] as u16;
        }
        (Rans { log_slots, freqs }, bits)
    })
}

/// Distributes the slots over at least two counts, none of them 0.
///
/// Rounding c·λ to the nearest integer, for the λ that makes the sum right, is nearly optimal. The sum is then corrected slot
/// by slot: one more for a frequency f saves c·ln((f + 1) / f), which with m = 2f + 1 is 6cm / (3m² − 1) to within a
/// thousandth (Padé).
fn normalise(counts: &[u64], slots: u64) -> Vec<u32> {
    debug_assert!((2..slots.min(257)).contains(&(counts.len() as u64)));
    // Counts worth less than a slot get one; the others share the rest.
    let total: u64 = counts.iter().sum();
    let small = |&&c: &&u64| c * slots <= total;
    let ones = counts.iter().filter(small).count() as u64;
    let rest = (total - counts.iter().filter(small).sum::<u64>()).max(1);
    let share = |c: u64| ((2 * c * (slots - ones) / rest).div_ceil(2)).clamp(1, slots - 1);
    let mut f: Vec<u32> = counts.iter().map(|&c| if small(&&c) { 1 } else { share(c) as u32 }).collect();
    let mut sum = f.iter().map(|&f| u64::from(f)).sum::<u64>();
    let fraction = |c: u64, m: u64| (c * m, 3 * m * m - 1);
    let above = |a: (u64, u64), b: (u64, u64)| u128::from(a.0) * u128::from(b.1) > u128::from(b.0) * u128::from(a.1);
    while sum != slots {
        let grow = sum < slots;
        let mut best: Option<(usize, (u64, u64))> = None;
        for (i, (&c, &f)) in counts.iter().zip(&f).enumerate() {
            let (m, possible) = if grow { (2 * f + 1, u64::from(f) < slots - 1) } else { (2 * f - 1, f > 1) };
            let gain = fraction(c, m.into());
            if possible && best.is_none_or(|(_, b)| if grow { above(gain, b) } else { above(b, gain) }) {
                best = Some((i, gain));
            }
        }
        let i = best.expect("some frequency can change").0;
        if grow {
            (f[i], sum) = (f[i] + 1, sum + 1);
        } else {
            (f[i], sum) = (f[i] - 1, sum - 1);
        }
    }
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_SLOTS: [u32; 2] = [COARSE_BITS, FINE_BITS];

    /// The cost of the frequencies beyond the entropy, in bits a symbol.
    fn loss(hist: &Histogram, t: &Rans) -> f64 {
        let total = f64::from(hist.iter().sum::<u32>());
        let mut loss = 0.0;
        for (s, &c) in hist.iter().enumerate().filter(|x| *x.1 > 0) {
            let (f, literal) = if t.freqs.of[s] > 0 { (t.freqs.of[s], 0.0) } else { (t.freqs.escape, 8.0) };
            let bits = f64::from(t.log_slots) - f64::from(f).log2() + literal;
            loss += f64::from(c) / total * (bits + (f64::from(c) / total).log2());
        }
        loss
    }

    #[test]
    fn every_shape_of_histogram_gives_a_valid_table() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u32
        };
        for n in 1..=256usize {
            for skew in [0u32, 1, 4, 12] {
                let mut h = [0u32; 256];
                for i in 0..n {
                    h[(i * 167) % 256] = 1 + ((random() % 60_000) >> (skew * i as u32 / 16).min(31));
                }
                for (complete, log_slots) in [false, true].into_iter().flat_map(|c| LOG_SLOTS.map(|l| (c, l))) {
                    let (t, bits) = build(&h, complete, log_slots);
                    Rans::new(log_slots, t.freqs.clone()).unwrap();
                    assert!((0..256).all(|s| h[s] == 0 || t.freqs.of[s] > 0 || t.freqs.escape > 0));
                    let loss = loss(&h, &t);
                    assert!(log_slots == COARSE_BITS || !complete || n == 1 || loss < 0.03, "{n} {skew}: {loss}");
                    let total = f64::from(h.iter().sum::<u32>());
                    let entropy: f64 =
                        h.iter().filter(|c| **c > 0).map(|&c| f64::from(c)).map(|c| c * (total / c).log2()).sum();
                    let exact = entropy + loss * total;
                    assert!((bits as f64 / 256.0 - exact).abs() < 0.01 * total, "{n} {skew}: {bits} for {exact}");
                }
            }
        }
    }

    /// No other split of the slots costs less, except for rounding.
    #[test]
    fn no_slot_is_better_off_elsewhere() {
        let counts = [40_000, 9_000, 8_999, 700, 300, 20, 1];
        let cost = |f: &[u32], slots: u64| -> f64 {
            counts.iter().zip(f).map(|(&c, &f)| c as f64 * (slots as f64 / f64::from(f)).log2()).sum()
        };
        for log_slots in LOG_SLOTS {
            let slots = 1 << log_slots;
            let f = normalise(&counts, slots);
            assert_eq!(f.iter().sum::<u32>(), slots as u32);
            for (from, to) in (0..f.len()).flat_map(|from| (0..f.len()).map(move |to| (from, to))) {
                let mut other = f.clone();
                if from != to && other[from] > 1 {
                    (other[from], other[to]) = (other[from] - 1, other[to] + 1);
                    assert!(cost(&other, slots) * 1.00001 > cost(&f, slots), "{f:?} {from} {to}");
                }
            }
        }
    }

    #[test]
    fn frequencies_are_those_of_the_histogram() {
        let mut h = [0; 256];
        (h[3], h[4], h[200]) = (3 << 20, 1 << 20, 1);
        let freqs = |h: &Histogram, log_slots| build(h, true, log_slots).0.freqs;
        let e = freqs(&h, FINE_BITS);
        assert_eq!((e.of[3], e.of[4], e.of[200], e.escape), (3071, 1024, 1, 0));
        let e = freqs(&h, COARSE_BITS);
        assert_eq!((e.of[3], e.of[4], e.of[200], e.escape), (95, 32, 0, 1));
        // Nearly always the same, as of a sparse difference: its cost must be close to nothing.
        (h[3], h[4], h[200]) = (98_000, 1_000, 1_000);
        let (t, bits) = build(&h, true, FINE_BITS);
        assert_eq!((t.freqs.of[3], t.freqs.of[4], t.freqs.of[200], t.freqs.escape), (4014, 41, 41, 0));
        assert!(bits < 100_000 * 256 / 6);
        // A sample may not have seen everything.
        assert!(build(&h, false, FINE_BITS).0.freqs.escape > 0);
    }

    #[test]
    fn literals_are_for_the_rare_only() {
        let mut h = [0; 256];
        h[..40].fill(1_000_000);
        h[100] = 100_000;
        (h[101], h[102]) = (1, 2);
        let e = build(&h, true, FINE_BITS).0.freqs;
        assert!(e.of[100] > 5 && e.of[101] == 0 && e.of[102] == 0 && e.escape > 0);
    }

    #[test]
    fn tables_that_are_refused() {
        let table = |log_slots: u32, of: &[(usize, u16)], escape| {
            let mut e = Entries { escape, ..Entries::none() };
            of.iter().for_each(|&(s, f)| e.of[s] = f);
            Rans::new(log_slots, e)
        };
        for (log_slots, slots) in [(COARSE_BITS, 128), (FINE_BITS, 4096)] {
            assert!(table(log_slots, &[(0, slots - 1)], 1).is_ok());
            assert!(table(log_slots, &[(0, slots - 1)], 0).is_err());
            assert!(table(log_slots, &[(0, slots)], 0).is_err());
            assert!(table(log_slots, &[(0, slots / 2), (9, slots / 2)], 1).is_err());
        }
        let every: Vec<(usize, u16)> = (0..256).map(|s| (s, 16)).collect();
        assert!(table(FINE_BITS, &every, 0).is_ok());
        assert!(table(FINE_BITS, &every[1..], 16).is_ok());
        let every: Vec<(usize, u16)> = (0..256).map(|s| (s, if s == 0 { 15 } else { 16 })).collect();
        assert!(table(FINE_BITS, &every, 1).is_err());
    }
}
