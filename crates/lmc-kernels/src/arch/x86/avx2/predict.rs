//! The predict stage: residuals by context and back.
//!
//! Scattering and gathering are for elements of up to four bytes. All else is the portable loops, which the compiler
//! turns into vectors where elements do not depend on one another.

use super::contexts::{ContextFinder, NO_CONTEXT, STEP, find, finder};
use super::gather::gather_tile;
use super::load;
use super::scatter::scatter_tile;
use crate::predict::job::{Model, Rank, Streams, TILE, most_overflows, places_by_width, trim};
use crate::predict::partition::{self as portable, CONTEXTS, of_tile};
use crate::predict::residual;
use crate::predict::select::{Selection, nth_one};
use std::arch::x86_64::*;

/// Steps that one count of a context covers.
const STEPS: usize = 8;

kernels! {
    /// Finds contexts for scattering and gathering, where elements have a width that kernels are made for.
    fn dealer<'a>(m: &Model<'a>) -> Option<ContextFinder<'a>> {
        if m.width <= 4 { finder(m) } else { None }
    }

    pub(in crate::arch) fn count(m: &Model<'_>) -> Vec<usize> {
        let Some(f) = finder(m) else { return portable::count(m) };
        let mut counts = vec![0; f.keys.contexts];
        let mut ids = [NO_CONTEXT; TILE];
        for i in (0..m.len).step_by(TILE) {
            let ids = find(&f, i, TILE.min(m.len - i), &mut ids);
            for (context, count) in counts.iter_mut().enumerate() {
                for ids in ids.chunks(STEPS) {
                    *count += in_context(ids, context as i8) as usize;
                }
            }
        }
        counts
    }

    pub(in crate::arch) fn rank(m: &Model<'_>, at: &[u32], ranks: &mut Vec<Rank>) -> Vec<usize> {
        let Some(f) = finder(m) else { return portable::rank(m, at, ranks) };
        let mut counts = vec![0; f.keys.contexts];
        let mut ids = [NO_CONTEXT; TILE];
        // By context: the number of elements before every eight steps of a tile.
        let mut before = [[0; TILE / STEP / STEPS]; CONTEXTS];
        let mut left = at;
        for i in (0..m.len).step_by(TILE) {
            let n = TILE.min(m.len - i);
            let ids = find(&f, i, n, &mut ids);
            for (context, count) in counts.iter_mut().enumerate() {
                for (i, ids) in ids.chunks(STEPS).enumerate() {
                    before[context][i] = *count as u32;
                    *count += in_context(ids, context as i8) as usize;
                }
            }
            for e in of_tile(&mut left, i, n) {
                let (step, lane) = (e / STEP, e % STEP);
                let context = ids[step][lane];
                let mask = |ids| mask(load(ids), _mm256_set1_epi8(context.cast_signed()));
                let first = step / STEPS;
                let counted = ids[STEPS * first..step].iter().fold(0, |n, ids| n + mask(ids).count_ones());
                let here = (mask(&ids[step]) & ((1 << lane) - 1)).count_ones();
                ranks.push(Rank { context, before: before[usize::from(context)][first] + counted + here });
            }
        }
        counts
    }

    pub(in crate::arch) fn select(m: &Model<'_>, selections: &mut [Selection<'_>]) {
        let Some(f) = finder(m) else { return portable::select(m, selections) };
        let mut ids = [NO_CONTEXT; TILE];
        for i in (0..m.len).step_by(TILE) {
            let ids = find(&f, i, TILE.min(m.len - i), &mut ids);
            for (context, selection) in selections.iter_mut().enumerate() {
                for (j, ids) in ids.chunks(STEPS).enumerate() {
                    let i = (i + j * STEPS * STEP) as u32;
                    if selection.pass(in_context(ids, context as i8)) {
                        continue;
                    }
                    let context = _mm256_set1_epi8(context as i8);
                    let mut masks = [0; STEPS * STEP / 64];
                    for (i, ids) in ids.iter().enumerate() {
                        masks[i / 2] |= u64::from(mask(load(ids), context)) << (STEP * (i % 2));
                    }
                    selection.step(i, masks, nth_one);
                }
            }
        }
    }

    /// The number of elements of a context in up to [`STEPS`] steps.
    fn in_context(ids: &[[u8; STEP]], context: i8) -> u32 {
        let context = _mm256_set1_epi8(context);
        let counts = ids.iter().fold(_mm256_setzero_si256(), |counts, ids| {
            _mm256_sub_epi8(counts, _mm256_cmpeq_epi8(load(ids), context))
        });
        let sums = _mm256_sad_epu8(counts, _mm256_setzero_si256());
        let sums = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        (_mm_cvtsi128_si32(sums) + _mm_extract_epi32::<2>(sums)).cast_unsigned()
    }

    pub(in crate::arch) fn scatter(m: &Model<'_>, elements: &[u8], streams: &mut Streams) -> bool {
        let Some(f) = dealer(m) else { return portable::partition(m, elements, streams) };
        let (bytes, streams, overflows) = streams.raw_parts_mut();
        let mut places = places_by_width(bytes.len(), streams, f.keys.contexts, m.width);
        let mut ids = [NO_CONTEXT; TILE];
        let mut residuals = [0; 4 * TILE];
        for (i, elements) in elements.chunks(TILE * m.width).enumerate() {
            let n = elements.len();
            residual::residuals(m.width, elements, m.predictions(i * TILE, n), &mut residuals[..n]);
            let ids = find(&f, i * TILE, n / m.width, &mut ids);
            match m.width {
                1 => scatter_tile::<1>(ids, &residuals, bytes, &mut places, overflows),
                2 => scatter_tile::<2>(ids, &residuals, bytes, &mut places, overflows),
                _ => scatter_tile::<4>(ids, &residuals, bytes, &mut places, overflows),
            }
            if !portable::are_within(&places) || overflows.len() > most_overflows(m.len) {
                return false;
            }
        }
        trim(streams, places.iter().flatten());
        true
    }

    pub(in crate::arch) fn gather(m: &Model<'_>, streams: &Streams, out: &mut [u8]) -> bool {
        let Some(f) = dealer(m) else { return portable::restore(m, streams, out) };
        let mut ids = [NO_CONTEXT; TILE];
        portable::restore_tiles(m, f.keys.contexts, streams, out, |i, n, bytes, places, to| {
            let ids = find(&f, i, n, &mut ids);
            match m.width {
                1 => gather_tile::<1>(ids, bytes, places, to),
                2 => gather_tile::<2>(ids, bytes, places, to),
                _ => gather_tile::<4>(ids, bytes, places, to),
            }
        })
    }

    pub(in crate::arch) fn undo(m: &Model<'_>, out: &mut [u8]) {
        portable::restore_in_place(m, out);
    }

    /// The elements of a context.
    fn mask(ids: __m256i, context: __m256i) -> u32 {
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(ids, context)).cast_unsigned()
    }
}
