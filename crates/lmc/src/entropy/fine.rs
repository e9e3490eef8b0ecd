//! Fine rANS: frequencies that sum to 4096, and a refill after every symbol.
//!
//! Against 128 slots it saves the 0.2 to 0.3 % that rounding to 1/128 costs, most of what rare symbols cost as
//! literals, and of symbols that are nearly always the same much more. A table is 16 KiB and no longer fits registers.

use super::coder::Entries;
use super::cost::{BIT, log2};
use super::table::{ESCAPE, by_symbol, starts, unused_byte};
use super::{Histogram, by_count};
use crate::error::{Error, Result};
use crate::format::varint::Cursor;

/// Bits of a slot.
pub(crate) const SLOT_BITS: u32 = 12;
/// Slots of a table.
pub(crate) const SLOTS: usize = 1 << SLOT_BITS;

/// What a decoder looks up by slot.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct FineDecodeTable {
    /// Symbol or `escape_mark` in bits 0 … 7, frequency in bits 8 … 19, offset above.
    pub(crate) slots: [u32; SLOTS],
    /// A byte that is no symbol of the table: it marks the escape's slots, where there are any.
    pub(crate) escape_mark: Option<u8>,
    pub(crate) pad: u8,
}

/// What an encoder looks up by symbol.
#[derive(Clone, Debug)]
pub(crate) struct FineEncodeTable {
    pub(crate) rows: [Row; 256],
}

/// How a symbol is pushed onto a state, in two halves of a `u64`.
///
/// The lower one is the reciprocal M of the frequency f: for every state x below f·2^20, which is where they are pushed,
/// x div f = (x + more)·M >> (32 + shift). With c = ⌈log2 f⌉ and K = 31 + c, M is 2^K / f rounded up with `more` = 0,
/// or rounded down with `more` = 1. Let e be what M·f differs from 2^K by. Rounded up, the quotient is exact while
/// x·e < 2^K; rounded down (and e > 0) while (x + 1)·e ≤ 2^K. One of the two has e ≤ f/2, and x·f/2 < 2^(2c+19) ≤ 2^K
/// because c ≤ 12 (after Robison, N-bit unsigned division via N-bit multiply-add, 2005). For f = 1, M = 2^32 − 1 with
/// `more` = 1 does.
///
/// The upper half: bits 0 … 11 the first slot, 12 … 15 the shift, 16 `more`, 20 … 31 the frequency, so that what is left
/// of the half after clearing the others is the bound 2^20·f.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Row(pub(crate) u64);

impl Row {
    fn new(freq: u16, start: u16) -> Self {
        let f = u64::from(freq);
        debug_assert!((1..SLOTS as u64).contains(&f) && usize::from(start) < SLOTS);
        let (reciprocal, shift, more) = if f == 1 {
            (u64::from(u32::MAX), 0, 1)
        } else {
            let c = u64::from(64 - (f - 1).leading_zeros());
            let k = 1u64 << (31 + c);
            let rest = k % f;
            let more = (1..=f / 2).contains(&rest);
            (if more { k / f } else { k.div_ceil(f) }, c - 1, u64::from(more))
        };
        Self(reciprocal | u64::from(start) << 32 | shift << 44 | more << 48 | f << 52)
    }

    /// States from here on emit a word first.
    #[inline(always)]
    pub(crate) fn bound(self) -> u32 {
        (self.0 >> 32) as u32 & 0xfff0_0000
    }

    /// `(x div f)·4096 + x mod f + start` for an x below the bound.
    #[inline(always)]
    pub(crate) fn push(self, x: u32) -> u32 {
        let upper = (self.0 >> 32) as u32;
        let quotient = ((u64::from(x) + u64::from(upper >> 16 & 1)) * (self.0 & 0xffff_ffff)) >> 32;
        let quotient = quotient as u32 >> (upper >> 12 & 15);
        x + quotient * (SLOTS as u32 - (upper >> 20)) + (upper & 0xfff)
    }
}

/// Reads frequencies, a varint each.
pub(super) fn read(c: &mut Cursor<'_>, freqs: &mut [u16]) -> Result<()> {
    for f in freqs {
        *f = c.size(SLOTS - 1, "a frequency of a table")? as u16;
    }
    Ok(())
}

pub(super) fn write(freqs: &[u16], out: &mut Vec<u8>) {
    freqs.iter().for_each(|&f| crate::format::varint::put(out, f.into()));
}

