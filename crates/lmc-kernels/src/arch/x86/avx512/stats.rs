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
            let (mut or, mut and) = (_mm512_setzero_si512(), _mm512_set1_epi8(-1));
            let mut sum = _mm512_setzero_si512();
            for bytes in run.as_chunks::<64>().0 {
                let v = load(bytes);
                // OR and AND of the unmapped elements: rotating the results is equivalent.
                or = _mm512_or_si512(or, v);
                and = _mm512_and_si512(and, v);
                // The top byte of a rotated element stands one bit lower before the rotation.
                if WIDTH == 2 {
                    sum = _mm512_add_epi16(sum, _mm512_and_si512(_mm512_srli_epi16::<7>(v), _mm512_set1_epi16(0xff)));
                } else {
                    sum = _mm512_add_epi32(sum, _mm512_and_si512(_mm512_srli_epi32::<23>(v), _mm512_set1_epi32(0xff)));
                }
            }
            if WIDTH == 2 {
                sum = _mm512_madd_epi16(sum, _mm512_set1_epi16(1));
            }
            stats.sum.push(_mm512_reduce_add_epi32(sum) as u16);
            let (or, and) = (_mm512_reduce_or_epi64(or) as u64, _mm512_reduce_and_epi64(and) as u64);
            let (or, and) = ((or | or >> 32) as u32, (and & and >> 32) as u32);
            if WIDTH == 2 {
                let (or, and) = ((or | or >> 16) as u16, (and & and >> 16) as u16);
                stats.or.push(or.rotate_left(1).into());
                stats.and.push(and.rotate_left(1).into());
            } else {
                stats.or.push(or.rotate_left(1).into());
                stats.and.push(and.rotate_left(1).into());
            }
        }
        with_element!(WIDTH, E => runs::run_stats::<E>(Map::Rotate, partial, stats));
    }
}
