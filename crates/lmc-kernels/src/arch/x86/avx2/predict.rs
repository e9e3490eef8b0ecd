//! The predict stage: residuals by context and back.
//!
//! Every context has a mask of 32 elements; to scatter, a table has, for eight bits of it, the shuffle that moves their elements to the
//! front. That, and gathering in [`gather`](super::gather), is for elements of two and four bytes. All else is the portable loops, which
//! the compiler turns into vectors where elements do not depend on one another.

use super::contexts::{ContextFinder, NO_CONTEXT, STEP, find, finder, pack};
use super::gather::gather_tile;
use super::{at, load, load_16, store};
use crate::cluster::element::with_element;
use crate::inline::{Each, array};
use crate::predict::job::{Model, Overflow, Place, Rank, Streams, TILE, most_overflows, places, places_by_width, trim};
use crate::predict::partition::{self as portable, CONTEXTS, note_overflows, of_tile};
use crate::predict::residual;
use crate::predict::select::{Selection, nth_one};
use std::arch::x86_64::*;

/// Steps that one count of a context covers.
const STEPS: usize = 8;

kernels! {
    /// Finds contexts for scattering and gathering, where elements have a width that kernels are made for.
    fn dealer<'a>(m: &Model<'a>) -> Option<ContextFinder<'a>> {
        if matches!(m.width, 2 | 4) { finder(m) } else { None }
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
        let mut places = places(bytes.len(), streams, f.keys.contexts, m.width);
        let mut ids = [NO_CONTEXT; TILE];
        let mut residuals = [0; 4 * TILE];
        for (i, elements) in elements.chunks(TILE * m.width).enumerate() {
            let n = elements.len();
            residual::residuals(m.width, m.predictor, elements, m.predictions(i * TILE, n), &mut residuals[..n]);
            let ids = find(&f, i * TILE, n / m.width, &mut ids);
            let there = match m.width {
                2 => scatter_tile::<2>(ids, &residuals, bytes, &mut places, overflows),
                _ => scatter_tile::<4>(ids, &residuals, bytes, &mut places, overflows),
            };
            if !there || overflows.len() > most_overflows(m.len) {
                return false;
            }
        }
        trim(streams, &places);
        true
    }

    fn scatter_tile<const WIDTH: usize>(
        ids: &[[u8; STEP]], residuals: &[u8], bytes: &mut [u8], places: &mut [Place], overflows: &mut Vec<Overflow>
    ) -> bool {
        let single = singles::<WIDTH>(places);
        for (i, step) in ids.iter().enumerate() {
            let residuals = &residuals[i * STEP * WIDTH..][..STEP * WIDTH];
            let ids = load(step);
            let (lowest, large) = lowest_bytes::<WIDTH>(residuals);
            if _mm256_testz_si256(_mm256_shuffle_epi8(single, ids), large) == 0 {
                with_element!(WIDTH, E => note_overflows::<E>(step, residuals, places, overflows));
            }
            let mut context = _mm256_setzero_si256();
            for place in &mut *places {
                let mask = mask(ids, context);
                context = _mm256_add_epi8(context, _mm256_set1_epi8(1));
                let mut to = place.next;
                let n = mask.count_ones() as usize;
                place.next += if place.width == 1 { n } else { WIDTH * n };
                if place.next > place.end {
                    return false;
                }
                for (j, lowest) in lowest.as_chunks::<8>().0.iter().enumerate() {
                    let eight = usize::from((mask >> (8 * j)) as u8);
                    // SAFETY: `to` is at most `place.end`, behind which there are `BEHIND` bytes: `places` made sure.
                    let to_bytes = unsafe { bytes.as_mut_ptr().add(to) };
                    if place.width == 1 {
                        let v = _mm_shuffle_epi8(load_8(lowest), load_8(&FRONT[eight]));
                        // SAFETY: as above.
                        unsafe { _mm_storel_epi64(to_bytes.cast(), v) };
                    } else if WIDTH == 2 {
                        let v = _mm_shuffle_epi8(load_16(at(residuals, 16 * j)), load_16(&FRONT_2[eight]));
                        // SAFETY: as above.
                        unsafe { _mm_storeu_si128(to_bytes.cast(), v) };
                    } else {
                        let v = _mm256_permutevar8x32_epi32(load(at(residuals, 32 * j)), dwords(&FRONT[eight]));
                        // SAFETY: as above.
                        unsafe { _mm256_storeu_si256(to_bytes.cast(), v) };
                    }
                    to += place.width * eight.count_ones() as usize;
                }
            }
        }
        true
    }

    /// Byte `c` of either half: whether the stream of context `c` is byte-wide, for wider elements.
    fn singles<const WIDTH: usize>(places: &[Place]) -> __m256i {
        let single = |c: usize| places.get(c).is_some_and(|p| p.width < WIDTH);
        load(&array(|i| if single(i % 16) { 0xff } else { 0 }))
    }

    /// The lowest byte of each of 32 elements, and for each a byte that is not 0 if the element exceeds it.
    fn lowest_bytes<const WIDTH: usize>(elements: &[u8]) -> ([u8; STEP], __m256i) {
        let v: [__m256i; WIDTH] = array(|i| load(at(elements, 32 * i)));
        let (lowest, large) = if WIDTH == 2 {
            let low = v.each(|v| _mm256_and_si256(v, _mm256_set1_epi16(0xff)));
            (low, v.each(|v| _mm256_srli_epi16::<8>(v)))
        } else {
            let low = v.each(|v| _mm256_and_si256(v, _mm256_set1_epi32(0xff)));
            (low, v.each(|v| _mm256_min_epu32(_mm256_srli_epi32::<8>(v), _mm256_set1_epi32(0xff))))
        };
        let mut bytes = [0; STEP];
        store(&mut bytes, pack(lowest));
        (bytes, pack(large))
    }

    pub(in crate::arch) fn gather(m: &Model<'_>, streams: &Streams, out: &mut [u8]) -> bool {
        let Some(f) = dealer(m) else { return portable::restore(m, streams, out) };
        let (bytes, streams) = streams.raw_parts();
        let mut places = places_by_width(bytes.len(), streams, f.keys.contexts, m.width);
        let mut ids = [NO_CONTEXT; TILE];
        let mut last = [0; 4 * TILE];
        for (i, out) in out.chunks_mut(TILE * m.width).enumerate() {
            let n = out.len();
            let ids = find(&f, i * TILE, n / m.width, &mut ids);
            let whole = n == TILE * m.width;
            let to = if whole { &mut *out } else { &mut last[..] };
            match m.width {
                2 => gather_tile::<2>(ids, bytes, &mut places, to),
                _ => gather_tile::<4>(ids, bytes, &mut places, to),
            }
            // Once a tile: behind the end of a stream there is room for one.
            if places.iter().flatten().any(|p| p.next > p.end) {
                return false;
            }
            if !whole {
                out.copy_from_slice(&last[..n]);
            }
            residual::restore(m.width, m.predictor, m.predictions(i * TILE, n), out);
        }
        places.iter().flatten().all(|p| p.next == p.end)
    }

    pub(in crate::arch) fn undo(m: &Model<'_>, out: &mut [u8]) {
        portable::restore_in_place(m, out);
    }

    /// The elements of a context.
    fn mask(ids: __m256i, context: __m256i) -> u32 {
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(ids, context)).cast_unsigned()
    }

    fn load_8(bytes: &[u8; 8]) -> __m128i {
        _mm_cvtsi64_si128(i64::from_le_bytes(*bytes))
    }

    /// Eight bytes as dwords, with their sign.
    fn dwords(bytes: &[u8; 8]) -> __m256i {
        _mm256_cvtepi8_epi32(load_8(bytes))
    }
}

/// By the mask of eight elements: their permutation, those in the mask first.
static FRONT: [[u8; 8]; 256] = front();
/// The same for the bytes of words.
static FRONT_2: [[u8; 16]; 256] = words(&front());

const fn front() -> [[u8; 8]; 256] {
    let mut t = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            if (mask >> lane) & 1 == 1 {
                t[mask][next] = lane as u8;
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    t
}

const fn words(elements: &[[u8; 8]; 256]) -> [[u8; 16]; 256] {
    let mut t = [[0x80; 16]; 256];
    let mut i = 0;
    while i < 256 * 8 {
        let of = elements[i / 8][i % 8];
        if of < 8 {
            t[i / 8][2 * (i % 8)] = 2 * of;
            t[i / 8][2 * (i % 8) + 1] = 2 * of + 1;
        }
        i += 1;
    }
    t
}