pub(super) fn decode_table(e: &Entries) -> Result<FineDecodeTable> {
    if e.all().map(|(_, f)| usize::from(f)).sum::<usize>() != SLOTS || e.all().any(|(_, f)| usize::from(f) >= SLOTS) {
        return Err(Error::damaged("the frequencies of a table do not sum to 4096"));
    }
    let mark = unused_byte(e);
    if e.escape > 0 && mark.is_none() {
        return Err(Error::damaged("a table has an entry for every symbol and for the escape"));
    }
    let escape_mark = mark.filter(|_| e.escape > 0);
    let mut t = FineDecodeTable { slots: [0; SLOTS], escape_mark, pad: super::rans::pad(e) };
    let mut rest = &mut t.slots[..];
    for (symbol, f) in e.all() {
        let (slots, others) = rest.split_at_mut(usize::from(f));
        let symbol = if symbol == ESCAPE { escape_mark.expect("the escape has an entry") } else { symbol as u8 };
        let first = u32::from(symbol) | u32::from(f) << 8;
        for (offset, slot) in slots.iter_mut().enumerate() {
            *slot = first | (offset as u32) << 20;
        }
        rest = others;
    }
    Ok(t)
}

pub(super) fn encode_table(e: &Entries) -> FineEncodeTable {
    let starts = starts(e);
    let row = |s: usize| match if s == ESCAPE { e.escape } else { e.of[s] } {
        // Neither in the table nor escaped: does not occur.
        0 => Row::default(),
        f => Row::new(f, starts[s]),
    };
    FineEncodeTable { rows: by_symbol(e, row) }
}

/// Frequencies for a histogram, and the cost of coding it with them in 1/256 bit; see [`super::rans::build`].
pub(crate) fn build(hist: &Histogram, complete: bool) -> (Entries, u64) {
    let order = by_count(hist);
    assert!(!order.is_empty(), "a table needs a symbol");
    let total: u64 = order.iter().map(|o| u64::from(o.0)).sum();
    let mut best: Option<(Entries, u64)> = None;
    let mut tried = usize::MAX;
    // A symbol in the table takes a slot at least, from all others. A literal costs that slot's eight bits: a symbol must
    // be rarer than one in some 20 000 to be better off as one, or more frequent where there are many of its kind.
    for share in [u64::MAX, 20_000, 4_000] {
        let keep = order.partition_point(|o| u64::from(o.0).saturating_mul(share) >= total).max(1);
        let escape = !(complete && keep == order.len()) || keep == 1;
        let keep = if escape { keep.min(255) } else { keep };
        if keep == tried {
            continue;
        }
        tried = keep;
        let escaped: u64 = order[keep..].iter().map(|o| u64::from(o.0)).sum();
        let mut counts: Vec<u64> = order[..keep].iter().map(|o| u64::from(o.0)).collect();
        if escape {
            counts.push(escaped.max(1));
        }
        let freqs = normalise(&counts);
        let bits: u64 =
            counts.iter().zip(&freqs).map(|(c, &f)| c * u64::from(SLOT_BITS * BIT as u32 - log2(f))).sum::<u64>()
                + escaped * 8 * BIT;
        if best.as_ref().is_none_or(|b| bits < b.1) {
            let mut e = Entries::none();
            order[..keep].iter().zip(&freqs).for_each(|(o, &f)| e.of[usize::from(o.1)] = f as u16);
            if escape {
                e.escape = freqs[keep] as u16;
            }
            best = Some((e, bits));
        }
    }
    best.expect("at least one split was tried")
}

