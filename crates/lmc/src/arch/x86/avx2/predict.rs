//! The predict stage: the portable loops, of which the compiler makes vectors where elements do not depend on one another.

use super::super::super::{Isa, Kind};
use crate::predict::job::{Model, Sections};
use crate::predict::partition as portable;

pub(in crate::arch) fn count_classes(isa: Isa, m: &Model<'_>) -> Vec<usize> {
    assert_eq!(isa.0, Kind::Avx2);
    // SAFETY: an `Isa` of this kind exists only where the features were detected.
    unsafe { count(m) }
}

pub(in crate::arch) fn partition(isa: Isa, m: &Model<'_>, elements: &[u8], sections: &mut Sections) {
    assert_eq!(isa.0, Kind::Avx2);
    // SAFETY: as above.
    unsafe { deal(m, elements, sections) }
}

pub(in crate::arch) fn restore(isa: Isa, m: &Model<'_>, sections: &Sections, out: &mut [u8]) -> bool {
    assert_eq!(isa.0, Kind::Avx2);
    // SAFETY: as above.
    unsafe { collect(m, sections, out) }
}

pub(in crate::arch) fn restore_in_place(isa: Isa, m: &Model<'_>, out: &mut [u8]) {
    assert_eq!(isa.0, Kind::Avx2);
    // SAFETY: as above.
    unsafe { undo(m, out) }
}

kernels! {
    fn count(m: &Model<'_>) -> Vec<usize> {
        portable::count(m)
    }

    fn deal(m: &Model<'_>, elements: &[u8], sections: &mut Sections) {
        portable::partition(m, elements, sections);
    }

    fn collect(m: &Model<'_>, sections: &Sections, out: &mut [u8]) -> bool {
        portable::restore(m, sections, out)
    }

    fn undo(m: &Model<'_>, out: &mut [u8]) {
        portable::restore_in_place(m, out);
    }
}
