//! Words that lanes emit.

use super::{WINDOW, index};
use std::arch::x86_64::*;

kernels! {
    /// Writes the low words of the lanes in `due` in front of the last `taken` of `words`, and shifts them out. Returns the new `taken`.
    pub(super) fn emit(due: __mmask16, x: &mut __m512i, words: &mut [u16; WINDOW], taken: usize) -> usize {
        let n = due.count_ones();
        let packed = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(due, *x));
        *x = _mm512_mask_srli_epi32::<16>(*x, due, *x);
        // To the end of the register, so that a whole store does: a masked one with a narrowing is slow.
        let at = _mm256_add_epi16(_mm512_castsi512_si256(index(IOTA_16)), _mm256_set1_epi16(n as i16));
        let packed = _mm256_permutexvar_epi16(at, packed);
        let to = words[..WINDOW - taken].last_chunk_mut::<16>().expect("a window has room for five registers");
        // SAFETY: sixteen words are there to write.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), packed) };
        taken + n as usize
    }
}

/// Indices of 16-bit words.
const IOTA_16: [u8; 64] = {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 32 {
        t[2 * i] = i as u8;
        i += 1;
    }
    t
};
