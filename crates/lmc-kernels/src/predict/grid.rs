//! Predictions from a grid: products of levels and scales, to which offsets may be added (`docs/format.md` §3.8). Numbers that may be
//! subnormal are not left to the floating-point unit: a process may have set it to take them for 0. (Another rounding mode than the default
//! one is not supported: Rust does not.)

use super::Conversion;
use super::halves::{bf16, f16};
use crate::cluster::element::{Element, with_element};
use crate::inline::zip;

/// Most elements of the rows of a group, and of those before a column's end in them.
const MAX_ELEMENTS: u64 = 1 << 48;
/// The exponent of a binary32 that is not finite.
const EXPONENT: u32 = 0x7f80_0000;

/// Rectangles of a matrix, which a column has consecutive elements of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Elements of a row of the matrix.
    pub row: u64,
    /// Rows of a group.
    pub rows: u64,
    /// Columns of a group, at most `row`.
    pub columns: u64,
    /// Where the column begins in `rows` rows.
    pub position: u64,
}

impl Groups {
    /// Groups that stand side by side.
    pub fn in_a_row(&self) -> u64 {
        self.row.div_ceil(self.columns)
    }

    /// Groups of the rows of groups that `n` elements are in.
    pub fn count(&self, n: u64) -> u64 {
        (self.position + n).div_ceil(self.rows * self.row).saturating_mul(self.in_a_row())
    }

    /// Whether `n` elements can be in such groups: there are not more scales than elements.
    pub fn are_valid(&self, n: u64) -> bool {
        let Groups { row, rows, columns, position } = *self;
        let of_rows = u128::from(row) * u128::from(rows);
        let within = columns >= 1 && columns <= row && u128::from(position) < of_rows;
        within && of_rows <= MAX_ELEMENTS.into() && position + n <= MAX_ELEMENTS && self.count(n) <= n
    }

    /// Every group that some of `n` elements are in, and which: in order, a group of several rows several times.
    #[inline(always)]
    pub fn of(&self, n: usize) -> EachGroup {
        let (groups, in_a_row) = (*self, self.in_a_row());
        EachGroup { groups, in_a_row, n, at: self.position, before: 0, column: 0, group: 0, i: 0, end: 0 }
    }
}

/// Groups, and their elements in a column.
pub struct EachGroup {
    groups: Groups,
    in_a_row: u64,
    /// Elements of the column.
    n: usize,
    /// Where the next row of the matrix begins.
    at: u64,
    /// Groups before those of this row; the next column, and its group there.
    before: u64,
    column: u64,
    group: u64,
    /// The next element of the column, and the end of those in this row.
    i: usize,
    end: usize,
}

impl Iterator for EachGroup {
    type Item = (usize, std::ops::Range<usize>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Groups { row, rows, columns, .. } = self.groups;
        if self.i == self.end {
            if self.i == self.n {
                return None;
            }
            // One row of the matrix, or the rest of it.
            (self.before, self.column) = (self.at / (rows * row) * self.in_a_row, self.at % row);
            self.group = self.column / columns;
            let left = row - self.column;
            self.end = self.i + ((self.n - self.i) as u64).min(left) as usize;
            self.at += left;
        }
        let next = ((self.group + 1) * columns).min(row);
        let range = self.i..self.i + ((next - self.column) as usize).min(self.end - self.i);
        let group = (self.before + self.group) as usize;
        (self.i, self.column, self.group) = (range.end, next, self.group + 1);
        Some((group, range))
    }
}

/// Whether the bits are those of a finite binary32.
pub fn is_finite(bits: u32) -> bool {
    bits & EXPONENT != EXPONENT
}

/// The terms of a group: the bits of finite binary32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What levels are multiplied by.
    pub scale: u32,
    /// What is added to the product.
    pub offset: Option<u32>,
}

impl Terms {
    /// The bits of the binary32 that a level becomes.
    #[inline(always)]
    fn apply(self, level: u32) -> u32 {
        let product = if is_ordinary(self.scale) && is_ordinary(level) {
            (f32::from_bits(self.scale) * f32::from_bits(level)).to_bits()
        } else {
            product(self.scale, level)
        };
        self.offset.map_or(product, |offset| sum(product, offset))
    }

    /// Whether products with levels that are ordinary or 0, and sums, need no care.
    fn are_ordinary(self) -> bool {
        is_ordinary(self.scale) && self.offset.is_none_or(|offset| offset << 1 == 0 || is_ordinary(offset))
    }
}

