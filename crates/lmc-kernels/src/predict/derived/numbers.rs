//! Numbers in other precisions: to binary32, and rounded from it, in loops that compilers turn into vectors.

use crate::inline::zip;
use crate::predict::halves::{bf16, f16};
use lmc_layout::dtype::Dtype;

/// A type of numbers that derived tensors are computed from, or have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// 8-bit integers.
    I8,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// 8-bit floats, 4 exponent bits.
    E4m3,
    /// 8-bit floats, 5 exponent bits.
    E5m2,
    /// 8-bit exponents.
    E8m0,
    /// 4-bit floats, two a byte.
    F4,
}

impl Number {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::I8, Self::F16, Self::Bf16, Self::F32, Self::E4m3, Self::E5m2, Self::E8m0, Self::F4];
    /// Those that others are computed from.
    pub const FLOATS: [Self; 3] = [Self::F16, Self::Bf16, Self::F32];

    /// Its dtype.
    pub const fn dtype(self) -> Dtype {
        match self {
            Number::I8 => Dtype::I8,
            Number::F16 => Dtype::F16,
            Number::Bf16 => Dtype::Bf16,
            Number::F32 => Dtype::F32,
            Number::E4m3 => Dtype::F8E4M3,
            Number::E5m2 => Dtype::F8E5M2,
            Number::E8m0 => Dtype::F8E8M0,
            Number::F4 => Dtype::F4,
        }
    }

    /// Its code in the format: that of its dtype.
    pub const fn code(self) -> u8 {
        self.dtype().code()
    }

    /// The numbers of a dtype.
    pub fn of(dtype: Dtype) -> Option<Self> {
        Self::ALL.into_iter().find(|number| number.dtype() == dtype)
    }

    /// Bytes that hold one; half of it for F4.
    pub const fn width(self) -> usize {
        self.dtype().coding_width()
    }
}

/// Numbers that are converted at once.
pub(super) const CHUNK: usize = 512;
/// What leaves the nearest integer, ties to even, in the lowest bits of a sum.
pub(super) const EVEN: f32 = 12_582_912.0;

/// Replaces `out` by the values of as many numbers.
#[inline(always)]
pub(super) fn widen(from: Number, bytes: &[u8], out: &mut [f32]) {
    match from {
        Number::F16 => zip(out, bytes.as_chunks::<2>().0, |to, x| *to = f32_of_f16(u16::from_le_bytes(*x))),
        Number::Bf16 => zip(out, bytes.as_chunks::<2>().0, |to, x| {
            *to = f32::from_bits(u32::from(u16::from_le_bytes(*x)) << 16);
        }),
        Number::F32 => zip(out, bytes.as_chunks::<4>().0, |to, x| *to = f32::from_le_bytes(*x)),
        Number::E4m3 => zip(out, bytes, |to, x| *to = f32_of_e4m3(*x)),
        Number::E8m0 => zip(out, bytes, |to, x| *to = f32_of_e8m0(*x)),
        Number::I8 | Number::E5m2 | Number::F4 => unreachable!("nothing is computed from {from:?}"),
    }
}

/// Rounds numbers to those of another type, in place.
#[inline(always)]
pub(super) fn round(to: Number, numbers: &mut [f32]) {
    match to {
        Number::F16 => each(numbers, |y| *y = f32_of_f16(f16_of(*y))),
        Number::Bf16 => each(numbers, |y| *y = f32::from_bits(u32::from(bf16_of(*y)) << 16)),
        _ => {}
    }
}

/// Replaces `out`, `to.width()` bytes for each number (one for F4), by the rounded numbers.
#[inline(always)]
pub(super) fn narrow(to: Number, numbers: &[f32], out: &mut [u8]) {
    match to {
        Number::I8 => zip(out, numbers, |to, y| *to = i8_of(*y)),
        Number::F16 => zip(out.as_chunks_mut::<2>().0, numbers, |to, y| *to = f16_of(*y).to_le_bytes()),
        Number::Bf16 => zip(out.as_chunks_mut::<2>().0, numbers, |to, y| *to = bf16_of(*y).to_le_bytes()),
        Number::F32 => zip(out.as_chunks_mut::<4>().0, numbers, |to, y| *to = canonical(*y).to_le_bytes()),
        Number::E4m3 => zip(out, numbers, |to, y| *to = e4m3_of(*y)),
        Number::E5m2 => zip(out, numbers, |to, y| *to = e5m2_of(*y)),
        Number::E8m0 => zip(out, numbers, |to, y| *to = (canonical(*y) >> 23) as u8),
        Number::F4 => zip(out, numbers, |to, y| *to = f4_of(*y)),
    }
}

