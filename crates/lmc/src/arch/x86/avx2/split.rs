//! Elements to symbols and raw bits: the inverse of `merge`.

use super::{at, at_mut, load, store};
use crate::group::RUN;
use crate::group::element::with_element;
use crate::group::split::{Shape, split_run};
use crate::map::Map;
use std::arch::x86_64::*;

kernels! {
    /// Splits the runs at `places` of `elements` into symbols and raw bits.
    pub(super) fn runs(
        s: &Shape, width: usize, elements: &[u8], places: &[u32], symbols: &mut [[u8; RUN]], raw: &mut [u8]
    ) {
        let plain = s.low == 0 && s.constant == 0 && s.map == Map::Rotate;
        let raw_len = s.raw_len(RUN);
        let each = symbols.iter_mut().zip(places).enumerate();
        match width {
            2 if plain && s.raw_bits == 8 => {
                for ((symbols, place), raw) in symbols.iter_mut().zip(places).zip(raw.as_chunks_mut().0) {
                    byte_16(run_of(elements, *place), symbols, raw);
                }
            }
            4 if plain && s.raw_bits == 24 => {
                for ((symbols, place), raw) in symbols.iter_mut().zip(places).zip(raw.as_chunks_mut().0) {
                    bytes_32(run_of(elements, *place), symbols, raw);
                }
            }
            _ => each.for_each(|(i, (e, p))| {
                let elements = &elements[*p as usize * RUN * width..][..RUN * width];
                with_element!(width, E => split_run::<E>(s, elements, e, &mut raw[i * raw_len..][..raw_len]));
            }),
        }
    }

    #[inline]
    fn byte_16(elements: &[u8; 2 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8; RUN]) {
        let low = _mm256_set1_epi16(0xff);
        for q in 0..4 {
            let [a, b] = [0, 32].map(|o| {
                let v = load(at(elements, 64 * q + o));
                _mm256_or_si256(_mm256_add_epi16(v, v), _mm256_srli_epi16::<15>(v))
            });
            // Packing works within halves, which are put in order afterwards.
            let ordered = |v| _mm256_permute4x64_epi64::<0b11_01_10_00>(v);
            let raw_bits = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
            store(at_mut(raw, 32 * q), ordered(raw_bits));
            let high = _mm256_packus_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
            store(at_mut(symbols, 32 * q), ordered(high));
        }
    }

    #[inline]
    fn bytes_32(elements: &[u8; 4 * RUN], symbols: &mut [u8; RUN], raw: &mut [u8; 3 * RUN]) {
        let transpose =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        let ordered = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        for q in 0..4 {
            // Four bytes of each plane, of four elements to the left and of four to the right.
            let v = [0, 1, 2, 3].map(|o| {
                let v = load(at(elements, 128 * q + 32 * o));
                let v = _mm256_or_si256(_mm256_add_epi32(v, v), _mm256_srli_epi32::<31>(v));
                _mm256_shuffle_epi8(v, transpose)
            });
            let low = [_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpacklo_epi32(v[2], v[3])];
            let high = [_mm256_unpackhi_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[2], v[3])];
            let planes = [
                _mm256_unpacklo_epi64(low[0], low[1]),
                _mm256_unpackhi_epi64(low[0], low[1]),
                _mm256_unpacklo_epi64(high[0], high[1]),
                _mm256_unpackhi_epi64(high[0], high[1]),
            ]
            .map(|v| _mm256_permutevar8x32_epi32(v, ordered));
            for (i, plane) in planes[..3].iter().enumerate() {
                store(at_mut(raw, RUN * i + 32 * q), *plane);
            }
            store(at_mut(symbols, 32 * q), planes[3]);
        }
    }
}

/// The elements of a run of `N` bytes.
#[inline(always)]
fn run_of<const N: usize>(elements: &[u8], place: u32) -> &[u8; N] {
    at(elements, N * place as usize)
}
