//! Elements as unsigned integers of one, two, four or eight bytes.

use crate::inline::zip;
use crate::map::Map;

/// An unsigned integer that holds one element.
pub trait Element: Copy + Default + Eq + std::fmt::Debug + Send + Sync + 'static {
    /// Its size in bytes.
    const BYTES: usize;
    /// Its size in bits.
    const BITS: u32 = 8 * Self::BYTES as u32;
    /// The bytes of an element.
    type Bytes: Copy + Default;
    /// The element whose little-endian bytes a slice begins with.
    fn load(bytes: &[u8]) -> Self;
    /// Writes the bytes of the element to the start of a slice.
    fn store(self, bytes: &mut [u8]);
    /// The whole elements of a slice.
    fn all(bytes: &[u8]) -> &[Self::Bytes];
    /// [`Self::all`] of a slice that is written.
    fn all_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
    /// The element with these bytes.
    fn from_bytes(bytes: Self::Bytes) -> Self;
    /// Its bytes.
    fn to_bytes(self) -> Self::Bytes;
    /// The low bits of `v`.
    fn cut(v: u64) -> Self;
    /// The element as the low bits of 64.
    fn wide(self) -> u64;
    /// Bitwise OR.
    fn or(self, o: Self) -> Self;
    /// Bitwise AND.
    fn and(self, o: Self) -> Self;
    /// Bitwise exclusive OR.
    fn xor(self, o: Self) -> Self;
    /// Shifts left; 0 if `n` is the width or more.
    fn shl(self, n: u32) -> Self;
    /// Shifts right without sign; 0 if `n` is the width or more.
    fn shr(self, n: u32) -> Self;
    /// Rotates left by one bit.
    fn rotl1(self) -> Self;
    /// Rotates right by one bit.
    fn rotr1(self) -> Self;
    /// Modulo 2^w.
    fn add(self, o: Self) -> Self;
    /// Modulo 2^w.
    fn sub(self, o: Self) -> Self;
    /// A float's bits as an integer that counts the values below it; its own inverse.
    fn ordered(self) -> Self;
    /// The sign bit in every bit.
    fn sign_fill(self) -> Self;
    /// Bit 0 in every bit.
    fn low_fill(self) -> Self;

    /// Applies a map.
    #[inline(always)]
    fn map(self, map: Map) -> Self {
        match map {
            Map::Identity => self,
            Map::Rotate => self.rotl1(),
            Map::Zigzag => self.shl(1).xor(self.sign_fill()),
        }
    }

    /// The inverse of [`Self::map`].
    #[inline(always)]
    fn unmap(self, map: Map) -> Self {
        match map {
            Map::Identity => self,
            Map::Rotate => self.rotr1(),
            Map::Zigzag => self.shr(1).xor(self.low_fill()),
        }
    }
}

macro_rules! element {
    ($($t:ty: $signed:ty),*) => {$(
        impl Element for $t {
            const BYTES: usize = size_of::<$t>();
            type Bytes = [u8; size_of::<$t>()];
            #[inline(always)]
            fn load(bytes: &[u8]) -> Self { <$t>::from_le_bytes(*bytes.first_chunk().expect("element bytes")) }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) { *bytes.first_chunk_mut().expect("element bytes") = self.to_le_bytes() }
            #[inline(always)]
            fn all(bytes: &[u8]) -> &[Self::Bytes] { bytes.as_chunks().0 }
            #[inline(always)]
            fn all_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] { bytes.as_chunks_mut().0 }
            #[inline(always)]
            fn from_bytes(bytes: Self::Bytes) -> Self { <$t>::from_le_bytes(bytes) }
            #[inline(always)]
            fn to_bytes(self) -> Self::Bytes { self.to_le_bytes() }
            #[inline(always)]
            fn cut(v: u64) -> Self { v as $t }
            #[inline(always)]
            fn wide(self) -> u64 { self as u64 }
            #[inline(always)]
            fn or(self, o: Self) -> Self { self | o }
            #[inline(always)]
            fn and(self, o: Self) -> Self { self & o }
            #[inline(always)]
            fn xor(self, o: Self) -> Self { self ^ o }
            #[inline(always)]
            fn shl(self, n: u32) -> Self { self.checked_shl(n).unwrap_or(0) }
            #[inline(always)]
            fn shr(self, n: u32) -> Self { self.checked_shr(n).unwrap_or(0) }
            #[inline(always)]
            fn rotl1(self) -> Self { self.rotate_left(1) }
            #[inline(always)]
            fn rotr1(self) -> Self { self.rotate_right(1) }
            #[inline(always)]
            fn add(self, o: Self) -> Self { self.wrapping_add(o) }
            #[inline(always)]
            fn sub(self, o: Self) -> Self { self.wrapping_sub(o) }
            #[inline(always)]
            fn ordered(self) -> Self { self ^ ((self as $signed >> (<$t>::BITS - 1)) as $t >> 1) }
            #[inline(always)]
            fn sign_fill(self) -> Self { (self as $signed >> (<$t>::BITS - 1)) as $t }
            #[inline(always)]
            fn low_fill(self) -> Self { (self & 1).wrapping_neg() }
        }
    )*};
}
element!(u8: i8, u16: i16, u32: i32, u64: i64);

/// Calls a generic function for the element type of a width in bytes.
#[macro_export]
#[doc(hidden)]
macro_rules! with_element {
    ($width:expr, $E:ident => $body:expr) => {
        match $width {
            1 => {
                type $E = u8;
                $body
            }
            2 => {
                type $E = u16;
                $body
            }
            4 => {
                type $E = u32;
                $body
            }
            8 => {
                type $E = u64;
                $body
            }
            w => unreachable!("element width {w}"),
        }
    };
}
pub use with_element;

/// Appends the elements of a slice.
#[inline(always)]
pub fn extend<E: Element>(to: &mut Vec<E>, bytes: &[u8]) {
    let (at, elements) = (to.len(), E::all(bytes));
    to.resize(at + elements.len(), E::default());
    zip(&mut to[at..], elements, |to, e| *to = E::from_bytes(*e));
}

/// Elements that are zero.
pub fn zeros_in(width: usize, elements: &[u8]) -> usize {
    // 32-bit counters, which the compiler vectorises; no column has more elements.
    let count = |zeros, is_zero| zeros + u32::from(is_zero);
    with_element!(width, E => {
        E::all(elements).iter().fold(0, |zeros, e| count(zeros, E::from_bytes(*e) == E::default()))
    }) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_invert() {
        for map in [Map::Identity, Map::Rotate, Map::Zigzag] {
            for v in 0..=u16::MAX {
                assert_eq!(v.map(map).unmap(map), v);
                let x = u64::from(v).wrapping_mul(0x0001_0203_0405_0607);
                assert_eq!(x.map(map).unmap(map), x);
            }
        }
        assert_eq!([0u8, 255, 1, 254].map(|v| v.map(Map::Zigzag)), [0, 1, 2, 3]);
        assert_eq!(0x3f80u16.map(Map::Rotate), 0x7f00);
        assert_eq!(0x8001u16.map(Map::Rotate), 3);
    }
}
