//! Elements that differ from their predictions: the portable loops, of which the compiler makes comparisons of 32 bytes.

use crate::isa::{Isa, Kind};
use crate::predict::changes::{self as portable, Changes, Compared};

pub(in crate::arch) fn changes(isa: Isa, c: &Compared<'_>, most: usize, found: &mut Changes) -> bool {
    assert_eq!(isa.kind(), Kind::Avx2);
    // SAFETY: an `Isa` of this kind exists only where the features were detected.
    unsafe { find(c, most, found) }
}

kernels! {
    fn find(c: &Compared<'_>, most: usize, found: &mut Changes) -> bool {
        portable::find(c, most, found)
    }
}
