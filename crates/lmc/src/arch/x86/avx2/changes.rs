//! Elements that differ from their predictions: the portable loops, of which the compiler makes comparisons of 32 bytes.

use super::super::super::{Isa, Kind};
use crate::predict::changes::{self as portable, Changes};

pub(in crate::arch) fn changes(
    isa: Isa,
    width: usize,
    bits: u64,
    elements: &[u8],
    prediction: &[u8],
    most: usize,
    found: &mut Changes,
) -> bool {
    assert_eq!(isa.0, Kind::Avx2);
    // SAFETY: an `Isa` of this kind exists only where the features were detected.
    unsafe { find(width, bits, elements, prediction, most, found) }
}

kernels! {
    fn find(width: usize, bits: u64, elements: &[u8], prediction: &[u8], most: usize, found: &mut Changes) -> bool {
        portable::find(width, bits, elements, prediction, most, found)
    }
}
