//! The predict stage: the prediction of an element from a base snapshot or another tensor, its residual, and the context that
//! the residual is coded in (`docs/format.md` §3.7).
//!
//! One step of an optimizer moves all weights by about the same amount, so that the difference counted in units in the
//! last place doubles with each exponent step down: given the exponent of the prediction, the
//! difference is nearly memoryless. Elements are therefore scattered to contexts by that exponent, in a stable partition,
//! and each context is a stream with its own tables.

pub mod changes;
mod convert;
pub mod derived;
pub mod grid;
mod halves;
pub mod job;
pub mod optimizer;
pub(crate) mod partition;
pub mod residual;
pub mod select;
pub mod unchanged;

pub use convert::convert;
use derived::Number;

use crate::cluster::element::{Element, with_element};
use lmc_layout::dtype::Dtype;

/// Conversion of an element of the base to the column's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conversion {
    /// Unchanged.
    None,
    /// F32 to BF16, to nearest, ties to even.
    NarrowBf16,
    /// BF16 to F32.
    WidenBf16,
    /// F32 to F16, to nearest, ties to even.
    NarrowF16,
    /// Other floats, rounded to a type.
    Cast(Number, Number),
}

impl Conversion {
    /// The conversion of a code of the format.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Conversion::None,
            1 => Conversion::NarrowBf16,
            2 => Conversion::WidenBf16,
            3 => Conversion::NarrowF16,
            _ => return None,
        })
    }

    /// Its code, unless it is a cast.
    pub fn code(self) -> Option<u8> {
        Some(match self {
            Conversion::None => 0,
            Conversion::NarrowBf16 => 1,
            Conversion::WidenBf16 => 2,
            Conversion::NarrowF16 => 3,
            Conversion::Cast(..) => return None,
        })
    }

    /// The conversion from floats to a type; `None` if there is none.
    pub fn between(from: Number, to: Number) -> Option<Self> {
        let is_float = |number| Number::FLOATS.contains(&number);
        match (from, to) {
            _ if !is_float(from) || !is_float(to) && !matches!(to, Number::E4m3 | Number::E5m2) => None,
            _ if from == to => Some(Conversion::None),
            (Number::F32, Number::Bf16) => Some(Conversion::NarrowBf16),
            (Number::Bf16, Number::F32) => Some(Conversion::WidenBf16),
            (Number::F32, Number::F16) => Some(Conversion::NarrowF16),
            _ => Some(Conversion::Cast(from, to)),
        }
    }

    /// Bytes of an element that it makes of an F32.
    pub fn width_of_f32(self) -> usize {
        if self == Conversion::None { 4 } else { 2 }
    }

    /// Bytes of an element before conversion, if afterwards it has `width`; `None` where that cannot be.
    pub fn source_width(self, width: usize) -> Option<usize> {
        match (self, width) {
            (Conversion::None, w) => Some(w),
            (Conversion::NarrowBf16 | Conversion::NarrowF16, 2) => Some(4),
            (Conversion::WidenBf16, 4) => Some(2),
            (Conversion::Cast(from, to), w) if to.width() == w => Some(from.width()),
            _ => None,
        }
    }
}

/// Total bits of the residuals of elements of this dtype, without leading zeros.
pub fn bits_apart(dtype: Dtype, elements: &[u8], expected: &[u8]) -> u64 {
    with_element!(dtype.coding_width(), E => {
        let expected = E::all(expected);
        let bits = |e, p| u64::from(64 - residual::of(E::from_bytes(e), E::from_bytes(p)).wide().leading_zeros());
        E::all(elements).iter().enumerate().fold(0, |all, (i, e)| all + expected.get(i).map_or(0, |p| bits(*e, *p)))
    })
}

/// Most boundaries between contexts.
pub const MAX_BOUNDARIES: usize = 15;

/// Maps the key of a prediction to the context of its element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contexts {
    /// Rising. An element's context is the number of boundaries that are at most its key.
    pub boundaries: Vec<u8>,
}

impl Contexts {
    /// The number of contexts.
    pub fn count(&self) -> usize {
        self.boundaries.len() + 1
    }

    /// The context of every key.
    pub(crate) fn table(&self) -> [u8; 256] {
        let mut table = [0; 256];
        // Boundaries rise: each adds one to all keys from it on.
        for &b in &self.boundaries {
            table[usize::from(b)..].iter_mut().for_each(|context| *context += 1);
        }
        table
    }

    /// The top byte of a prediction that is rotated left by one: the exponent of BF16 and F32.
    #[inline(always)]
    pub fn key<E: Element>(prediction: E) -> u8 {
        prediction.rotl1().shr(E::BITS - 8).wide() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_are_undone() {
        for u in (0..=u16::MAX).step_by(7) {
            for p in [0, 1, 0x3f80, 0x7fff, 0x8000, 0x8001, 0xbf80, 0xffff, u.wrapping_add(3)] {
                assert_eq!(residual::element(residual::of(u, p), p), u);
                let (u, p) = (u32::from(u) << 16 | 77, u32::from(p) << 15 | 3);
                assert_eq!(residual::element(residual::of(u, p), p), u);
            }
        }
    }

    #[test]
    fn neighbouring_floats_have_small_residuals() {
        let r = |u: f32, p: f32| residual::of(u.to_bits(), p.to_bits());
        assert_eq!(r(1.0, 1.0), 0);
        assert_eq!(r(1.0_f32.next_up(), 1.0), 2);
        assert_eq!(r(1.0_f32.next_down(), 1.0), 1);
        assert_eq!(r(-1.0_f32, (-1.0_f32).next_up()), 1);
        assert_eq!(r(f32::from_bits(1), 0.0), 2);
        // The zeros are neighbours.
        assert_eq!(r(-0.0, 0.0), 1);
    }

    #[test]
    fn bits_apart_are_those_of_differences() {
        let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let (a, b) = (bytes(&[1.0, -2.0, 0.5]), bytes(&[1.0, (-2.0f32).next_up(), 0.5f32.next_down().next_down()]));
        assert_eq!(bits_apart(Dtype::F32, &a, &b), 1 + 3);
        assert_eq!(bits_apart(Dtype::I8, &[5, 0, 255], &[5, 3, 254]), 3 + 1);
    }

    #[test]
    fn contexts_are_counted_boundaries() {
        let c = Contexts { boundaries: vec![1, 100, 255] };
        let t = c.table();
        assert_eq!([t[0], t[1], t[99], t[100], t[254], t[255]], [0, 1, 1, 2, 2, 3]);
        assert_eq!(Contexts::key(0x3f80u16), 0x7f);
        assert_eq!(Contexts::key(0xbf80u16), 0x7f);
        assert_eq!(Contexts::key(1.0f32.to_bits()), 0x7f);
        // Of a byte it is all bits.
        assert_eq!(Contexts::key(0x81u8), 0x03);
    }
}
