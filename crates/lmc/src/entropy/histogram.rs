//! Counts of symbols.

use crate::inline::{array, zip};

/// The count of each symbol.
pub(crate) type Histogram = [u32; 256];

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

/// Counts `place(v)` of all values. Four tables, so that increments for equal neighbours, frequent in residuals, do not
/// depend on each other.
pub(crate) fn histogram<T: Copy, const N: usize>(values: &[T], place: impl Fn(T) -> usize) -> [u32; N] {
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
pub(crate) fn sum_of<const N: usize>(h: &[[u32; N]; 4], symbol: usize) -> u32 {
    h[0][symbol] + h[1][symbol] + h[2][symbol] + h[3][symbol]
}
