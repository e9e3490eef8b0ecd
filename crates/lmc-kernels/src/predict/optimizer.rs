//! Predictions of the states of optimizers (`docs/format.md` §3.9).
//!
//! Operations are single ones of binary32, which every processor rounds in the same way; Rust fuses none.

use super::halves::bf16;
use crate::cluster::element::{Element, with_element};
use crate::float::with_ieee;
use crate::inline::zip;

/// The prediction in place of a NaN, whose bits differ between processors.
const NAN: u32 = 0x7fc0_0000;

fn bits(x: f32) -> u32 {
    if x.is_nan() { NAN } else { x.to_bits() }
}

fn float(bits: [u8; 4]) -> f32 {
    f32::from_bits(u32::from_le_bytes(bits))
}

/// Replaces `out` by multiples of elements of `width` bytes, 4 (F32) or 2 (BF16).
///
/// # Panics
/// If `elements` and `out` have other lengths, here and below.
pub fn scaled(width: usize, factor: f32, elements: &[u8], out: &mut [u8]) {
    assert_eq!(elements.len(), out.len(), "an element for each prediction");
    with_ieee(|| match width {
        4 => zip(out.as_chunks_mut::<4>().0, elements.as_chunks::<4>().0, |to, &x| {
            *to = bits(factor * float(x)).to_le_bytes();
        }),
        2 => zip(out.as_chunks_mut::<2>().0, elements.as_chunks::<2>().0, |to, &x| {
            let x = f32::from_bits(u32::from(u16::from_le_bytes(x)) << 16);
            *to = bf16(bits(factor * x)).to_le_bytes();
        }),
        _ => unreachable!("elements of {width} bytes are not scaled"),
    });
}

/// The constants of a second moment's step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MomentStep {
    /// The decay of the average of gradients.
    pub b: f32,
    /// The inverse of the share of a gradient in it.
    pub h: f32,
    /// The decay of the second moment.
    pub a: f32,
    /// The share of a squared gradient in it.
    pub c: f32,
}

impl MomentStep {
    /// Replaces `out` by second moments, from those of the step before and the averages of gradients before and after.
    pub fn predict(self, v0: &[u8], m0: &[u8], m1: &[u8], out: &mut [u8]) {
        let Self { b, h, a, c } = self;
        let n = out.len();
        assert!([v0, m0, m1].iter().all(|x| x.len() == n), "an element for each prediction");
        let elements = v0.as_chunks::<4>().0.iter().zip(m0.as_chunks::<4>().0).zip(m1.as_chunks::<4>().0);
        with_ieee(|| {
            for (to, ((&v0, &m0), &m1)) in out.as_chunks_mut::<4>().0.iter_mut().zip(elements) {
                let g = (float(m1) - b * float(m0)) * h;
                *to = bits(a * float(v0) + (c * g) * g).to_le_bytes();
            }
        });
    }
}

/// The constants of a weight's step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightStep {
    /// What is left of the weight.
    pub a: f32,
    /// The factor of the average of gradients after the step.
    pub s1: f32,
    /// That of the average before.
    pub s0: f32,
    /// What is added to the root of the second moment.
    pub e: f32,
}

impl WeightStep {
    /// Replaces `out` by weights, from those before and the moments of their gradients; `m0`, the average before, may be left out.
    pub fn predict(self, w0: &[u8], m1: &[u8], v1: &[u8], m0: Option<&[u8]>, out: &mut [u8]) {
        let Self { a, s1, s0, e } = self;
        let n = out.len();
        assert!([w0, m1, v1, m0.unwrap_or(w0)].iter().all(|x| x.len() == n), "an element for each prediction");
        let elements = w0.as_chunks::<4>().0.iter().zip(m1.as_chunks::<4>().0).zip(v1.as_chunks::<4>().0);
        let outs = out.as_chunks_mut::<4>().0.iter_mut();
        let step = |w0, u: f32, v1| bits(a * float(w0) + u / (float(v1).sqrt() + e)).to_le_bytes();
        with_ieee(|| match m0 {
            None => outs.zip(elements).for_each(|(to, ((&w0, &m1), &v1))| *to = step(w0, s1 * float(m1), v1)),
            Some(m0) => {
                for ((to, ((&w0, &m1), &v1)), &m0) in outs.zip(elements).zip(m0.as_chunks::<4>().0) {
                    *to = step(w0, s1 * float(m1) + s0 * float(m0), v1);
                }
            }
        });
    }
}

/// Rows of a matrix, of which a column has consecutive elements, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Elements of a row.
    pub len: u64,
    /// Elements of the row before the column's first one; less than `len`.
    pub position: u64,
}

impl Rows {
    /// Rows that `n` elements are in.
    pub fn count(self, n: usize) -> usize {
        (self.position + n as u64).div_ceil(self.len) as usize
    }

    /// Calls `each` with the number of every row that some of the `n` elements from element `first` on are in, the number of the first
    /// of them in the row, and their range, counted from `first`.
    #[inline(always)]
    pub fn each(self, first: usize, n: usize, mut each: impl FnMut(usize, u64, std::ops::Range<usize>)) {
        let at = self.position + first as u64;
        let (mut row, mut column, mut i) = ((at / self.len) as usize, at % self.len, 0);
        while i < n {
            let end = i + ((n - i) as u64).min(self.len - column) as usize;
            each(row, column, i..end);
            (row, column, i) = (row + 1, 0, end);
        }
    }
}