/// The data that predict the elements of a column.
pub struct GridModel<'a> {
    /// Of the binary32 that a level becomes.
    pub conversion: Conversion,
    /// The bits of a finite binary32 each, at most 256.
    pub levels: &'a [u32],
    /// The group of each element.
    pub groups: Groups,
    /// Of every group the bits of a finite binary32.
    pub scales: &'a [u8],
    /// Of every group the bits of a finite binary32, or nothing.
    pub offsets: &'a [u8],
    /// The index of each element's level.
    pub indices: &'a [u8],
}

impl GridModel<'_> {
    /// Bytes of an element.
    fn width(&self) -> usize {
        self.conversion.width_of_f32()
    }

    /// Replaces `out`, an element for each index, by predictions. All indices are of levels.
    pub fn predict(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.indices.len() * self.width(), "an element for each index");
        with_element!(self.width(), E => self.predict_as::<E>(out));
    }

    /// The bits of an element.
    #[inline(always)]
    pub fn element(conversion: Conversion, terms: Terms, level: u32) -> u32 {
        Self::converted(conversion, terms.apply(level))
    }

    #[inline(always)]
    fn converted(conversion: Conversion, x: u32) -> u32 {
        match conversion {
            Conversion::NarrowBf16 => bf16(x).into(),
            Conversion::NarrowF16 => f16(x).into(),
            _ => x,
        }
    }

    fn predict_as<E: Element>(&self, out: &mut [u8]) {
        let [scales, offsets] = [self.scales, self.offsets].map(|bytes| bytes.as_chunks::<4>().0);
        let terms = |group: usize| Terms {
            scale: u32::from_le_bytes(scales[group]),
            offset: (!offsets.is_empty()).then(|| u32::from_le_bytes(offsets[group])),
        };
        let out = E::all_mut(out);
        let n = self.indices.len();
        let ordinary = self.levels.iter().all(|&level| level << 1 == 0 || is_ordinary(level));
        let levels: Vec<f32> = self.levels.iter().map(|&level| f32::from_bits(level)).collect();
        // Replaces `to` by the predictions that all levels give in a group.
        let fill = |group: usize, to: &mut [E]| {
            let terms = terms(group);
            let element = |x: f32| E::cut(Self::converted(self.conversion, x.to_bits()).into());
            let scale = f32::from_bits(terms.scale);
            match terms.offset.map(f32::from_bits) {
                _ if !ordinary || !terms.are_ordinary() => {
                    let element = |level| E::cut(Self::element(self.conversion, terms, level).into());
                    zip(to, self.levels, |to, &level| *to = element(level));
                }
                None => zip(to, &levels, |to, &level| *to = element(scale * level)),
                Some(offset) => zip(to, &levels, |to, &level| *to = element(scale * level + offset)),
            }
        };
        let group_len = self.groups.columns.saturating_mul(self.groups.rows);
        let tables = self.groups.in_a_row().saturating_mul(levels.len().max(LEAST) as u64);
        if group_len < levels.len() as u64 || tables > n as u64 {
            for (group, range) in self.groups.of(n) {
                let terms = terms(group);
                zip(&mut out[range.clone()], &self.indices[range], |to, &index| {
                    let level = self.levels[usize::from(index)];
                    *to = E::cut(Self::element(self.conversion, terms, level).into()).to_bytes();
                });
            }
            return;
        }
        // A table for each group of a row of groups, made where the first of its elements is.
        let in_a_row = self.groups.in_a_row() as usize;
        // Of 256 entries where there is room: no index is beyond them.
        let size = if in_a_row * WHOLE <= n { WHOLE } else { levels.len() };
        let mut tables = vec![E::default(); in_a_row * size];
        let mut made = vec![usize::MAX; in_a_row];
        for (group, range) in self.groups.of(n) {
            let at = group % in_a_row;
            let table = &mut tables[at * size..][..size];
            if made[at] != group {
                made[at] = group;
                fill(group, table);
            }
            look_up::<E>(table, &self.indices[range.clone()], &mut out[range]);
        }
    }
}

/// Whether the product of this one and another such is neither 0 nor subnormal, and the sum of such a product and another such not
/// subnormal. They may be infinite.
fn is_ordinary(bits: u32) -> bool {
    (64..192).contains(&(bits >> 23 & 0xff))
}

/// Levels that every table has room for: with fewer, the numbers of the groups would take more memory than the tables.
const LEAST: usize = 16;
/// Entries of a table for any index.
const WHOLE: usize = 256;

#[inline(always)]
fn look_up<E: Element>(table: &[E], indices: &[u8], out: &mut [E::Bytes]) {
    match <&[E; WHOLE]>::try_from(table) {
        Ok(table) => zip(out, indices, |to, &index| *to = table[usize::from(index)].to_bytes()),
        Err(_) => zip(out, indices, |to, &index| *to = table[usize::from(index)].to_bytes()),
    }
}

