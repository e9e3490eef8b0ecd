//! rANS tables: frequencies that sum to 128, from a histogram.

use crate::arch::inline::zip;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::coder::Entries;
use super::cost::{BIT, log2};
use super::table::{CoarseKind, CoarseTable, ESCAPE, by_symbol, pad_symbol, starts, unused_byte};
use super::{Histogram, SLOTS, by_count};
use crate::error::{Error, Result};
use crate::format::varint::Cursor;

/// Reads frequencies of a byte.
pub(super) fn read(c: &mut Cursor<'_>, freqs: &mut [u16]) -> Result<()> {
    let bytes = c.bytes(freqs.len())?;
    freqs.iter_mut().zip(bytes).for_each(|(f, &b)| *f = u16::from(b));
    Ok(())
}

pub(super) fn write(freqs: &[u16], out: &mut Vec<u8>) {
    out.extend(freqs.iter().map(|&f| f as u8));
}

/// The pad symbol: the most frequent one.
pub(super) fn pad(e: &Entries) -> u8 {
    pad_symbol(e, |a, b| a > b)
}

pub(super) fn decode_table(e: &Entries) -> Result<CoarseTable> {
    if e.all().map(|(_, f)| usize::from(f)).sum::<usize>() != SLOTS || e.all().any(|(_, f)| usize::from(f) >= SLOTS) {
        return Err(Error::damaged("the frequencies of a table do not sum to 128"));
    }
    let mark = unused_byte(e).expect("a table has at most 128 symbols");
    let mut t = CoarseTable::empty(mark, pad(e));
    let starts = starts(e);
    for (symbol, f) in e.all() {
        for i in 0..usize::from(f) {
            let slot = usize::from(starts[symbol]) + i;
            t.symbol[slot] = if symbol == ESCAPE { mark } else { symbol as u8 };
            (t.freq[slot], t.offset[slot]) = (f as u8, i as u8);
        }
    }
    Ok(t)
}

pub(super) fn encode_table(e: &Entries) -> CoarseKind {
    let starts = starts(e);
    let freq = |s: usize| if s == ESCAPE { e.escape } else { e.of[s] };
    CoarseKind::Rans { freq: by_symbol(e, |s| freq(s) as u8), start: by_symbol(e, |s| starts[s] as u8) }
}

/// Whether `x / f` is exact as a 32-bit multiplication in the vector encoder (see `arch::avx512`): true below 65, and for most
/// frequencies above, of which a table has one at most.
pub(crate) const fn divides_exactly(f: u32) -> bool {
    let c = 32 - (f - 1).leading_zeros();
    let m = (1u64 << (31 + c)).div_ceil(f as u64);
    let excess = m * f as u64 - (1 << (31 + c));
    // x < f·127·2^18, and the quotient is exact while x·excess < 2^(31+c).
    m <= u32::MAX as u64 && excess * f as u64 * 127 < 1 << (13 + c)
}

/// Every frequency up to this one divides exactly.
const EXACT: u32 = 64;
const _: () = {
    let mut f = 1;
    while f <= EXACT {
        assert!(divides_exactly(f));
        f += 1;
    }
};

/// Frequencies for a histogram of which at least two symbols, or one symbol and unseen others, occur; and the cost of coding the histogram with
/// them, in 1/256 bit.
///
/// `complete` says that no symbol outside the histogram can occur, which saves the escape.
pub(crate) fn build(hist: &Histogram, complete: bool) -> (Entries, u64) {
    let order = by_count(hist);
    assert!(!order.is_empty(), "a table needs a symbol");
    let total: u32 = order.iter().map(|o| o.0).sum();
    let mut best: Option<(Entries, u64)> = None;
    let mut tried = usize::MAX;
    // Symbols below a share of the whole are better off as escapes; where the line is best depends on the tail.
    for share in [1200, 450, 160] {
        let keep = order.partition_point(|o| u64::from(o.0) * share >= u64::from(total)).clamp(1, 126);
        if keep == tried {
            continue;
        }
        tried = keep;
        let escaped: u32 = order[keep..].iter().map(|o| o.0).sum();
        let escape = !(complete && keep == order.len()) || keep == 1;
        let (freqs, bits) = normalise(&order[..keep], escape.then_some(escaped), total);
        let mut e = Entries::none();
        order[..keep].iter().zip(&freqs).for_each(|(o, &f)| e.of[usize::from(o.1)] = f);
        if escape {
            e.escape = freqs[keep];
        }
        if best.as_ref().is_none_or(|b| bits < b.1) {
            best = Some((e, bits));
        }
    }
    best.expect("at least one split was tried")
}