/// Distributes the slots over at least two counts, none of them 0.
///
/// Rounding c·λ to the nearest integer, for the λ that makes the sum right, is nearly optimal: a slot more for a
/// frequency f saves c·log2((f + 1) / f), which is 2c / (2f + 1) nats to within the square of 1/f.
fn normalise(counts: &[u64]) -> Vec<u32> {
    debug_assert!((2..=256).contains(&counts.len()));
    // Those below a slot get one, the others share the rest.
    let total: u64 = counts.iter().sum();
    let small = |&&c: &&u64| c * SLOTS as u64 <= total;
    let ones = counts.iter().filter(small).count() as u64;
    let rest = (total - counts.iter().filter(small).sum::<u64>()).max(1);
    let share = |c: u64| ((2 * c * (SLOTS as u64 - ones) / rest).div_ceil(2)).clamp(1, SLOTS as u64 - 1);
    let mut f: Vec<u32> = counts.iter().map(|&c| if small(&&c) { 1 } else { share(c) as u32 }).collect();
    let mut sum: u32 = f.iter().sum();
    // Fractions c / (2f ± 1) compared by cross multiplication.
    let above = |a: (u64, u32), b: (u64, u32)| a.0 * u64::from(b.1) > b.0 * u64::from(a.1);
    while sum != SLOTS as u32 {
        let grow = sum < SLOTS as u32;
        let mut best: Option<(usize, (u64, u32))> = None;
        for (i, (&c, &f)) in counts.iter().zip(&f).enumerate() {
            let gain = if grow { (c, 2 * f + 1) } else { (c, 2 * f - 1) };
            let possible = if grow { f < SLOTS as u32 - 1 } else { f > 1 };
            if possible && best.is_none_or(|(_, b)| if grow { above(gain, b) } else { above(b, gain) }) {
                best = Some((i, gain));
            }
        }
        let i = best.expect("some frequency can change").0;
        if grow {
            f[i] += 1
        } else {
            f[i] -= 1
        }
        if grow { sum += 1 } else { sum -= 1 }
    }
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The condition in [`Row`]'s description for every frequency, and the division itself where it is closest to failing.
    #[test]
    fn every_frequency_divides_exactly() {
        for f in 1..SLOTS as u64 {
            let row = Row::new(f as u16, 0);
            let (m, upper) = (row.0 & 0xffff_ffff, row.0 >> 32);
            let (shift, more) = (upper >> 12 & 15, upper >> 16 & 1);
            assert_eq!((upper >> 20, row.bound()), (f, (f as u32) << 20));
            let k = 1u128 << (32 + shift);
            let (product, states) = (u128::from(m * f), u128::from(f) << 20);
            if more == 0 {
                assert!(product >= k && (states - 1) * (product - k) < k, "{f}");
            } else {
                assert!(product < k && states * (k - product) <= k, "{f}");
            }
            let quotients = (0..40).chain((1 << 20) - 40..1 << 20).chain((0..20).map(|i| 1 << i));
            for q in quotients {
                for r in [0, 1, f / 2, f - 1].into_iter().filter(|&r| r < f) {
                    assert_eq!(u64::from(row.push((q * f + r) as u32)), q * SLOTS as u64 + r, "{q} · {f} + {r}");
                }
            }
        }
    }

    /// What the frequencies cost beyond entropy, in bits a symbol.
    fn loss(hist: &Histogram, e: &Entries) -> f64 {
        let total = f64::from(hist.iter().sum::<u32>());
        let mut loss = 0.0;
        for (s, &c) in hist.iter().enumerate().filter(|x| *x.1 > 0) {
            let (f, literal) = if e.of[s] > 0 { (e.of[s], 0.0) } else { (e.escape, 8.0) };
            loss += f64::from(c) / total * (12.0 - f64::from(f).log2() + literal + (f64::from(c) / total).log2());
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
                for complete in [false, true] {
                    let (e, bits) = build(&h, complete);
                    let t = decode_table(&e).unwrap();
                    assert_eq!(t.escape_mark.is_some(), e.escape > 0);
                    assert!((0..256).all(|s| h[s] == 0 || e.of[s] > 0 || e.escape > 0));
                    assert!(!complete || n == 1 || loss(&h, &e) < 0.03, "{n} {skew}: {}", loss(&h, &e));
                    let total = f64::from(h.iter().sum::<u32>());
                    let entropy: f64 =
                        h.iter().filter(|c| **c > 0).map(|&c| f64::from(c)).map(|c| c * (total / c).log2()).sum();
                    let exact = entropy + loss(&h, &e) * total;
                    assert!((bits as f64 / 256.0 - exact).abs() < 0.01 * total, "{n} {skew}: {bits} for {exact}");
                }
            }
        }
    }

    #[test]
    fn frequencies_are_those_of_the_histogram() {
        let mut h = [0; 256];
        (h[3], h[4], h[200]) = (3 << 20, 1 << 20, 1);
        let (e, _) = build(&h, true);
        assert_eq!((e.of[3], e.of[4], e.of[200], e.escape), (3071, 1024, 1, 0));
        // Nearly always the same, as of a sparse difference: its cost must be close to nothing.
        (h[3], h[4], h[200]) = (98_000, 1_000, 1_000);
        let (e, bits) = build(&h, true);
        assert_eq!((e.of[3], e.of[4], e.of[200], e.escape), (4014, 41, 41, 0));
        assert!(bits < 100_000 * 256 / 6);
        // A sample may not have seen everything.
        assert!(build(&h, false).0.escape > 0);
    }

    #[test]
    fn literals_are_for_the_rare_only() {
        let mut h = [0; 256];
        h[..40].fill(1_000_000);
        h[100] = 100_000;
        (h[101], h[102]) = (1, 2);
        let (e, _) = build(&h, true);
        assert!(e.of[100] > 5 && e.of[101] == 0 && e.of[102] == 0 && e.escape > 0);
    }

    #[test]
    fn tables_that_are_refused() {
        let table = |of: &[(usize, u16)], escape| {
            let mut e = Entries { escape, ..Entries::none() };
            of.iter().for_each(|&(s, f)| e.of[s] = f);
            decode_table(&e)
        };
        assert!(table(&[(0, 4095)], 1).is_ok());
        assert!(table(&[(0, 4095)], 0).is_err());
        assert!(table(&[(0, 4096)], 0).is_err());
        assert!(table(&[(0, 2048), (9, 2048)], 1).is_err());
        let every: Vec<(usize, u16)> = (0..256).map(|s| (s, 16)).collect();
        assert!(table(&every, 0).is_ok_and(|t| t.escape_mark.is_none()));
        let every: Vec<(usize, u16)> = (0..256).map(|s| (s, if s == 0 { 15 } else { 16 })).collect();
        assert!(table(&every, 1).is_err());
        assert!(table(&every[1..], 16).is_ok_and(|t| t.escape_mark == Some(0)));
    }
}
