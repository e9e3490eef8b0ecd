//! Look-ups of bytes in columns of up to 128 entries.

use super::load_16;
use crate::inline::{array, zip};
use std::arch::x86_64::*;

/// The largest index of a look-up, and the entries that one shuffle covers.
pub(super) const ENTRIES: usize = 128;
const STRETCH: usize = 16;

/// A column in `N` registers of 16 entries, each XORed with the one before.
pub(super) type Column<const N: usize> = [__m256i; N];

kernels! {
    /// The first 16·N entries as a column.
    pub(super) fn column<const N: usize>(entries: &[u8; ENTRIES]) -> Column<N> {
        array(|k| {
            let mut stretch: [u8; STRETCH] = *entries[STRETCH * k..].first_chunk().expect("at most eight registers");
            if k > 0 {
                zip(&mut stretch, &entries[STRETCH * (k - 1)..], |a, b| *a ^= b);
            }
            _mm256_broadcastsi128_si256(load_16(&stretch))
        })
    }

    /// The indices of 32 entries (each below 16·N) for every register.
    pub(super) fn indexes<const N: usize>(index: __m256i) -> [__m256i; N] {
        array(|k| if k == 0 { index } else { _mm256_sub_epi8(index, _mm256_set1_epi8((STRETCH * k) as i8)) })
    }

    pub(super) fn look_up<const N: usize>(column: &Column<N>, indexes: &[__m256i; N]) -> __m256i {
        let mut v = _mm256_shuffle_epi8(column[0], indexes[0]);
        for k in 1..N {
            v = _mm256_xor_si256(v, _mm256_shuffle_epi8(column[k], indexes[k]));
        }
        v
    }
}
