//! Encoding with fine tables.

use super::WINDOW;
use super::emit::emit;
use crate::entropy::rans::FINE;
use std::arch::x86_64::*;

/// [`Row`](crate::entropy::table::Row)s of sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Reciprocals of even and of odd lanes, in the lower halves of quadwords.
    pub(super) reciprocals: [__m512i; 2],
    pub(super) upper: __m512i,
}

kernels! {
    /// Encodes a symbol on every lane of a state register. Returns the number of `words` taken so far.
    pub(super) fn push(rows: Rows, x: &mut __m512i, words: &mut [u16; WINDOW], taken: usize) -> usize {
        let upper = rows.upper;
        let bound = _mm512_and_si512(upper, _mm512_set1_epi32(0xfff0_0000_u32.cast_signed()));
        let taken = emit(_mm512_cmpge_epu32_mask(*x, bound), x, words, taken);
        let more = _mm512_test_epi32_mask(upper, _mm512_set1_epi32(1 << 16));
        let dividend = _mm512_mask_add_epi32(*x, more, *x, _mm512_set1_epi32(1));
        let even = _mm512_mul_epu32(dividend, rows.reciprocals[0]);
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(dividend), rows.reciprocals[1]);
        let high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(even), odd);
        let shift = _mm512_and_si512(_mm512_srli_epi32::<12>(upper), _mm512_set1_epi32(15));
        let quotient = _mm512_srlv_epi32(high, shift);
        // x − q·f + 4096·q + start
        let gap = _mm512_sub_epi32(_mm512_set1_epi32(FINE as i32), _mm512_srli_epi32::<20>(upper));
        let start = _mm512_and_si512(upper, _mm512_set1_epi32(0xfff));
        *x = _mm512_add_epi32(_mm512_add_epi32(*x, start), _mm512_mullo_epi32(quotient, gap));
        taken
    }
}