#[inline(always)]
fn each(numbers: &mut [f32], mut f: impl FnMut(&mut f32)) {
    let mut i = 0;
    while i < numbers.len() {
        f(&mut numbers[i]);
        i += 1;
    }
}

/// The bits of a number; of all NaNs one.
#[inline(always)]
fn canonical(y: f32) -> u32 {
    if y.is_nan() { 0x7fc0_0000 } else { y.to_bits() }
}

#[inline(always)]
fn bf16_of(y: f32) -> u16 {
    bf16(canonical(y))
}

#[inline(always)]
pub(super) fn f16_of(y: f32) -> u16 {
    f16(canonical(y))
}

#[inline(always)]
fn f32_of_f16(x: u16) -> f32 {
    float(u32::from(x & 0x7fff) << 13, x > 0x7fff, 0x7c00 << 13, 112)
}

#[inline(always)]
fn f32_of_e4m3(x: u8) -> f32 {
    float(u32::from(x & 0x7f) << 20, x > 0x7f, 0x7f << 20, 120)
}

/// The number whose bits without the sign are `bits` in the place of those of a binary32, with an exponent that is too small by
/// `bias`; infinite, or a NaN, from `special` on.
#[inline(always)]
fn float(bits: u32, is_negative: bool, special: u32, bias: u32) -> f32 {
    // A power of two: exact, also for subnormal numbers.
    let scaled = (f32::from_bits(bits) * f32::from_bits((127 + bias) << 23)).to_bits();
    // Whether it is the least special number decides between infinity and NaN, which E4M3 has in its place.
    let magnitude = match bits >= special {
        true if bias == 120 => 0x7fc0_0000,
        true => bits | 0x7f80_0000,
        false => scaled,
    };
    f32::from_bits(magnitude | u32::from(is_negative) << 31)
}

#[inline(always)]
fn f32_of_e8m0(x: u8) -> f32 {
    f32::from_bits(match x {
        0 => 0x0040_0000,
        255 => 0x7fc0_0000,
        _ => u32::from(x) << 23,
    })
}

/// A float of 8 bits with `M` bits of mantissa and this largest number, whose exponents are smaller by `BIAS` than those of a binary32.
#[inline(always)]
fn float8<const M: u32, const BIAS: u32>(y: f32, largest: f32) -> u8 {
    let bits = y.to_bits();
    let (sign, magnitude) = ((bits >> 24 & 0x80) as u8, bits & 0x7fff_ffff);
    let m = magnitude.min(largest.to_bits());
    let shift = 23 - M;
    // The least normal number, and what added to a subnormal one leaves the multiple of the least number in the lowest bits.
    let (normal, addend) = ((BIAS + 1) << 23, f32::from_bits((BIAS + 1 + shift) << 23));
    let of_normal = (m.wrapping_sub(BIAS << 23).wrapping_add((1 << (shift - 1)) - 1 + (m >> shift & 1))) >> shift;
    let of_subnormal = (f32::from_bits(m.min(normal)) + addend).to_bits().wrapping_sub(addend.to_bits());
    let code = if m < normal { of_subnormal } else { of_normal } as u8;
    if magnitude > 0x7f80_0000 { 0x7f } else { sign | code }
}

#[inline(always)]
fn e4m3_of(y: f32) -> u8 {
    float8::<3, 120>(y, 448.0)
}

#[inline(always)]
fn e5m2_of(y: f32) -> u8 {
    float8::<2, 112>(y, 57344.0)
}

#[inline(always)]
fn i8_of(y: f32) -> u8 {
    let y = if y.is_nan() { 0.0 } else { y };
    let y = if y < -128.0 { -128.0 } else { y };
    let y = if y > 127.0 { 127.0 } else { y };
    (y + EVEN).to_bits() as u8
}