/// The bits of the product of two finite binary32, to nearest, ties to even.
#[inline(always)]
pub(crate) fn product(a: u32, b: u32) -> u32 {
    let sign = (a ^ b) & 1 << 31;
    // The value is m · 2^(e − 150).
    let parts = |x: u32| {
        let (e, m) = (x >> 23 & 0xff, x & 0x7f_ffff);
        if e == 0 { (1, m) } else { (e, m | 1 << 23) }
    };
    let ((ea, ma), (eb, mb)) = (parts(a), parts(b));
    let m = u64::from(ma) * u64::from(mb);
    if m == 0 {
        return sign;
    }
    let top = 63 - m.leading_zeros() as i32;
    let e = top + (ea + eb) as i32 - 173;
    // 24 bits are kept, fewer of a subnormal result.
    let shift = top - 23 + (1 - e).max(0);
    let rounded = match shift {
        ..=0 => m << -shift,
        // Less than half a unit.
        50.. => 0,
        _ => (m + (1 << (shift - 1)) - 1 + (m >> shift & 1)) >> shift,
    };
    // A carry propagates into the exponent.
    let bits = ((e.max(1) as u64 - 1) << 23) + rounded;
    sign | bits.min(0x7f80_0000) as u32
}

/// The bits of the sum of a binary32 that may be infinite and a finite one, to nearest, ties to even.
#[inline(always)]
pub(crate) fn sum(a: u32, b: u32) -> u32 {
    if !is_finite(a) {
        return a;
    }
    // As a binary64 the sum is rounded at a place where rounding it again makes no difference (Figueroa, "When is double rounding
    // innocuous?", 1995), and nothing is subnormal.
    let sum = wide(a) + wide(b);
    if sum.abs() < f32::MIN_POSITIVE.into() {
        // Exact: a multiple of the smallest binary32.
        return u32::from(sum.is_sign_negative()) << 31 | (sum.abs() * SMALLEST_INVERSE) as u32;
    }
    (sum as f32).to_bits()
}

/// 2^149: one over the smallest positive binary32.
const SMALLEST_INVERSE: f64 = f64::from_bits((1023 + 149) << 52);

