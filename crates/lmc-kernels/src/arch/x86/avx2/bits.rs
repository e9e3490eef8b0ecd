//! Bit planes of a run: bit j of 128 bytes is plane j.

use super::{at, at_mut, load, load_16, store};
use crate::cluster::RUN;
use crate::inline::{Each, array};
use std::arch::x86_64::*;

kernels! {
    /// Up to eight bit planes, one after the other, to bytes.
    pub(super) fn join(planes: &[u8], n: usize) -> [u8; RUN] {
        // The eight planes as the rows of sixteen 8 x 8 matrices of bits, eight matrices to the left, eight to the right …
        let rows: [__m256i; 8] = array(|j| {
            if j < n {
                _mm256_permute4x64_epi64::<0b01_01_00_00>(_mm256_castsi128_si256(load_16(at(planes, RUN / 8 * j))))
            } else {
                _mm256_setzero_si256()
            }
        });
        let pairs: [__m256i; 4] = array(|j| _mm256_unpacklo_epi8(rows[2 * j], rows[2 * j + 1]));
        let fours = [
            _mm256_unpacklo_epi16(pairs[0], pairs[1]),
            _mm256_unpackhi_epi16(pairs[0], pairs[1]),
            _mm256_unpacklo_epi16(pairs[2], pairs[3]),
            _mm256_unpackhi_epi16(pairs[2], pairs[3]),
        ];
        // … and every matrix in 64 bits, to be transposed.
        let m = [
            _mm256_unpacklo_epi32(fours[0], fours[2]),
            _mm256_unpackhi_epi32(fours[0], fours[2]),
            _mm256_unpacklo_epi32(fours[1], fours[3]),
            _mm256_unpackhi_epi32(fours[1], fours[3]),
        ]
        .each(|v| transposed(v));
        let mut bytes = [0; RUN];
        store(at_mut(&mut bytes, 0), _mm256_permute2x128_si256::<0x20>(m[0], m[1]));
        store(at_mut(&mut bytes, 32), _mm256_permute2x128_si256::<0x20>(m[2], m[3]));
        store(at_mut(&mut bytes, 64), _mm256_permute2x128_si256::<0x31>(m[0], m[1]));
        store(at_mut(&mut bytes, 96), _mm256_permute2x128_si256::<0x31>(m[2], m[3]));
        bytes
    }

    /// Transposes the 8 x 8 bits of every 64 (Hacker's Delight, 7-3).
    fn transposed(v: __m256i) -> __m256i {
        let t = _mm256_and_si256(_mm256_xor_si256(v, _mm256_srli_epi64::<7>(v)), _mm256_set1_epi64x(0x00aa_00aa_00aa_00aa));
        let v = _mm256_xor_si256(_mm256_xor_si256(v, t), _mm256_slli_epi64::<7>(t));
        let t = _mm256_and_si256(_mm256_xor_si256(v, _mm256_srli_epi64::<14>(v)), _mm256_set1_epi64x(0x0000_cccc_0000_cccc));
        let v = _mm256_xor_si256(_mm256_xor_si256(v, t), _mm256_slli_epi64::<14>(t));
        let t = _mm256_and_si256(_mm256_xor_si256(v, _mm256_srli_epi64::<28>(v)), _mm256_set1_epi64x(0x0000_0000_f0f0_f0f0));
        _mm256_xor_si256(_mm256_xor_si256(v, t), _mm256_slli_epi64::<28>(t))
    }

    /// The lowest `n` bits of bytes to planes.
    pub(super) fn part(bytes: &[u8; RUN], n: usize, planes: &mut [u8]) {
        for q in 0..RUN / 32 {
            let v = load(at(bytes, 32 * q));
            for j in 0..n {
                let top = _mm256_sll_epi16(v, _mm_cvtsi32_si128(7 - j as i32));
                *at_mut(planes, RUN / 8 * j + 4 * q) = _mm256_movemask_epi8(top).to_le_bytes();
            }
        }
    }
}
