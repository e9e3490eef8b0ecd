//! Statistics of runs: one pass that also brings a block into the cache.

use super::{AHEAD, expect, load};
use crate::cluster::RUN;
use crate::cluster::element::with_element;
use crate::cluster::runs::{self, RunStats};
use crate::map::Map;
use std::arch::x86_64::*;

kernels! {
    pub(in crate::arch) fn run_ors(width: usize, elements: &[u8], ors: &mut Vec<u64>) {
        with_element!(width, E => runs::run_ors::<E>(elements, ors));
    }

    pub(in crate::arch) fn run_stats(width: usize, map: Map, elements: &[u8], stats: &mut RunStats) {
        match (width, map) {
            (2, Map::Rotate) => rotated::<2>(elements, stats),
            (4, Map::Rotate) => rotated::<4>(elements, stats),
            _ => with_element!(width, E => runs::run_stats::<E>(map, elements, stats)),
        }
    }

    fn rotated<const WIDTH: usize>(elements: &[u8], stats: &mut RunStats) {
        let whole = elements.len() / (RUN * WIDTH) * (RUN * WIDTH);
        let (runs, partial) = elements.split_at(whole);
        for (i, run) in runs.chunks_exact(RUN * WIDTH).enumerate() {
            if let Some(ahead) = runs.get((i + AHEAD) * RUN * WIDTH..(i + AHEAD + 1) * RUN * WIDTH) {
                expect::<_MM_HINT_T0>(ahead);
            }
            let (mut or, mut and) = (_mm256_setzero_si256(), _mm256_set1_epi8(-1));
            let mut sum = _mm256_setzero_si256();
            for bytes in run.as_chunks::<32>().0 {
                let v = load(bytes);
                // OR and AND of the unmapped elements: rotating the results is equivalent.
                or = _mm256_or_si256(or, v);
                and = _mm256_and_si256(and, v);
                // The top byte of a rotated element stands one bit lower before the rotation.
                sum = if WIDTH == 2 {
                    _mm256_add_epi16(sum, _mm256_and_si256(_mm256_srli_epi16::<7>(v), _mm256_set1_epi16(0xff)))
                } else {
                    _mm256_add_epi32(sum, _mm256_and_si256(_mm256_srli_epi32::<23>(v), _mm256_set1_epi32(0xff)))
                };
            }
            if WIDTH == 2 {
                sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
            }
            // Sums of dwords; overflow into the upper dword of a pair is cut off below.
            let sum = fold(sum, |a, b| _mm_add_epi32(a, b));
            stats.sum.push((sum + (sum >> 32)) as u16);
            let or = fold(or, |a, b| _mm_or_si128(a, b));
            let and = fold(and, |a, b| _mm_and_si128(a, b));
            let (or, and) = ((or | or >> 32) as u32, (and & and >> 32) as u32);
            if WIDTH == 2 {
                stats.or.push(((or | or >> 16) as u16).rotate_left(1).into());
                stats.and.push(((and & and >> 16) as u16).rotate_left(1).into());
            } else {
                stats.or.push(or.rotate_left(1).into());
                stats.and.push(and.rotate_left(1).into());
            }
        }
        with_element!(WIDTH, E => runs::run_stats::<E>(Map::Rotate, partial, stats));
    }

    /// Two halves to one, twice.
    fn fold(v: __m256i, join: impl Fn(__m128i, __m128i) -> __m128i) -> u64 {
        let v = join(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        _mm_cvtsi128_si64(join(v, _mm_unpackhi_epi64(v, v))).cast_unsigned()
    }
}
