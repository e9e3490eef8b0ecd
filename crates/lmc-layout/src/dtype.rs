//! Element types: codes of the format, names of safetensors, and what numbers they are.

use crate::error::Error;

/// The code of a dtype that the format has no code for.
pub const NAMED: u8 = 127;
/// Bytes of the longest name of such a dtype.
const MAX_NAME: usize = 31;
/// What the format calls bytes of no tensor.
const OPAQUE: &str = "opaque";
/// Most bits of one element of such a dtype.
const MAX_BITS: u32 = 1 << 16;

/// What numbers the elements of a dtype are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A sign, an exponent and a mantissa, from the top.
    Float,
    /// Integers in two's complement.
    Signed,
    /// Integers without a sign, and all others.
    Other,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $bits:literal, $width:literal, $number:ident;)*) => {
        /// The type of a tensor's elements, as safetensors names them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Dtype {
            $($(#[$doc])* $variant,)*
            /// Another one: its name and the bits of an element are known, nothing else.
            Named(NamedDtype),
        }

        impl Dtype {
            /// Every dtype with a code, in the order of the codes.
            pub const ALL: &[Dtype] = &[$(Dtype::$variant),*];
            /// The code of this dtype in a file (`docs/format.md` §4).
            pub const fn code(self) -> u8 { match self { $(Dtype::$variant => $code,)* Dtype::Named(_) => NAMED } }
            /// The dtype of a code of the format; `None` for 127, too, which says that a name follows.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Dtype::$variant),)* _ => None }
            }
            /// The name that safetensors uses.
            pub fn name(&self) -> &str { match self { $(Dtype::$variant => $name,)* Dtype::Named(d) => d.name() } }
            /// Bits of one element, as a shape counts them.
            pub const fn bits(self) -> u32 { match self { $(Dtype::$variant => $bits,)* Dtype::Named(d) => d.bits } }
            /// Bytes of the unit that the codec works on (1, 2, 4 or 8); half of an element for `C64`.
            pub const fn coding_width(self) -> usize {
                match self { $(Dtype::$variant => $width,)* Dtype::Named(d) => d.coding_width() }
            }
            /// Whether an element is a block of others, such as quantised ones with their scale: wider than any number.
            #[doc(hidden)]
            pub const fn is_block(self) -> bool { matches!(self, Dtype::Named(d) if d.bits > 64) }
            /// The dtype that safetensors calls by this name.
            #[doc(hidden)]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Dtype::$variant),)* _ => None }
            }
            /// What numbers the elements are.
            #[doc(hidden)]
            pub const fn number(self) -> Number {
                match self { $(Dtype::$variant => Number::$number,)* Dtype::Named(d) => d.number() }
            }
        }
    };
}

dtypes! {
    /// Booleans, a byte each.
    Bool = 1, "BOOL", 8, 1, Other;
    /// Unsigned 8-bit integers.
    U8 = 2, "U8", 8, 1, Other;
    /// Signed 8-bit integers.
    I8 = 3, "I8", 8, 1, Signed;
    /// Unsigned 16-bit integers.
    U16 = 4, "U16", 16, 2, Other;
    /// Signed 16-bit integers.
    I16 = 5, "I16", 16, 2, Signed;
    /// Unsigned 32-bit integers.
    U32 = 6, "U32", 32, 4, Other;
    /// Signed 32-bit integers.
    I32 = 7, "I32", 32, 4, Signed;
    /// IEEE 754 binary16.
    F16 = 8, "F16", 16, 2, Float;
    /// bfloat16.
    Bf16 = 9, "BF16", 16, 2, Float;
    /// IEEE 754 binary32.
    F32 = 10, "F32", 32, 4, Float;
    /// Unsigned 64-bit integers.
    U64 = 11, "U64", 64, 8, Other;
    /// Signed 64-bit integers.
    I64 = 12, "I64", 64, 8, Signed;
    /// 8-bit float, 4 exponent bits.
    F8E4M3 = 13, "F8_E4M3", 8, 1, Float;
    /// 8-bit float, 5 exponent bits.
    F8E5M2 = 14, "F8_E5M2", 8, 1, Float;
    /// 8-bit float, 4 exponent bits, no negative zero.
    F8E4M3Fnuz = 15, "F8_E4M3FNUZ", 8, 1, Float;
    /// 8-bit float, 5 exponent bits, no negative zero.
    F8E5M2Fnuz = 16, "F8_E5M2FNUZ", 8, 1, Float;
    /// 8-bit exponent without sign or mantissa.
    F8E8M0 = 17, "F8_E8M0", 8, 1, Other;
    /// 4-bit float, two a byte.
    F4 = 18, "F4", 4, 1, Other;
    /// 6-bit float, packed.
    F6E2M3 = 19, "F6_E2M3", 6, 1, Other;
    /// 6-bit float, packed.
    F6E3M2 = 20, "F6_E3M2", 6, 1, Other;
    /// IEEE 754 binary64.
    F64 = 21, "F64", 64, 8, Float;
    /// Complex numbers of two binary32.
    C64 = 22, "C64", 64, 4, Float;
}

