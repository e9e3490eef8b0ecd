//! Conversions between float types (§3.7).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    None,
    F32ToBf16,
    Bf16ToF32,
    F32ToF16,
}

impl Conversion {
    pub(super) fn of(code: u8) -> Option<Self> {
        [Self::None, Self::F32ToBf16, Self::Bf16ToF32, Self::F32ToF16].get(usize::from(code)).copied()
    }

    /// Whether it gives elements of `width` bytes.
    pub(super) fn gives(self, width: usize) -> bool {
        match self {
            Self::None => true,
            Self::F32ToBf16 | Self::F32ToF16 => width == 2,
            Self::Bf16ToF32 => width == 4,
        }
    }

    /// Bytes of an element before conversion to `width` bytes.
    pub(super) fn takes(self, width: usize) -> usize {
        match self {
            Self::None => width,
            Self::F32ToBf16 | Self::F32ToF16 => 4,
            Self::Bf16ToF32 => 2,
        }
    }

    pub(super) fn convert(self, x: u64) -> u64 {
        match self {
            Self::None => x,
            Self::F32ToBf16 => ((x + 0x7fff + (x >> 16 & 1)) % (1 << 32)) >> 16,
            Self::Bf16ToF32 => x << 16,
            Self::F32ToF16 => f16_of(x as u32).into(),
        }
    }
}

/// The F16 nearest to an F32. Everything here is exact but the rounding.
fn f16_of(x: u32) -> u16 {
    let sign = (x >> 16) as u16 & 0x8000;
    let magnitude = f32::from_bits(x & 0x7fff_ffff);
    if magnitude.is_nan() {
        return sign | 0x7e00;
    }
    if magnitude >= 65536.0 {
        return sign | 0x7c00;
    }
    // The exponent of the first bit; below 2^-14 all F16 are multiples of 2^-24.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(-14);
    let multiples = (f64::from(magnitude) * 2f64.powi(10 - exponent)).round_ties_even() as u16;
    // From 2^10 to 2^11; the first bit adds 1 to the exponent. Fewer when the result is subnormal.
    sign | ((((exponent + 14) as u16) << 10) + multiples)
}