/// Distributes the 128 slots over symbols (in order of count, highest first) and the escape, if there is one.
fn normalise(order: &[(u32, u16)], escaped: Option<u32>, total: u32) -> (Vec<u16>, u64) {
    let mut counts: Vec<u32> = Vec::with_capacity(order.len() + 1);
    for o in order {
        counts.push(o.0);
    }
    if let Some(escaped) = escaped {
        counts.push(escaped.max(1));
    }
    let n = counts.len();
    debug_assert!((2..=127).contains(&n));
    let mut f = vec![0; n];
    zip(&mut f, &counts, |f, &c| *f = ((u64::from(c) * 256 / u64::from(total)).div_ceil(2) as u32).clamp(1, 127));
    let mut sum = f.iter().fold(0, |sum, &f| sum + i64::from(f));
    // What one more slot would save, or one less would cost; between equals the earlier symbol takes slots and the later one gives them.
    let step = |i: usize, lo: u32| u64::from(counts[i]) * u64::from(log2(lo + 1) - log2(lo));
    if sum < 128 {
        let key = |i: usize, f: u32| if f < 127 { step(i, f) << 8 | (n - i) as u64 } else { 0 };
        let mut keys: BinaryHeap<u64> = (0..n).map(|i| key(i, f[i])).collect();
        while sum < 128 {
            let mut most = keys.peek_mut().expect("there are symbols");
            let i = n - (*most & 255) as usize;
            f[i] += 1;
            *most = key(i, f[i]);
            sum += 1;
        }
    } else if sum > 128 {
        let key = |i: usize, f: u32| if f > 1 { step(i, f - 1) << 8 | (n - i) as u64 } else { u64::MAX };
        let mut keys: BinaryHeap<Reverse<u64>> = (0..n).map(|i| Reverse(key(i, f[i]))).collect();
        while sum > 128 {
            let mut least = keys.peek_mut().expect("there are symbols");
            let i = n - (least.0 & 255) as usize;
            f[i] -= 1;
            *least = Reverse(key(i, f[i]));
            sum -= 1;
        }
    }
    if let Some(i) = f.iter().position(|&f| f > EXACT && !divides_exactly(f)) {
        let exact = (1..f[i]).rev().find(|&f| divides_exactly(f)).expect("one divides exactly");
        let other = if i == 0 { 1 } else { 0 };
        f[other] += f[i] - exact;
        f[i] = exact;
    }
    let mut bits = 0;
    zip(&mut f, &counts, |&mut f, &c| bits += u64::from(c) * u64::from(7 * 256 - log2(f)));
    bits += u64::from(escaped.unwrap_or(0)) * 8 * BIT;
    (f.into_iter().map(|f| f as u16).collect(), bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_frequencies() {
        assert!((1..=64).all(divides_exactly));
        for f in (65..=127u32).filter(|&f| divides_exactly(f)) {
            let c = 32 - (f - 1).leading_zeros();
            let m = (1u64 << (31 + c)).div_ceil(u64::from(f));
            let top = (u64::from(f) * 127) << 18;
            // Errors can only show just below a multiple of f; the largest ones are the worst.
            for q in (top / u64::from(f) - 70_000..top / u64::from(f)).chain(1..70_000) {
                let x = q * u64::from(f) + u64::from(f) - 1;
                assert_eq!((x * m) >> (31 + c), q);
                assert_eq!(((q * u64::from(f)) * m) >> (31 + c), q);
            }
        }
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
                    h[(i * 167) % 256] = 1 + ((random() % 1000) >> (skew * i as u32 / 16).min(31)) * (1 + random() % 3);
                }
                for complete in [false, true] {
                    let (e, bits) = build(&h, complete);
                    let t = decode_table(&e).unwrap();
                    assert!(t.freq.iter().all(|&f| f > 0 && divides_exactly(u32::from(f))));
                    let covered = (0..256).all(|s| h[s] == 0 || e.of[s] > 0 || e.escape > 0);
                    assert!(covered && bits > 0);
                }
            }
        }
    }
}
