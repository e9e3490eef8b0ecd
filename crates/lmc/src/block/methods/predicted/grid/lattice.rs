//! The values of a float type, and the intervals that are rounded to them.

use lmc_kernels::predict::Conversion;

/// The type of a column's elements, as a conversion from F32.
#[derive(Clone, Copy)]
pub(super) struct Lattice(pub(super) Conversion);

impl Lattice {
    /// Bits of an element without its sign.
    pub(super) fn magnitude(self, bits: u32) -> u32 {
        bits & (u32::MAX >> 1 >> (32 - self.bits()))
    }

    pub(super) fn is_negative(self, bits: u32) -> bool {
        bits >> (self.bits() - 1) & 1 == 1
    }

    fn bits(self) -> u32 {
        8 * self.0.width_of_f32() as u32
    }

    /// Whether a magnitude and the next larger one are finite.
    pub(super) fn is_inside(self, magnitude: u32) -> bool {
        magnitude + 1
            < match self.0 {
                Conversion::NarrowBf16 => 0x7f80,
                Conversion::NarrowF16 => 0x7c00,
                _ => 0x7f80_0000,
            }
    }

    /// The value of a magnitude.
    #[inline(always)]
    pub(super) fn value(self, magnitude: u32) -> f32 {
        match self.0 {
            Conversion::NarrowBf16 => f32::from_bits(magnitude << 16),
            Conversion::NarrowF16 => {
                let (e, m) = (magnitude >> 10, magnitude & 0x3ff);
                if e == 0 { m as f32 / (1 << 24) as f32 } else { f32::from_bits(((e + 112) << 23) | m << 13) }
            }
            _ => f32::from_bits(magnitude),
        }
    }

    /// The numbers that are rounded to a magnitude other than 0; those at the edges may be rounded to its neighbours.
    #[inline(always)]
    pub(super) fn interval(self, magnitude: u32) -> (f64, f64) {
        let v = |magnitude| f64::from(self.value(magnitude));
        let (below, at, above) = (v(magnitude - 1), v(magnitude), v(magnitude + 1));
        ((below + at) / 2.0, (at + above) / 2.0)
    }

    /// The value of an element.
    #[inline(always)]
    pub(super) fn signed_value(self, bits: u32) -> f32 {
        let value = self.value(self.magnitude(bits));
        if self.is_negative(bits) { -value } else { value }
    }

    /// [`Self::interval`] of an element that has neighbours, 0 among them.
    pub(super) fn signed_interval(self, bits: u32) -> Option<(f64, f64)> {
        let magnitude = self.magnitude(bits);
        if !self.is_inside(magnitude) {
            return None;
        }
        if magnitude == 0 {
            let least = f64::from(self.value(1)) / 2.0;
            return Some((-least, least));
        }
        let (lo, hi) = self.interval(magnitude);
        Some(if self.is_negative(bits) { (-hi, -lo) } else { (lo, hi) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_kernels::predict::convert;

    #[test]
    fn what_is_inside_an_interval_is_rounded_to_its_value() {
        for conversion in [Conversion::NarrowBf16, Conversion::NarrowF16] {
            let l = Lattice(conversion);
            for m in (0x80..0x7bf0).step_by(7) {
                assert!(l.is_inside(m));
                let (lo, hi) = l.interval(m);
                for x in [lo * (1.0 + 1e-6), l.value(m).into(), hi * (1.0 - 1e-6)] {
                    let mut out = vec![];
                    convert(conversion, &(x as f32).to_le_bytes(), &mut out);
                    assert_eq!(u16::from_le_bytes([out[0], out[1]]), m as u16, "{x:e}");
                }
            }
        }
        assert!(!Lattice(Conversion::NarrowF16).is_inside(0x7bff));
        assert_eq!(Lattice(Conversion::None).value(1.5f32.to_bits()), 1.5);
        assert!(Lattice(Conversion::NarrowF16).is_negative(0x8001));
        assert_eq!(Lattice(Conversion::NarrowF16).magnitude(0x8001), 1);
        assert!(Lattice(Conversion::None).is_negative(1 << 31));
    }
}
