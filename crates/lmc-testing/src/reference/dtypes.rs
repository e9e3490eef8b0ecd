//! Elements of dtypes as binary32, and binary32 rounded to dtypes (§3.10). A binary32 is its bits.

use super::conversion::Conversion;
use super::float32::{NAN, SIGN, is_nan, nearest, number};
use std::sync::LazyLock;

// Codes of §4.
pub(super) const I8: u8 = 3;
pub(super) const F16: u8 = 8;
pub(super) const BF16: u8 = 9;
pub(super) const F32: u8 = 10;
pub(super) const F8_E4M3: u8 = 13;
pub(super) const F8_E5M2: u8 = 14;
pub(super) const F8_E8M0: u8 = 17;
pub(super) const F4: u8 = 18;

/// Bits of an element, if binary32 are rounded to the dtype.
pub(super) fn bits_of(dtype: u8) -> Option<usize> {
    match dtype {
        F4 => Some(4),
        I8 | F8_E4M3 | F8_E5M2 | F8_E8M0 => Some(8),
        F16 | BF16 => Some(16),
        F32 => Some(32),
        _ => None,
    }
}

/// The value of an element.
///
/// # Panics
/// When the dtype has no [`bits_of`].
pub(super) fn value(dtype: u8, x: u64) -> u64 {
    match dtype {
        I8 => nearest((x as i8) < 0, (x as i8).unsigned_abs().into(), 0),
        F16 if x >> 10 & 0x1f == 0x1f => (x >> 15) << 31 | 0x7f80_0000 | (x & 0x3ff) << 13,
        F16 => small(x, 5, 10),
        BF16 => x << 16,
        F32 => x,
        F8_E4M3 if x & 0x7f == 0x7f => NAN,
        F8_E4M3 => small(x, 4, 3),
        F8_E5M2 if x & 0x7f > 0x7c => NAN,
        F8_E5M2 if x & 0x7f == 0x7c => (x >> 7) << 31 | 0x7f80_0000,
        F8_E5M2 => small(x, 5, 2),
        F8_E8M0 if x == 0xff => NAN,
        F8_E8M0 => nearest(false, 1, x as i32 - 127),
        F4 => small(x, 2, 1),
        _ => panic!("dtype {dtype} has no values"),
    }
}

/// The value of a float with a sign, so many bits of exponent, with the bias in the middle, and so many of mantissa.
fn small(x: u64, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    let mantissa = x & ((1 << mantissa_bits) - 1);
    let exponent = x >> mantissa_bits & ((1 << exponent_bits) - 1);
    let is_negative = x >> (mantissa_bits + exponent_bits) == 1;
    let is_normal = exponent > 0;
    let m = mantissa | u64::from(is_normal) << mantissa_bits;
    // Subnormal numbers have the exponent of the smallest normal ones.
    let e = exponent.max(1) as i32 - ((1 << (exponent_bits - 1)) - 1) - mantissa_bits as i32;
    nearest(is_negative, m.into(), e)
}

/// The element that a binary32 is rounded to.
///
/// # Panics
/// When the dtype has no [`bits_of`].
pub(super) fn rounded(dtype: u8, y: u64) -> u64 {
    static OF_E4M3: LazyLock<Vec<f64>> = LazyLock::new(|| values(F8_E4M3, 0x7e));
    static OF_E5M2: LazyLock<Vec<f64>> = LazyLock::new(|| values(F8_E5M2, 0x7b));
    if is_nan(y) {
        return match dtype {
            F16 => 0x7e00,
            BF16 => 0x7fc0,
            F32 => NAN,
            F8_E4M3 | F8_E5M2 => 0x7f,
            F8_E8M0 => 0xff,
            F4 => 7,
            _ => 0,
        };
    }
    let signed = |code: u64, sign: u64| if y & SIGN == 0 { code } else { code | sign };
    match dtype {
        I8 => number(y).round_ties_even().clamp(-128.0, 127.0) as i8 as u8 as u64,
        F16 => Conversion::F32ToF16.convert(y),
        BF16 => Conversion::F32ToBf16.convert(y),
        F32 => y,
        F8_E4M3 => signed(code(&OF_E4M3, y, Tie::Even), 0x80),
        F8_E5M2 => signed(code(&OF_E5M2, y, Tie::Even), 0x80),
        F8_E8M0 => y >> 23 & 0xff,
        F4 => signed(f4_magnitude(y, Tie::Even), 8),
        _ => panic!("nothing is rounded to dtype {dtype}"),
    }
}

/// Which of two values is taken where both are as near.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// The one whose lowest bit is 0.
    Even,
    /// The one with the smaller magnitude.
    Down,
}

/// The three low bits of the F4 that a number is rounded to.
pub(super) fn f4_magnitude(y: u64, tie: Tie) -> u64 {
    static OF_F4: LazyLock<Vec<f64>> = LazyLock::new(|| values(F4, 7));
    code(&OF_F4, y, tie)
}

/// The values of codes up to the largest one.
fn values(dtype: u8, largest: u64) -> Vec<f64> {
    (0..=largest).map(|code| number(value(dtype, code))).collect()
}

/// The number of the value that is nearest to the magnitude of a number.
fn code(values: &[f64], y: u64, tie: Tie) -> u64 {
    let y = number(y & !SIGN);
    // Exact: they have a few bits.
    let middle = |two: &[f64]| (two[0] + two[1]) / 2.0;
    let code = values.windows(2).take_while(|two| y > middle(two)).count();
    let is_tie = values.get(code..code + 2).is_some_and(|two| y == middle(two));
    let is_up = is_tie && tie == Tie::Even && code % 2 == 1;
    (code + usize::from(is_up)) as u64
}
