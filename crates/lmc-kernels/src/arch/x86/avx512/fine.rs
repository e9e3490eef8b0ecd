//! Fine tables. Those with more symbols than registers hold by rank are in memory, and read by gathers.

use super::emit::emit;
use super::{States, WINDOW};
use crate::entropy::rans::{FINE, FINE_BITS};
use crate::entropy::table::Row;
use crate::inline::{Each, zip};
use std::arch::x86_64::*;

/// [`Row`]s of sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Reciprocals of even and of odd lanes, in the lower halves of quadwords.
    pub(super) reciprocals: [__m512i; 2],
    pub(super) upper: __m512i,
}

kernels! {
    /// Decodes one symbol per lane: 64 symbols in order.
    pub(super) fn step(x: &mut States, slots: &[u32; FINE]) -> __m512i {
        let twelve = _mm512_set1_epi32(FINE as i32 - 1);
        let e = x.each(|x| {
            let slot = _mm512_and_si512(x, twelve);
            // SAFETY: the table has an entry for every number of twelve bits.
            unsafe { _mm512_i32gather_epi32::<4>(slot, slots.as_ptr().cast()) }
        });
        zip(x, &e, |x, &e| {
            let freq = _mm512_and_si512(_mm512_srli_epi32::<8>(e), twelve);
            let scaled = _mm512_mullo_epi32(_mm512_srli_epi32::<FINE_BITS>(*x), freq);
            *x = _mm512_add_epi32(scaled, _mm512_srli_epi32::<20>(e));
        });
        super::low_bytes(&e)
    }

    /// Rows of the symbols of state register Z, which are byte Z of every dword.
    pub(super) fn gathered<const Z: u32>(rows: &[Row; 256], symbols: __m512i) -> Rows {
        let byte = _mm512_set1_epi64(0xff);
        let rows = [8 * Z, 8 * Z + 32].each(|at| {
            let symbol = _mm512_and_si512(_mm512_srl_epi64(symbols, _mm_cvtsi32_si128(at as i32)), byte);
            // SAFETY: there is a row for every byte.
            unsafe { _mm512_i64gather_epi64::<8>(symbol, rows.as_ptr().cast()) }
        });
        Rows { reciprocals: rows, upper: _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(rows[0]), rows[1]) }
    }

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
