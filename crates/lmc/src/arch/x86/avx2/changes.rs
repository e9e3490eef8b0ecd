//! Elements that differ from their predictions: the portable loops, compiled to 32-byte comparisons.

use crate::predict::changes::{self as portable, Changes, Compared};

kernels! {
    pub(in crate::arch) fn find(c: &Compared<'_>, most: usize, found: &mut Changes) -> bool {
        portable::find(c, most, found)
    }
}
