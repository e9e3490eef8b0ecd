//! Rounding to floats of 16 bits, in integers: the same on every machine (`docs/format.md` §3.7).

#[inline(always)]
pub(in crate::predict) fn bf16(x: u32) -> u16 {
    (x.wrapping_add(0x7fff + (x >> 16 & 1)) >> 16) as u16
}

#[inline(always)]
pub(in crate::predict) fn f16(x: u32) -> u16 {
    let sign = (x >> 16 & 0x8000) as u16;
    let m = x & 0x7fff_ffff;
    let half = |v: u32, shift: u32| {
        // To nearest, ties to even: half a unit less one, and one more where the result is odd.
        (v + (1 << (shift - 1)) - 1 + (v >> shift & 1)) >> shift
    };
    let magnitude = match m {
        0x7f80_0001.. => 0x7e00,
        // At least 65520, half a unit above the largest.
        0x477f_f000.. => 0x7c00,
        // Normal results: the exponent's bias goes from 127 to 15.
        0x3880_0000.. => half(m - (112 << 23), 13),
        // Subnormal results, in units of 2^-24; below half of one, nothing.
        0x3300_0000.. => {
            let exponent = m >> 23;
            half(m & 0x7f_ffff | 0x80_0000, 126 - exponent)
        }
        _ => 0,
    };
    sign | magnitude as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f16_value(h: u16) -> f64 {
        let (e, m) = (i32::from(h >> 10 & 31), f64::from(h & 1023));
        if e == 0 { m * 2f64.powi(-24) } else { (1.0 + m / 1024.0) * 2f64.powi(e - 15) }
    }

    #[test]
    fn f16_is_the_nearest_one() {
        // Every finite value, the number half-way to the next one, and the neighbours of that number.
        for h in 0..0x7c00u16 {
            let (v, next) = (f16_value(h), if h == 0x7bff { 65536.0 } else { f16_value(h + 1) });
            assert_eq!(f16((v as f32).to_bits()), h);
            assert_eq!(f16((-(v as f32)).to_bits()), h | 0x8000);
            let middle = ((v + next) / 2.0) as f32;
            assert_eq!(f16(middle.to_bits()), if h % 2 == 0 { h } else { h + 1 }, "{h:#x}");
            assert_eq!(f16(middle.next_down().to_bits()), h, "{h:#x}");
            assert_eq!(f16(middle.next_up().to_bits()), h + 1, "{h:#x}");
        }
        assert_eq!(f16(f32::INFINITY.to_bits()), 0x7c00);
        assert_eq!(f16(0xff80_0001), 0xfe00);
        assert_eq!(f16(f32::MAX.to_bits()), 0x7c00);
        assert_eq!(f16(1), 0);
    }

    #[test]
    fn bf16_is_rounded_to_even() {
        assert_eq!([0x3f80_7fff, 0x3f80_8000, 0x3f80_8001, 0x3f81_8000].map(bf16), [0x3f80, 0x3f80, 0x3f81, 0x3f82]);
        assert_eq!(bf16(0xffff_ffff), 0);
    }
}