/// Replaces `out` by sums of a term of the row and one of the column, times 2^`shift`. If the rows are longer than `out`, each element
/// has a term of its own in place of its column's.
pub fn rows_and_columns(width: usize, shift: u32, rows: Rows, of_rows: &[u8], of_columns: &[u8], out: &mut [u8]) {
    let n = out.len() / width;
    assert_eq!(of_columns.len() as u64, rows.len.min(n as u64), "a term for each column");
    let by_column = rows.len <= n as u64;
    with_element!(width, E => {
        let out = E::all_mut(out);
        rows.each(0, n, |row, column, range| {
            let from = if by_column { column as usize } else { range.start };
            let of_row = u64::from(of_rows[row]);
            zip(&mut out[range.clone()], &of_columns[from..from + range.len()], |to, &term| {
                *to = E::cut(of_row + u64::from(term)).shl(shift).to_bytes();
            });
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    /// Special values, and some ordinary ones.
    fn values() -> Vec<f32> {
        let special = [0, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7fc0_0001, 0x7f80_0001];
        let ordinary = (0..40u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> 1);
        special
            .into_iter()
            .chain(ordinary)
            .flat_map(|b: u32| [f32::from_bits(b), f32::from_bits(b | 1 << 31)])
            .collect()
    }

    /// To binary32, rounded once more: innocuous for single operations, as a binary64 has more than twice the bits.
    fn round(x: f64) -> f64 {
        f64::from(x as f32)
    }

    fn nearest(x: f64) -> u32 {
        if x.is_nan() { NAN } else { (x as f32).to_bits() }
    }

    #[test]
    fn steps_are_rounded_after_each_operation() {
        let values = values();
        let n = values.len();
        let (b, h, a, c) = (0.9f32, 10.0f32, 0.999f32, 0.001f32);
        let (d, s1, s0, e) = (0.9999f32, -3e-4f32, 2e-5f32, 1e-9f32);
        let f = f64::from;
        for shift in 0..n {
            let x = |k: usize| -> Vec<f32> { (0..n).map(|i| values[(i + k * shift) % n]).collect() };
            let (v0, m0, m1) = (x(0), x(1), x(2));
            let mut out = vec![0; 4 * n];
            MomentStep { b, h, a, c }.predict(&bytes(&v0), &bytes(&m0), &bytes(&m1), &mut out);
            for (i, p) in out.as_chunks().0.iter().enumerate() {
                let (v0, m0, m1) = (f(v0[i]), f(m0[i]), f(m1[i]));
                let g = round(round(m1 - round(f(b) * m0)) * f(h));
                let expected = nearest(round(f(a) * v0) + round(round(f(c) * g) * g));
                assert_eq!(u32::from_le_bytes(*p), expected, "{v0:e} {m0:e} {m1:e}");
            }
            let of_weights = [None, Some(&m1)];
            for before in of_weights {
                let step = WeightStep { a: d, s1, s0, e };
                step.predict(&bytes(&v0), &bytes(&m0), &bytes(&m1), before.map(|m| bytes(m)).as_deref(), &mut out);
                for (i, p) in out.as_chunks().0.iter().enumerate() {
                    let (w0, m1, v1) = (f(v0[i]), f(m0[i]), f(m1[i]));
                    let u = round(f(s1) * m1);
                    let u = before.map_or(u, |m| round(u + round(f(s0) * f(m[i]))));
                    let expected = nearest(round(f(d) * w0) + round(u / round(round(v1.sqrt()) + f(e))));
                    assert_eq!(u32::from_le_bytes(*p), expected, "{w0:e} {m1:e} {v1:e}");
                }
            }
            scaled(4, a, &bytes(&v0), &mut out);
            for (p, &x) in out.as_chunks().0.iter().zip(&v0) {
                assert_eq!(u32::from_le_bytes(*p), nearest(f(a) * f(x)));
            }
        }
    }

    #[test]
    fn halves_are_scaled_as_floats() {
        for x in 0..=u16::MAX {
            let mut out = [0; 2];
            scaled(2, 0.5, &x.to_le_bytes(), &mut out);
            let wide = bits(0.5 * f32::from_bits(u32::from(x) << 16));
            assert_eq!(u16::from_le_bytes(out), bf16(wide));
        }
    }

    #[test]
    fn terms_are_of_rows_and_columns() {
        for (len, position, n) in [(3, 0, 7), (3, 2, 7), (1, 0, 4), (5, 3, 4), (9, 8, 3), (9, 0, 3), (4, 1, 4)] {
            let rows = Rows { len, position };
            let of_rows: Vec<u8> = (0..rows.count(n)).map(|i| 100 + i as u8).collect();
            let of_columns: Vec<u8> = (0..len.min(n as u64)).map(|i| 250 - 3 * i as u8).collect();
            let mut out = vec![0; 4 * n];
            rows_and_columns(4, 21, rows, &of_rows, &of_columns, &mut out);
            for (e, p) in out.as_chunks::<4>().0.iter().enumerate() {
                let at = position + e as u64;
                let column = if len <= n as u64 { (at % len) as usize } else { e };
                let sum = u32::from(of_rows[(at / len) as usize]) + u32::from(of_columns[column]);
                assert_eq!(u32::from_le_bytes(*p), sum << 21, "{len} {position} {n} {e}");
            }
        }
    }
}