#[inline(always)]
fn f4_of(y: f32) -> u8 {
    let m = y.abs();
    let above = |is: bool| u8::from(is);
    let code = above(m > 0.25)
        + above(m >= 0.75)
        + above(m > 1.25)
        + above(m >= 1.75)
        + above(m > 2.5)
        + above(m >= 3.5)
        + above(m > 5.0);
    if y.is_nan() { 7 } else { code | (y.to_bits() >> 28 & 8) as u8 }
}

/// [`f4_of`] with ties to the smaller magnitude, and 0 without a sign.
#[inline(always)]
pub(super) fn f4_down(y: f32) -> u8 {
    let m = y.abs();
    let above = |is: bool| u8::from(is);
    let code = above(m > 0.25)
        + above(m > 0.75)
        + above(m > 1.25)
        + above(m > 1.75)
        + above(m > 2.5)
        + above(m > 3.5)
        + above(m > 5.0);
    if code == 0 { 0 } else { code | (y.to_bits() >> 28 & 8) as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the codes 0 … of a float with `m` bits of mantissa and this bias, in order.
    fn values(m: i32, bias: i32, count: u32) -> Vec<f64> {
        let value = |code: u32| {
            let (e, f) = ((code >> m) as i32, f64::from(code & ((1 << m) - 1)) / f64::from(1 << m));
            if e == 0 { f * 2f64.powi(1 - bias) } else { (1.0 + f) * 2f64.powi(e - bias) }
        };
        (0..count).map(value).collect()
    }

    /// Checks a rounding at every value, half-way between two, and beside that.
    fn check(values: &[f64], of: impl Fn(f32) -> u8, sign: u8, nan: u8) {
        for (code, pair) in (0u8..).zip(values.windows(2)) {
            let [low, high] = [pair[0], pair[1]];
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(f64::from(middle), (low + high) / 2.0);
            let even = code + code % 2;
            let cases = [(low as f32, code), (middle, even), (middle.next_down(), code), (middle.next_up(), code + 1)];
            for (y, expected) in cases {
                assert_eq!((of(y), of(-y)), (expected, expected | sign), "{y:e}");
            }
        }
        let last = values.len() as u8 - 1;
        for y in [values[values.len() - 1] as f32, 1e6, f32::MAX, f32::INFINITY] {
            assert_eq!((of(y), of(-y)), (last, last | sign), "{y:e}");
        }
        assert_eq!((of(f32::NAN), of(f32::from_bits(0xff80_0001)), of(-0.0)), (nan, nan, sign));
    }

    #[test]
    fn small_floats_are_rounded_to_even() {
        check(&values(3, 7, 127), e4m3_of, 0x80, 0x7f);
        check(&values(2, 15, 124), e5m2_of, 0x80, 0x7f);
        check(&[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], f4_of, 8, 7);
    }

    #[test]
    fn integers_are_rounded_to_even_and_saturate() {
        let cases = [(0.5, 0), (1.5, 2), (-0.5, 0), (-2.5, -2), (126.5, 126), (127.5, 127), (-128.4, -128), (3.2, 3)];
        for (y, expected) in cases.into_iter().chain([(1e30, 127), (f32::NEG_INFINITY, -128), (f32::NAN, 0)]) {
            assert_eq!(i8_of(y) as i8, expected, "{y}");
        }
    }

    #[test]
    fn every_number_is_widened_and_back() {
        for x in 0..=u16::MAX {
            let y = f32_of_f16(x);
            let is_nan = x & 0x7fff > 0x7c00;
            assert_eq!((y.is_nan(), f16_of(y)), (is_nan, if is_nan { 0x7e00 } else { x }), "{x:#x}");
        }
        for x in 0..=u8::MAX {
            let y = f32_of_e4m3(x);
            assert_eq!(e4m3_of(y), if x & 0x7f == 0x7f { 0x7f } else { x });
            let y = f32_of_e8m0(x);
            assert_eq!(y.is_nan(), x == 255);
            assert!(x == 255 || f64::from(y) == 2f64.powi(i32::from(x) - 127));
        }
    }

    #[test]
    fn ties_of_blocks_go_down() {
        let cases = [(0.25, 0), (-0.25, 0), (-0.26, 9), (0.75, 1), (-1.75, 11), (5.0, 6), (-9.0, 15), (-0.0, 0)];
        for (y, expected) in cases {
            assert_eq!(f4_down(y), expected, "{y}");
        }
    }
}
