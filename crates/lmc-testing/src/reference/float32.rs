//! Operations of binary32 (§3.8 to §3.10) on its bits. They are computed in integers: a process may flush subnormal floats
//! to zero.

pub(super) const SIGN: u64 = 1 << 31;
const INFINITY: u64 = 0x7f80_0000;
/// Every result that is a NaN.
pub(super) const NAN: u64 = 0x7fc0_0000;

/// A finite number: m · 2^e, or −m · 2^e.
struct Exact {
    is_negative: bool,
    m: u64,
    e: i32,
}

impl Exact {
    fn of(x: u64) -> Self {
        let (exponent, fraction) = ((x >> 23 & 0xff) as i32, x & 0x7f_ffff);
        let (m, e) = if exponent == 0 { (fraction, -149) } else { (fraction | 1 << 23, exponent - 150) };
        Self { is_negative: x >> 31 == 1, m, e }
    }
}

/// Whether the bits are those of a finite number.
pub(super) fn is_finite(x: u64) -> bool {
    x & INFINITY != INFINITY
}

pub(super) fn is_nan(x: u64) -> bool {
    x & !SIGN > INFINITY
}

pub(super) fn is_zero(x: u64) -> bool {
    x & !SIGN == 0
}

/// The number, or infinity.
pub(super) fn number(x: u64) -> f64 {
    let Exact { is_negative, m, e } = Exact::of(x);
    let magnitude = if is_finite(x) { m as f64 * 2f64.powi(e) } else { f64::INFINITY };
    if is_negative { -magnitude } else { magnitude }
}

/// x · y.
pub(super) fn product(x: u64, y: u64) -> u64 {
    let sign = (x ^ y) & SIGN;
    if is_finite(x) && is_finite(y) {
        let (x, y) = (Exact::of(x), Exact::of(y));
        return nearest(sign != 0, u128::from(x.m * y.m), x.e + y.e);
    }
    let has_none = is_nan(x) || is_nan(y) || is_zero(x) || is_zero(y);
    if has_none { NAN } else { sign | INFINITY }
}

/// x ÷ y.
pub(super) fn quotient(x: u64, y: u64) -> u64 {
    let sign = (x ^ y) & SIGN;
    if is_nan(x) || is_nan(y) || is_zero(x) && is_zero(y) || !is_finite(x) && !is_finite(y) {
        return NAN;
    }
    if !is_finite(x) || is_zero(y) {
        return sign | INFINITY;
    }
    if !is_finite(y) {
        return sign;
    }
    let (x, y) = (Exact::of(x), Exact::of(y));
    let (dividend, divisor) = (u128::from(x.m) << 64, u128::from(y.m));
    let is_inexact = dividend % divisor != 0;
    nearest(sign != 0, (dividend / divisor) << 1 | u128::from(is_inexact), x.e - y.e - 65)
}

/// The square root.
pub(super) fn root(x: u64) -> u64 {
    if is_zero(x) || x == INFINITY {
        return x;
    }
    if is_nan(x) || x & SIGN != 0 {
        return NAN;
    }
    let Exact { m, e, .. } = Exact::of(x);
    // An even exponent.
    let square = u128::from(m) << (64 + e.rem_euclid(2));
    let root = square.isqrt();
    let is_inexact = root * root != square;
    nearest(false, root << 1 | u128::from(is_inexact), e.div_euclid(2) - 33)
}

/// x − y.
pub(super) fn difference(x: u64, y: u64) -> u64 {
    sum(x, y ^ SIGN)
}

/// x + y.
pub(super) fn sum(x: u64, y: u64) -> u64 {
    if !is_finite(x) || !is_finite(y) {
        let are_opposite = x ^ y == SIGN && !is_finite(x);
        let has_none = is_nan(x) || is_nan(y) || are_opposite;
        return if has_none { NAN } else { [x, y][usize::from(is_finite(x))] };
    }
    let (x, y) = (Exact::of(x), Exact::of(y));
    let (high, mut low) = if x.e >= y.e { (x, y) } else { (y, x) };
    // So far below the last bit of the sum, it only matters whether there is anything.
    if high.e - low.e > 64 {
        (low.m, low.e) = (low.m.min(1), high.e - 64);
    }
    let signed = |of: &Exact, shift| if of.is_negative { -1 } else { 1 } * (i128::from(of.m) << shift);
    let exact = signed(&high, high.e - low.e) + signed(&low, 0);
    // Zeros of both signs, and opposite numbers, give 0.
    let is_negative = if exact == 0 { high.is_negative && low.is_negative } else { exact < 0 };
    nearest(is_negative, exact.unsigned_abs(), low.e)
}

/// The binary32 nearest to m · 2^e, ties to even, where m < 2^100.
pub(super) fn nearest(is_negative: bool, m: u128, e: i32) -> u64 {
    let sign = if is_negative { SIGN } else { 0 };
    if m == 0 {
        return sign;
    }
    // The exponent of the last of 24 bits, at least that of subnormal numbers.
    let last = (e + m.ilog2() as i32 - 23).max(-149);
    let m = m << (e - last).max(0);
    let one = 1 << (last - e).clamp(0, 101);
    let (multiples, rest) = (m / one, m % one);
    let is_up = 2 * rest > one || 2 * rest == one && multiples % 2 == 1;
    // The first bit of a normal number adds 1 to the exponent.
    let magnitude = (((last + 149) as u64) << 23) + multiples as u64 + u64::from(is_up);
    sign | magnitude.min(INFINITY)
}
