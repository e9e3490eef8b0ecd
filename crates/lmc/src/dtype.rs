//! Element types: codes of the format, names of safetensors, and the map each one starts from.

use crate::map::Map;
use crate::parse_error::ParseNameError;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $bits:literal, $width:literal, $map:ident;)*) => {
        /// The type of a tensor's elements, as safetensors names them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Dtype { $($(#[$doc])* $variant = $code),* }

        impl Dtype {
            /// Every dtype, in the order of their codes.
            pub const ALL: &[Dtype] = &[$(Dtype::$variant),*];
            /// The code that stands for this dtype in a file (`docs/format.md` §4).
            pub const fn code(self) -> u8 { self as u8 }
            /// The dtype of a code of the format.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Dtype::$variant),)* _ => None }
            }
            /// The name that safetensors uses.
            pub const fn name(self) -> &'static str { match self { $(Dtype::$variant => $name),* } }
            /// Bits of one element, as a shape counts them.
            pub const fn bits(self) -> u32 { match self { $(Dtype::$variant => $bits),* } }
            /// Bytes of the unit that the codec works on (1, 2, 4 or 8); half of an element for `C64`.
            pub const fn coding_width(self) -> usize { match self { $(Dtype::$variant => $width),* } }
            /// The dtype that safetensors calls by this name.
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Dtype::$variant),)* _ => None }
            }
            pub(crate) const fn map(self) -> Map { match self { $(Dtype::$variant => Map::$map),* } }
        }
    };
}

dtypes! {
    /// Booleans, a byte each.
    Bool = 1, "BOOL", 8, 1, Identity;
    /// Unsigned 8-bit integers.
    U8 = 2, "U8", 8, 1, Identity;
    /// Signed 8-bit integers.
    I8 = 3, "I8", 8, 1, Zigzag;
    /// Unsigned 16-bit integers.
    U16 = 4, "U16", 16, 2, Identity;
    /// Signed 16-bit integers.
    I16 = 5, "I16", 16, 2, Zigzag;
    /// Unsigned 32-bit integers.
    U32 = 6, "U32", 32, 4, Identity;
    /// Signed 32-bit integers.
    I32 = 7, "I32", 32, 4, Zigzag;
    /// IEEE 754 binary16.
    F16 = 8, "F16", 16, 2, Rotate;
    /// bfloat16.
    Bf16 = 9, "BF16", 16, 2, Rotate;
    /// IEEE 754 binary32.
    F32 = 10, "F32", 32, 4, Rotate;
    /// Unsigned 64-bit integers.
    U64 = 11, "U64", 64, 8, Identity;
    /// Signed 64-bit integers.
    I64 = 12, "I64", 64, 8, Zigzag;
    /// 8-bit float, 4 exponent bits.
    F8E4M3 = 13, "F8_E4M3", 8, 1, Rotate;
    /// 8-bit float, 5 exponent bits.
    F8E5M2 = 14, "F8_E5M2", 8, 1, Rotate;
    /// 8-bit float, 4 exponent bits, no negative zero.
    F8E4M3Fnuz = 15, "F8_E4M3FNUZ", 8, 1, Rotate;
    /// 8-bit float, 5 exponent bits, no negative zero.
    F8E5M2Fnuz = 16, "F8_E5M2FNUZ", 8, 1, Rotate;
    /// 8-bit exponent without sign or mantissa.
    F8E8M0 = 17, "F8_E8M0", 8, 1, Identity;
    /// 4-bit float, two a byte.
    F4 = 18, "F4", 4, 1, Identity;
    /// 6-bit float, packed.
    F6E2M3 = 19, "F6_E2M3", 6, 1, Identity;
    /// 6-bit float, packed.
    F6E3M2 = 20, "F6_E3M2", 6, 1, Identity;
    /// IEEE 754 binary64.
    F64 = 21, "F64", 64, 8, Rotate;
    /// Complex numbers of two binary32.
    C64 = 22, "C64", 64, 4, Rotate;
}

impl std::str::FromStr for Dtype {
    type Err = ParseNameError;

    fn from_str(s: &str) -> Result<Self, ParseNameError> {
        Self::from_name(s).ok_or_else(|| ParseNameError::new("dtype", s, Self::ALL.iter().map(|d| d.name())))
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for &d in Dtype::ALL {
            assert_eq!(Dtype::from_code(d.code()), Some(d));
            assert_eq!(d.name().parse(), Ok(d));
        }
        assert_eq!(Dtype::from_code(0), None);
        let e = "bf16".parse::<Dtype>().unwrap_err();
        assert!(e.to_string().starts_with(r#"unknown dtype "bf16": must be one of BOOL, U8, "#), "{e}");
    }
}