/// The value of a finite binary32.
#[inline(always)]
fn wide(bits: u32) -> f64 {
    let magnitude = match bits & !(1 << 31) {
        subnormal @ 0..0x80_0000 => f64::from(subnormal) / SMALLEST_INVERSE,
        normal => f64::from(f32::from_bits(normal)),
    };
    if bits >> 31 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;

    #[test]
    fn products_are_those_of_ieee_754() {
        let mut r = Random::new(5);
        let special = [0, 1, 2, 0x7f_ffff, 0x80_0000, 0x80_0001, 0x3f80_0000, 0x3f80_0001, 0x7f7f_ffff, 0x0400_0000];
        let finite = |x: u32| if x >> 23 & 0xff == 0xff { x & 0xff80_0000 ^ 0x4000_0000 } else { x };
        let check = |a: u32, b: u32| {
            let expected = (f32::from_bits(a) * f32::from_bits(b)).to_bits();
            assert_eq!(product(a, b), expected, "{a:#x} {b:#x}");
        };
        for a in special {
            for b in special {
                for sign in [0, 1 << 31] {
                    check(a, b | sign);
                }
            }
        }
        let (mut subnormal, mut infinite) = (0, 0);
        for i in 0..2_000_000 {
            let (a, mut b) = (finite(r.u64() as u32), finite(r.u64() as u32));
            if i % 2 == 0 {
                // The result is near the smallest ones.
                let e = (127i32 - (a >> 23 & 0xff) as i32 - 20 + r.below(40) as i32).clamp(0, 254);
                b = b & 0x807f_ffff | (e as u32) << 23;
            }
            check(a, b);
            let e = product(a, b) >> 23 & 0xff;
            subnormal += usize::from(e == 0);
            infinite += usize::from(e == 0xff);
        }
        assert!(subnormal > 1000 && infinite > 1000, "{subnormal} {infinite}");
    }

    #[test]
    fn sums_are_those_of_ieee_754() {
        let mut r = Random::new(7);
        let special = [0, 1, 2, 0x7f_ffff, 0x80_0000, 0x80_0001, 0x3f80_0000, 0x3f7f_ffff, 0x7f7f_ffff, 0x7f00_0000];
        let check = |a: u32, b: u32| {
            let expected = (f32::from_bits(a) + f32::from_bits(b)).to_bits();
            assert_eq!(sum(a, b), expected, "{a:#x} {b:#x}");
            expected
        };
        for a in special.into_iter().chain([0x7f80_0000]) {
            for b in special {
                for signs in 0..4 {
                    check(a | (signs & 1) << 31, b | (signs >> 1) << 31);
                }
            }
        }
        let (mut subnormal, mut zero, mut infinite) = (0, 0, 0);
        for i in 0..2_000_000 {
            let mut a = r.u64() as u32;
            a = if is_finite(a) { a } else { a & !(1 << 30) };
            let b = match i % 3 {
                // Near the negative, so that much cancels, and any of near exponents.
                0 => (a ^ 1 << 31).wrapping_add(r.below(5) as u32).wrapping_sub(2),
                1 => a ^ (r.u64() as u32 & 0x03ff_ffff),
                _ => r.u64() as u32,
            };
            match i % 8 {
                0 => a &= 0x80ff_ffff,
                1 => a = a & 0xfeff_ffff | 0x7e00_0000,
                _ => (),
            }
            let b = if i % 8 == 1 && i % 3 == 1 { a ^ b & 0x7f_ffff } else { b };
            if is_finite(b) {
                let magnitude = check(a, b) << 1;
                subnormal += usize::from(magnitude != 0 && magnitude >> 24 == 0);
                zero += usize::from(magnitude == 0);
                infinite += usize::from(magnitude >> 24 == 0xff);
            }
        }
        assert!(subnormal > 1000 && zero > 1000 && infinite > 1000, "{subnormal} {zero} {infinite}");
    }

    #[test]
    fn tables_give_what_terms_do() {
        let mut r = Random::new(6);
        for (row, rows, columns, n) in [(64, 1, 64, 1000), (100, 3, 30, 3000), (16, 1, 1, 100), (5000, 2, 2, 5000)] {
            for conversion in [Conversion::None, Conversion::NarrowBf16, Conversion::NarrowF16] {
                for levels in [1, 5, 256] {
                    let levels: Vec<u32> = (0..levels).map(|_| (r.u64() as u32 as f32 / 1e9 - 2.0).to_bits()).collect();
                    let groups = Groups { row, rows, columns, position: r.below(row * rows) };
                    let scales: Vec<u32> =
                        (0..groups.count(n as u64)).map(|_| (r.u64() as u32 as f32 / 1e10).to_bits()).collect();
                    let indices: Vec<u8> = (0..n).map(|_| r.below(levels.len() as u64) as u8).collect();
                    let offsets: Vec<u32> = scales.iter().map(|_| (r.u64() as u32 as f32 / -1e10).to_bits()).collect();
                    let bytes = |terms: &[u32]| terms.iter().flat_map(|t| t.to_le_bytes()).collect::<Vec<u8>>();
                    let (of_scales, of_offsets) = (bytes(&scales), bytes(&offsets));
                    let (has_offsets, levels, indices) = (r.below(2) == 1, &levels, &indices);
                    let (scales_bytes, offsets_bytes) =
                        (&of_scales[..], if has_offsets { &of_offsets[..] } else { &[] });
                    let m =
                        GridModel { conversion, levels, groups, scales: scales_bytes, offsets: offsets_bytes, indices };
                    let mut out = vec![0; n * m.width()];
                    m.predict(&mut out);
                    let mut expected = vec![];
                    for (group, range) in groups.of(n) {
                        let terms = Terms { scale: scales[group], offset: has_offsets.then(|| offsets[group]) };
                        for i in range {
                            let e = GridModel::element(conversion, terms, levels[usize::from(indices[i])]);
                            expected.extend_from_slice(&e.to_le_bytes()[..m.width()]);
                        }
                    }
                    assert_eq!(out, expected);
                }
            }
        }
    }

    #[test]
    fn groups_are_those_of_each_element() {
        for (row, rows, columns) in [(1, 1, 1), (7, 1, 7), (7, 1, 3), (10, 3, 4), (8, 2, 8), (5, 4, 1)] {
            for position in 0..row * rows {
                for n in 1..40usize {
                    let g = Groups { row, rows, columns, position };
                    let mut of = vec![];
                    for (group, range) in g.of(n) {
                        assert_eq!(range.start, of.len());
                        of.extend(range.map(|_| group as u64));
                    }
                    let group = |e: u64| {
                        let a = position + e;
                        a / (rows * row) * row.div_ceil(columns) + a % row / columns
                    };
                    assert_eq!(of, (0..n as u64).map(group).collect::<Vec<_>>(), "{g:?} {n}");
                    assert!(of.iter().all(|&group| group < g.count(n as u64)));
                }
            }
        }
    }
}
