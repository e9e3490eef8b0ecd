//! The predict stage: residuals by context and back.
//!
//! A tile's contexts are found first; scattering and gathering it is in [`scatter`](super::scatter).

use super::scatter::{Ahead, Bytes, Elements, STEP, gather_tile, lowest_bytes, scatter_tile};
use super::{expect, load, store};
use crate::inline::{Each, array, zip};
use crate::predict::job::{Model, Rank, RowTerms, Streams, TILE, most_overflows, places_by_width, trim};
use crate::predict::partition::{self as portable, CONTEXTS, keys_of, of_tile};
use crate::predict::residual;
use crate::predict::select::Selection;
use std::arch::x86_64::*;

/// Steps that are searched together for elements.
const STEPS: usize = 4;

/// The context of padding.
const NO_CONTEXT: u8 = u8::MAX;

/// Finds the contexts of elements.
struct Finder<'a> {
    prediction: &'a [u8],
    width: usize,
    terms: Option<RowTerms<'a>>,
    /// The context of every key.
    table: [__m512i; 4],
    contexts: usize,
}

kernels! {
    pub(in crate::arch) fn count(m: &Model<'_>) -> Vec<usize> {
        let Some(f) = finder(m) else { return vec![m.len] };
        let mut counts = vec![0; f.contexts];
        let mut ids = Bytes([NO_CONTEXT; TILE]);
        for i in (0..m.len).step_by(TILE) {
            expect::<_MM_HINT_T0>(of_next(m.prediction, i, m.width));
            let ids = find(&f, i, TILE.min(m.len - i), &mut ids);
            for (context, count) in counts.iter_mut().enumerate() {
                let context = _mm512_set1_epi8(context as i8);
                for ids in ids {
                    *count += _mm512_cmpeq_epi8_mask(load(ids), context).count_ones() as usize;
                }
            }
        }
        counts
    }

    pub(in crate::arch) fn rank(m: &Model<'_>, at: &[u32], ranks: &mut Vec<Rank>) -> Vec<usize> {
        let Some(f) = finder(m) else { return portable::rank(m, at, ranks) };
        let mut counts = vec![0; f.contexts];
        let mut ids = Bytes([NO_CONTEXT; TILE]);
        // By context: the number of elements before each step of a tile.
        let mut before = [[0; TILE / STEP]; CONTEXTS];
        let mut left = at;
        for i in (0..m.len).step_by(TILE) {
            let n = TILE.min(m.len - i);
            expect::<_MM_HINT_T0>(of_next(m.prediction, i, m.width));
            let ids = find(&f, i, n, &mut ids);
            for (context, count) in counts.iter_mut().enumerate() {
                let before = &mut before[context];
                let context = _mm512_set1_epi8(context as i8);
                for (i, ids) in ids.iter().enumerate() {
                    before[i] = *count as u32;
                    *count += _mm512_cmpeq_epi8_mask(load(ids), context).count_ones() as usize;
                }
            }
            for e in of_tile(&mut left, i, n) {
                let (step, lane) = (e / STEP, e % STEP);
                let context = ids[step][lane];
                let mask = _mm512_cmpeq_epi8_mask(load(&ids[step]), _mm512_set1_epi8(context.cast_signed()));
                let before = before[usize::from(context)][step] + (mask & ((1 << lane) - 1)).count_ones();
                ranks.push(Rank { context, before });
            }
        }
        counts
    }

    pub(in crate::arch) fn select(m: &Model<'_>, selections: &mut [Selection<'_>]) {
        let Some(f) = finder(m) else { return portable::select(m, selections) };
        let mut ids = Bytes([NO_CONTEXT; TILE]);
        for i in (0..m.len).step_by(TILE) {
            expect::<_MM_HINT_T0>(of_next(m.prediction, i, m.width));
            let ids = find(&f, i, TILE.min(m.len - i), &mut ids);
            for (context, selection) in selections.iter_mut().enumerate() {
                let context = _mm512_set1_epi8(context as i8);
                if selection.pass(in_context(ids, context)) {
                    continue;
                }
                for (j, ids) in ids.chunks(STEPS).enumerate() {
                    let i = (i + j * STEPS * STEP) as u32;
                    let masks: [u64; STEPS] =
                        array(|j| ids.get(j).map_or(0, |ids| _mm512_cmpeq_epi8_mask(load(ids), context)));
                    // Processors with AVX-512 have a fast `pdep`.
                    selection.step(i, masks, |mask, n| _pdep_u64(1 << n, mask).trailing_zeros());
                }
            }
        }
    }

    /// The number of elements of a context in a tile.
    fn in_context(ids: &[[u8; STEP]], context: __m512i) -> u32 {
        let counts = ids.iter().fold(_mm512_setzero_si512(), |counts, ids| {
            let mask = _mm512_cmpeq_epi8_mask(load(ids), context);
            _mm512_mask_add_epi8(counts, mask, counts, _mm512_set1_epi8(1))
        });
        _mm512_reduce_add_epi64(_mm512_sad_epu8(counts, _mm512_setzero_si512())) as u32
    }

    pub(in crate::arch) fn scatter(m: &Model<'_>, elements: &[u8], streams: &mut Streams) -> bool {
        let Some(f) = finder(m) else { return portable::partition(m, elements, streams) };
        let (bytes, streams, overflows) = streams.raw_parts_mut();
        let mut places = places_by_width(bytes.len(), streams, f.contexts, m.width);
        let mut ids = Bytes([NO_CONTEXT; TILE]);
        let mut residuals = Elements([0; 8 * TILE]);
        let mut lowest = Bytes([0; TILE]);
        let tile = TILE * m.width;
        for (i, of_tile) in elements.chunks(tile).enumerate() {
            let n = of_tile.len();
            let predictions = of_next(m.prediction, i * TILE, m.width);
            let ahead = Ahead { elements: of_next(elements, i * TILE, m.width), predictions };
            residual::residuals(m.width, of_tile, m.predictions(i * TILE, n), &mut residuals.0[..n]);
            let ids = find(&f, i * TILE, n / m.width, &mut ids);
            let residuals = residuals.0.as_chunks().0;
            let there = match m.width {
                1 => scatter_tile::<1>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
                2 => scatter_tile::<2>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
                4 => scatter_tile::<4>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
                _ => scatter_tile::<8>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
            };
            if !there || overflows.len() > most_overflows(m.len) {
                return false;
            }
        }
        trim(streams, places.iter().flatten());
        true
    }

    pub(in crate::arch) fn gather(m: &Model<'_>, streams: &Streams, out: &mut [u8]) -> bool {
        let Some(f) = finder(m) else { return portable::restore(m, streams, out) };
        let (bytes, streams) = streams.raw_parts();
        let mut places = places_by_width(bytes.len(), streams, f.contexts, m.width);
        let mut ids = Bytes([NO_CONTEXT; TILE]);
        let mut last = Elements([0; 8 * TILE]);
        let mut lowest = Bytes([0; TILE]);
        let tile = TILE * m.width;
        for i in 0..m.len.div_ceil(TILE) {
            let (out, rest) = out[i * tile..].split_at_mut(tile.min(m.len * m.width - i * tile));
            let predictions = of_next(m.prediction, i * TILE, m.width);
            let ahead = Ahead { elements: &rest[..tile.min(rest.len())], predictions };
            let n = out.len();
            let ids = find(&f, i * TILE, n / m.width, &mut ids);
            let whole = n == tile;
            let to = if whole { &mut *out } else { &mut last.0 }.as_chunks_mut().0;
            let there = match m.width {
                1 => gather_tile::<1>(ids, &mut lowest, bytes, &mut places, to, ahead),
                2 => gather_tile::<2>(ids, &mut lowest, bytes, &mut places, to, ahead),
                4 => gather_tile::<4>(ids, &mut lowest, bytes, &mut places, to, ahead),
                _ => gather_tile::<8>(ids, &mut lowest, bytes, &mut places, to, ahead),
            };
            if !there {
                return false;
            }
            if !whole {
                out.copy_from_slice(&last.0[..n]);
            }
            residual::restore(m.width, m.predictions(i * TILE, n), out);
        }
        places.iter().flatten().all(|p| p.next == p.end)
    }

    /// The bytes of the tile after that of element `i`, in an array with some bytes per element.
    fn of_next(bytes: &[u8], i: usize, width: usize) -> &[u8] {
        bytes.get((i + TILE) * width..).map_or(&[], |next| &next[..next.len().min(TILE * width)])
    }

    pub(in crate::arch) fn undo(m: &Model<'_>, out: &mut [u8]) {
        portable::restore_in_place(m, out);
    }

    /// `None` if there is a single context.
    fn finder<'a>(m: &Model<'a>) -> Option<Finder<'a>> {
        let contexts = m.contexts?;
        let table = contexts.table();
        Some(Finder {
            prediction: m.prediction,
            width: m.width,
            terms: m.terms,
            table: array(|i| load(&table.as_chunks().0[i])),
            contexts: contexts.count(),
        })
    }

    /// The contexts of `n` elements, from element `i` on; behind the last one [`NO_CONTEXT`].
    fn find<'k>(f: &Finder<'_>, i: usize, n: usize, ids: &'k mut Bytes) -> &'k [[u8; STEP]] {
        let prediction = &f.prediction[i * f.width..(i + n) * f.width];
        let steps = &mut ids.0.as_chunks_mut().0[..n.div_ceil(STEP)];
        match (f.terms, f.width) {
            (Some(terms), width) => {
                let mut keys = [0; TILE];
                keys_of(width, prediction, &mut keys[..n]);
                terms.subtract(i, &mut keys[..n]);
                zip(&mut *steps, keys.as_chunks().0, |ids, keys| store(ids, contexts(f, load(keys))));
            }
            (None, 1) => find_as::<1>(f, prediction, steps),
            (None, 2) => find_as::<2>(f, prediction, steps),
            (None, 4) => find_as::<4>(f, prediction, steps),
            (None, _) => find_as::<8>(f, prediction, steps),
        }
        steps.as_flattened_mut()[n..].fill(NO_CONTEXT);
        steps
    }

    fn find_as<const WIDTH: usize>(f: &Finder<'_>, prediction: &[u8], ids: &mut [[u8; STEP]]) {
        let steps = prediction.as_chunks::<64>().0.as_chunks::<WIDTH>().0;
        let contexts_of = |prediction: &[[u8; 64]; WIDTH]| contexts(f, keys::<WIDTH>(array(|j| load(&prediction[j]))));
        zip(&mut *ids, steps, |ids, prediction| store(ids, contexts_of(prediction)));
        if let Some(ids) = ids.get_mut(steps.len()) {
            let mut last = [[0; 64]; WIDTH];
            let rest = &prediction[steps.len() * 64 * WIDTH..];
            last.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
            store(ids, contexts_of(&last));
        }
    }

    /// The contexts of 64 elements with these keys.
    fn contexts(f: &Finder<'_>, keys: __m512i) -> __m512i {
        let [a, b, c, d] = f.table;
        let (low, high) = (_mm512_permutex2var_epi8(a, keys, b), _mm512_permutex2var_epi8(c, keys, d));
        _mm512_mask_blend_epi8(_mm512_movepi8_mask(keys), low, high)
    }

    /// The keys of 64 elements: the top byte of each, rotated left by one. Of longer ones than bytes, the bits below the sign.
    fn keys<const WIDTH: usize>(v: [__m512i; WIDTH]) -> __m512i {
        match WIDTH {
            1 => {
                let twice = _mm512_add_epi8(v[0], v[0]);
                _mm512_mask_sub_epi8(twice, _mm512_movepi8_mask(v[0]), twice, _mm512_set1_epi8(-1))
            }
            2 => lowest_bytes(&v.each(|v| _mm512_srli_epi16::<7>(v))),
            4 => lowest_bytes(&v.each(|v| _mm512_srli_epi32::<23>(v))),
            _ => lowest_bytes(&v.each(|v| _mm512_srli_epi64::<55>(v))),
        }
    }
}
