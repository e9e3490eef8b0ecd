//! Code lengths in fixed point. Integers only: the choices of the encoder must not depend on a machine's `log2`.

/// Fixed-point unit: 1/256 bit.
pub const BIT: u64 = 256;

const fn log2_table() -> [u16; 257] {
    // log2(1 + i/256) in 1/65536 by squaring, sixteen fractional bits.
    let mut t = [0u16; 257];
    let mut i = 0;
    while i < 256 {
        let mut x: u64 = ((256 + i) as u64) << 22; // 1.0 is 2^30
        let mut f: u64 = 0;
        let mut b = 0;
        while b < 16 {
            x = (x * x) >> 30;
            f <<= 1;
            if x >= 1 << 31 {
                f |= 1;
                x >>= 1;
            }
            b += 1;
        }
        t[i] = ((f + 128) >> 8) as u16;
        i += 1;
    }
    t[256] = 256;
    t
}

static LOG2: [u16; 257] = log2_table();

/// log2(n) in 1/256 bit, for n ≥ 1; linear between the table's points.
#[inline(always)]
pub fn log2(n: u32) -> u32 {
    debug_assert!(n > 0);
    let zeros = n.leading_zeros();
    (31 - zeros) * 256 + u32::from(LOG2[(n << zeros >> 23 & 255) as usize])
}

/// Cost of saying for each of `a` + `b` things which of two kinds it is, in 1/256 bit; both numbers are at least 1.
pub fn of_two(a: u32, b: u32) -> u64 {
    let whole = log2(a + b);
    u64::from(a) * u64::from(whole - log2(a)) + u64::from(b) * u64::from(whole - log2(b))
}

/// Entropy of a histogram in 1/256 bit.
pub fn entropy(h: &[u32]) -> u64 {
    let total: u32 = h.iter().sum();
    if total == 0 {
        return 0;
    }
    let all = log2(total);
    let mut bits = 0;
    for &c in h {
        if c > 0 {
            bits += u64::from(c) * u64::from(all - log2(c));
        }
    }
    bits
}

/// Cost of a histogram in 1/256 bit with a table of 2^`slot_bits` slots: its entropy, but a symbol too rare for a slot
/// costs an escape.
pub fn estimate(hist: &[u32], slot_bits: u32) -> u64 {
    let total: u32 = hist.iter().sum();
    if total == 0 {
        return 0;
    }
    let lt = log2(total);
    let (rare, literal) = (u64::from(slot_bits + 2) * BIT, u64::from(slot_bits + 8) * BIT);
    let mut bits = 0u64;
    for &c in hist.iter().filter(|&&c| c > 0) {
        let l = u64::from(lt - log2(c).min(lt));
        bits += u64::from(c) * if l > rare { literal } else { l };
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log2_is_close() {
        for n in (1..100_000u32).chain([u32::MAX, 1 << 31, (1 << 31) - 1]) {
            let exact = f64::from(n).log2() * 256.0;
            assert!((f64::from(log2(n)) - exact).abs() < 2.0, "{n}");
        }
    }
}
