//! Elements that differ from their predictions: the portable loops, compiled to 32-byte comparisons.

use crate::predict::changes::{self as portable, Changes, Compared};

entries! {
    Avx2
    pub(in crate::arch) fn changes(c: &Compared<'_>, most: usize, found: &mut Changes) -> bool = find;
}

kernels! {
    fn find(c: &Compared<'_>, most: usize, found: &mut Changes) -> bool {
        portable::find(c, most, found)
    }
}