/// A dtype that the format has no code for: one of a later version of safetensors, or of another file format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedDtype {
    /// Zeros after the name.
    name: [u8; MAX_NAME],
    len: u8,
    bits: u32,
}

impl NamedDtype {
    /// A name of 1 to 31 printable ASCII characters without blanks, not that of a dtype with a code, and the bits of an element, 1 to 65536.
    /// `None` for others.
    pub fn new(name: &str, bits: u32) -> Option<Self> {
        let fits = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        let is_taken = name == OPAQUE || Dtype::from_name(name).is_some();
        if !fits || is_taken || !(1..=MAX_BITS).contains(&bits) {
            return None;
        }
        let mut bytes = [0; MAX_NAME];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self { name: bytes, len: name.len() as u8, bits })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        str::from_utf8(&self.name[..usize::from(self.len)]).expect("a name is ASCII")
    }

    const fn coding_width(self) -> usize {
        match self.bits {
            16 => 2,
            32 => 4,
            64 => 8,
            _ => 1,
        }
    }

    /// Names of floats begin with F or BF in all file formats.
    const fn number(self) -> Number {
        match self.name {
            [b'F' | b'f', ..] | [b'B' | b'b', b'F' | b'f', ..] if self.bits >= 8 => Number::Float,
            _ => Number::Other,
        }
    }
}

impl std::fmt::Debug for NamedDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bits", self.name(), self.bits)
    }
}

/// The error is of kind `Usage`, and says which names there are.
impl std::str::FromStr for Dtype {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        Self::from_name(s).ok_or_else(|| Error::unknown_name("dtype", s, Self::ALL.iter().map(Dtype::name)))
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
            assert_eq!(d.name().parse::<Dtype>().unwrap(), d);
        }
        assert_eq!((Dtype::from_code(0), Dtype::from_code(NAMED)), (None, None));
        let e = "bf16".parse::<Dtype>().unwrap_err();
        assert!(e.to_string().starts_with(r#"unknown dtype "bf16": must be one of BOOL, U8, "#), "{e}");
    }
    #[test]
    fn named_dtypes_have_names_and_bits() {
        let named = |name, bits| NamedDtype::new(name, bits).map(Dtype::Named);
        for (name, bits, width, number) in [
            ("F8_E3M4", 8, 1, Number::Float),
            ("F4_X", 4, 1, Number::Other),
            ("BF32", 32, 4, Number::Float),
            ("Q4_K", 16, 2, Number::Other),
            ("I128", 128, 1, Number::Other),
            ("complex128", 64, 8, Number::Other),
        ] {
            let d = named(name, bits).unwrap();
            assert_eq!(
                (d.name(), d.bits(), d.coding_width(), d.number(), d.code()),
                (name, bits, width, number, NAMED)
            );
        }
        let longest = "x".repeat(MAX_NAME);
        assert_eq!(named(&longest, MAX_BITS).unwrap().to_string(), longest);
        for (name, bits) in [("", 8), ("a b", 8), ("a\u{1b}", 8), ("ä", 8), ("x", 0), ("x", MAX_BITS + 1)] {
            assert_eq!(named(name, bits), None, "{name:?}, {bits}");
        }
        for name in ["BF16", "C64", OPAQUE] {
            assert_eq!(named(name, 16), None);
        }
        assert_eq!(named(&format!("{longest}x"), 8), None);
    }
}
