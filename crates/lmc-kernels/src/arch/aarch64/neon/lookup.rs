//! Look-ups of bytes in columns of up to 128 entries.

use super::{at, load};
use crate::entropy::rans::COARSE;
use crate::inline::array;
use std::arch::aarch64::*;

/// A column in `N` registers of 16 entries: 1, 2 or 8.
pub(super) type Column<const N: usize> = [uint8x16_t; N];

kernels! {
    /// The first 16·N entries as a column.
    pub(super) fn column<const N: usize>(entries: &[u8; COARSE]) -> Column<N> {
        array(|k| load(at(entries, 16 * k)))
    }

    /// Sixteen entries, by indexes below 16·N.
    pub(super) fn look_up<const N: usize>(c: &Column<N>, index: uint8x16_t) -> uint8x16_t {
        match N {
            1 => vqtbl1q_u8(c[0], index),
            2 => vqtbl2q_u8(uint8x16x2_t(c[0], c[1]), index),
            _ => {
                let four = |k: usize| uint8x16x4_t(c[k], c[k + 1], c[k + 2], c[k + 3]);
                // Indices outside the first half give 0 there; those outside the second half change nothing.
                vqtbx4q_u8(vqtbl4q_u8(four(0), index), four(4), vsubq_u8(index, vdupq_n_u8(64)))
            }
        }
    }
}
