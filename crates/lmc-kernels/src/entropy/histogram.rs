//! Counts of symbols.

use super::cost::BIT;
use crate::inline::{array, zip};

/// The count of each symbol.
pub type Histogram = [u32; 256];

/// The symbols that occur with their counts, most frequent first; of equal counts the highest symbol first.
pub(super) fn by_count(h: &Histogram) -> Vec<(u32, u16)> {
    // Packed into one integer each, which sorts several times as fast.
    let mut order: Vec<u64> = Vec::with_capacity(h.len());
    for (s, &c) in h.iter().enumerate() {
        if c > 0 {
            order.push(u64::from(c) << 16 | s as u64);
        }
    }
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.into_iter().map(|o| ((o >> 16) as u32, o as u16)).collect()
}

/// The cheapest of several tables for a histogram with at least one symbol, and the cost of coding the histogram with it, in 1/256 bit.
///
/// Which symbols are best left to the escape depends on the rare ones: the function tries each of `shares` as the lowest frequency in the
/// table. `table` makes one for at most `most` symbols with their counts, and the count of the escape if it has one; it returns the
/// cost without literals. `complete`: no symbol outside the histogram occurs, so that a table of all its symbols needs no escape.
pub(super) fn cheapest<T>(
    hist: &Histogram,
    complete: bool,
    shares: &[u64],
    most: usize,
    table: impl Fn(&[(u32, u16)], Option<u64>) -> (T, u64),
) -> (T, u64) {
    let order = by_count(hist);
    assert!(!order.is_empty(), "a table needs a symbol");
    let total: u64 = order.iter().map(|o| u64::from(o.0)).sum();
    let mut best: Option<(T, u64)> = None;
    let mut tried = usize::MAX;
    for share in shares {
        let keep = order.partition_point(|o| u64::from(o.0).saturating_mul(*share) >= total).clamp(1, most);
        let escape = !(complete && keep == order.len()) || keep == 1;
        let keep = if escape { keep.min(255) } else { keep };
        if keep == tried {
            continue;
        }
        tried = keep;
        let escaped: u64 = order[keep..].iter().map(|o| u64::from(o.0)).sum();
        let (made, bits) = table(&order[..keep], escape.then_some(escaped.max(1)));
        let bits = bits + escaped * 8 * BIT;
        if best.as_ref().is_none_or(|b| bits < b.1) {
            best = Some((made, bits));
        }
    }
    best.expect("at least one split was tried")
}

/// Counts `place(v)` of all values. Four tables, so that increments for equal neighbours, frequent in residuals, do not
/// depend on each other.
pub fn histogram<T: Copy, const N: usize>(values: &[T], place: impl Fn(T) -> usize) -> [u32; N] {
    let mut tables = [[0u32; N]; 4];
    let (quads, rest) = values.as_chunks::<4>();
    for quad in quads {
        zip(&mut tables, quad, |h, &v| h[place(v)] += 1);
    }
    rest.iter().for_each(|&v| tables[0][place(v)] += 1);
    array(|i| sum_of(&tables, i))
}

/// Count of a symbol in a histogram of four tables.
#[inline(always)]
pub fn sum_of<const N: usize>(h: &[[u32; N]; 4], symbol: usize) -> u32 {
    h[0][symbol] + h[1][symbol] + h[2][symbol] + h[3][symbol]
}
