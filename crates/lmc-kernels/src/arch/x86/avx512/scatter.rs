//! Scatters a tile of residuals to the streams of their contexts, and gathers them from there.
//!
//! A step processes 64 elements, with their contexts in one register; comparing it with a context gives a mask. To scatter, the lane
//! numbers in the mask are compressed, as bytes for any element width, and index the residuals that are appended to the context's
//! stream, mostly in one register. To gather, residuals are expanded from the stream. Stores and loads are whole registers: every stream
//! is followed by room for one. In byte-wide streams of wider elements, the bytes themselves are compressed and expanded, 64 at once.
//!
//! A branchless loop processes a tile for a few contexts at a time, as many as keep the ends of their streams in registers. If all of
//! these streams have room for the whole tile, nothing is checked; otherwise contexts are processed one by one, and checked at each step.
//! Gathering past a stream's end, where there are bytes for a tile, is detected after the tile.
//!
//! For contexts with whole elements the cache lines of the next tile are prefetched between the steps of this one: to prefetch all at once
//! stalls the processor.
//!
//! On Zen 5 a compress waits for its destination even where the mask zeroes it: those here keep the contents of their
//! source, so that both are one register. Measured and not taken (decision 4): skipping contexts that have none of
//! the 64 elements; stores of 16 bytes for rare contexts; taking rare contexts together first, and apart from there;
//! collecting into one sorted register and permuting that.

use super::{every, expect_lines, in_register, index, load, store};
use crate::cluster::element::{Element, with_element};
use crate::inline::{Each, array, zip};
use crate::predict::job::TILE;
use crate::predict::job::{BEHIND, Overflow, Place};
use std::arch::x86_64::*;

/// Elements taken at once.
pub(super) const STEP: usize = 64;
/// Most contexts that go through a tile together: of single bytes, and of whole elements.
const SINGLES: usize = 16;
const WHOLES: usize = 8;

/// A byte for every element of a tile.
#[repr(align(64))]
pub(super) struct Bytes(pub(super) [u8; TILE]);

/// The elements of a tile, of any width.
#[repr(align(64))]
pub(super) struct Elements(pub(super) [u8; 8 * TILE]);

/// Memory that the next tile touches, mostly for the first time; or nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead<'a> {
    /// Its elements, read when they are scattered and written when they are gathered.
    pub(super) elements: &'a [u8],
    pub(super) predictions: &'a [u8],
}

/// Calls with a number of contexts that the compiler knows.
macro_rules! counted {
    ($places:expr, $n:ident => $call:expr, $($number:literal)*) => {
        match $places.len() {
            $($number => { const $n: usize = $number; $call })*
            n => unreachable!("{n} contexts in a cluster"),
        }
    };
}

/// Whether a stream has room for a tile of this many steps, all of one context.
fn has_room(place: &Place, steps: usize) -> bool {
    place.end - place.next >= steps * STEP * place.width
}

/// Loads and stores rely on this: no place is behind its stream's end, and behind the end there is room for a tile and
/// a register.
fn check(places: &[Place], width: usize, bytes: &[u8]) {
    let valid =
        |p: &Place| p.width == width && p.next <= p.end && p.end <= bytes.len() && BEHIND <= bytes.len() - p.end;
    assert!(places.iter().all(valid), "streams have room behind them");
}

kernels! {
    /// Scatters the residuals of a tile; `lowest` is working memory. False if a stream lacks room.
    pub(super) fn scatter_tile<const WIDTH: usize>(
        ids: &[[u8; STEP]], residuals: &[[u8; 64]], lowest: &mut Bytes, bytes: &mut [u8], places: &mut [Vec<Place>; 2],
        overflows: &mut Vec<Overflow>, mut ahead: Ahead<'_>
    ) -> bool {
        let residuals = residuals.as_chunks::<WIDTH>().0;
        let [single, whole] = places;
        if WIDTH == 1 || whole.is_empty() {
            for i in 0..ids.len() {
                ask::<WIDTH, _MM_HINT_T0>(&ahead, i);
            }
        }
        if !single.is_empty() {
            let lowest = &mut lowest.0.as_chunks_mut().0[..ids.len()];
            byte_wide(ids, residuals, lowest, single, overflows);
            for cluster in single.chunks_mut(SINGLES) {
                let there = if cluster.iter().all(|p| has_room(p, ids.len())) {
                    counted!(cluster, N => scatter_singles::<N, false>(ids, lowest, bytes, cluster), 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
                } else {
                    cluster.chunks_mut(1).all(|cluster| scatter_singles::<1, true>(ids, lowest, bytes, cluster))
                };
                if !there {
                    return false;
                }
            }
        }
        // Elements of one byte have no streams of whole elements.
        WIDTH == 1 || whole.chunks_mut(WHOLES).all(|cluster| {
            if cluster.iter().all(|p| has_room(p, ids.len())) {
                let ahead = std::mem::take(&mut ahead);
                counted!(cluster, N => scatter_wholes::<WIDTH, N, false>(ids, residuals, bytes, cluster, ahead), 1 2 3 4 5 6 7 8)
            } else {
                cluster.chunks_mut(1).all(|cluster| {
                    scatter_wholes::<WIDTH, 1, true>(ids, residuals, bytes, cluster, std::mem::take(&mut ahead))
                })
            }
        })
    }

    /// Prefetches the cache lines of a step of the next tile; those of its elements with this hint.
    fn ask<const WIDTH: usize, const HINT: i32>(ahead: &Ahead<'_>, step: usize) {
        if let Some(elements) = ahead.elements.as_chunks::<64>().0.as_chunks::<WIDTH>().0.get(step) {
            expect_lines::<HINT>(elements);
        }
        if let Some(predictions) = ahead.predictions.as_chunks::<64>().0.as_chunks::<WIDTH>().0.get(step) {
            expect_lines::<_MM_HINT_T0>(predictions);
        }
    }

    /// Stores the lowest bytes of residuals, and records the residuals of contexts in `single` that exceed a byte.
    fn byte_wide<const WIDTH: usize>(
        ids: &[[u8; STEP]], residuals: &[[[u8; 64]; WIDTH]], lowest: &mut [[u8; STEP]], single: &[Place],
        overflows: &mut Vec<Overflow>
    ) {
        let has_single = singles(single);
        for (i, to) in lowest[..residuals.len().min(ids.len())].iter_mut().enumerate() {
            let residuals = &residuals[i];
            let of_step = load(&ids[i]);
            let v: [__m512i; WIDTH] = array(|j| load(&residuals[j]));
            store(to, lowest_bytes(&v));
            // Contexts are below 64; padding has a number above.
            let fits = !_mm512_movepi8_mask(_mm512_permutexvar_epi8(of_step, has_single)) | _mm512_movepi8_mask(of_step);
            let over = large(&v) & !fits;
            if over != 0 {
                note_overflows(&ids[..=i], residuals, over, single, overflows);
            }
        }
    }

    /// Notes the elements of the last step that are in `over`. The places are those before the first step.
    fn note_overflows<const WIDTH: usize>(
        ids: &[[u8; STEP]], residuals: &[[u8; 64]; WIDTH], mut over: u64, single: &[Place], overflows: &mut Vec<Overflow>
    ) {
        let (last, before) = ids.split_last().expect("a step");
        while over != 0 {
            let lane = over.trailing_zeros() as usize;
            over &= over - 1;
            let context = last[lane];
            let place = single.iter().find(|p| p.context == context).expect("a context of single bytes");
            let equal = |ids| _mm512_cmpeq_epi8_mask(load(ids), _mm512_set1_epi8(context.cast_signed()));
            let in_step = (equal(last) & ((1 << lane) - 1)).count_ones();
            let at = before.iter().fold(in_step, |n, ids| n + equal(ids).count_ones()) as usize;
            let residual = with_element!(WIDTH, E => E::load(&residuals.as_flattened()[lane * WIDTH..]).wide());
            overflows.push(Overflow { context, at: place.next - place.first + at, residual });
        }
    }

    /// Scatters single bytes to N contexts. Unless `CHECKED`, their streams have room for the tile.
    fn scatter_singles<const N: usize, const CHECKED: bool>(
        ids: &[[u8; STEP]], lowest: &[[u8; STEP]], bytes: &mut [u8], places: &mut [Place]
    ) -> bool {
        check(places, 1, bytes);
        assert!(CHECKED || places.iter().all(|p| has_room(p, ids.len())), "room for a tile");
        let places: &mut [Place; N] = places.try_into().expect("N contexts");
        let mut next = places.each(|p| p.next);
        let context = places.each(|p| _mm512_set1_epi8(p.context.cast_signed()));
        for (i, ids) in ids[..lowest.len().min(ids.len())].iter().enumerate() {
            let (ids, lowest) = (load(ids), load(&lowest[i]));
            for i in 0..N {
                let mask = _mm512_cmpeq_epi8_mask(ids, context[i]);
                let packed = _mm512_mask_compress_epi8(lowest, mask, lowest);
                // SAFETY: `next` is at most the stream's end: there was room for the tile, or it was checked below. Behind that there
                // are 64 bytes.
                unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().add(next[i]).cast(), packed) };
                next[i] += mask.count_ones() as usize;
                if CHECKED && next[i] > places[i].end {
                    return false;
                }
            }
        }
        zip(places, &next, |p, &next| p.next = next);
        true
    }

    /// For streams of whole elements.
    fn scatter_wholes<const WIDTH: usize, const N: usize, const CHECKED: bool>(
        ids: &[[u8; STEP]], residuals: &[[[u8; 64]; WIDTH]], bytes: &mut [u8], places: &mut [Place], ahead: Ahead<'_>
    ) -> bool {
        check(places, WIDTH, bytes);
        assert!(CHECKED || places.iter().all(|p| has_room(p, ids.len())), "room for a tile");
        let places: &mut [Place; N] = places.try_into().expect("N contexts");
        let mut next = places.each(|p| p.next);
        let context = places.each(|p| _mm512_set1_epi8(p.context.cast_signed()));
        let iota = index(array(|i| i as u8));
        let lanes = 64 / WIDTH;
        for (i, ids) in ids[..residuals.len().min(ids.len())].iter().enumerate() {
            let residuals = &residuals[i];
            ask::<WIDTH, _MM_HINT_T0>(&ahead, i);
            let ids = load(ids);
            let residuals: [__m512i; WIDTH] = array(|j| load(&residuals[j]));
            for i in 0..N {
                let mask = _mm512_cmpeq_epi8_mask(ids, context[i]);
                let n = mask.count_ones() as usize;
                let at = next[i];
                next[i] += WIDTH * n;
                if CHECKED && next[i] > places[i].end {
                    return false;
                }
                let mut order = _mm512_mask_compress_epi8(iota, mask, iota);
                // SAFETY: the next place is at most the stream's end: there was room for the tile, or it was checked. Behind that
                // there are 64 bytes.
                let to = unsafe { bytes.as_mut_ptr().add(at) };
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(to.cast(), pick(&residuals, order)) };
                let mut done = lanes;
                while n > done {
                    order = next_lanes::<WIDTH>(order);
                    // SAFETY: `done` of the elements up to the next place went before.
                    unsafe { _mm512_storeu_si512(to.add(WIDTH * done).cast(), pick(&residuals, order)) };
                    done += lanes;
                }
            }
        }
        zip(places, &next, |p, &next| p.next = next);
        true
    }

    /// Bit 7 of byte `c` says whether context `c` has one of these places.
    fn singles(places: &[Place]) -> __m512i {
        let mut of = [0; 64];
        places.iter().for_each(|p| of[usize::from(p.context)] = 0x80);
        index(of)
    }

    /// The lowest byte of each element.
    fn lowest_bytes<const WIDTH: usize>(v: &[__m512i; WIDTH]) -> __m512i {
        match WIDTH {
            1 => v[0],
            2 => _mm512_permutex2var_epi8(v[0], index(every(2, 0)), v[1]),
            4 => {
                let pair = |i: usize| _mm512_castsi512_si256(_mm512_permutex2var_epi8(v[i], index(every(4, 0)), v[i + 1]));
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(pair(0)), pair(2))
            }
            _ => {
                let pair = |i: usize| _mm512_castsi512_si128(_mm512_permutex2var_epi8(v[i], index(every(8, 0)), v[i + 1]));
                let v = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(pair(0)), pair(2));
                _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(v, pair(4)), pair(6))
            }
        }
    }

    /// The elements that a byte does not hold.
    fn large<const WIDTH: usize>(v: &[__m512i; WIDTH]) -> u64 {
        v.iter().enumerate().fold(0, |all, (i, &v)| {
            let large = match WIDTH {
                1 => 0,
                2 => u64::from(_mm512_test_epi16_mask(v, _mm512_set1_epi16(!0xff))),
                4 => u64::from(_mm512_test_epi32_mask(v, _mm512_set1_epi32(!0xff))),
                _ => u64::from(_mm512_test_epi64_mask(v, _mm512_set1_epi64(!0xff))),
            };
            all | large << (64 / WIDTH * i)
        })
    }

    /// Each of 64 bytes as an element.
    fn widened<const WIDTH: usize>(v: __m512i) -> [__m512i; WIDTH] {
        array(|i| match (WIDTH, i) {
            (1, _) => v,
            (2, 0) => _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)),
            (2, _) => _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(v)),
            (4, 0) => _mm512_cvtepu8_epi32(_mm512_castsi512_si128(v)),
            (4, 1) => _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32::<1>(v)),
            (4, 2) => _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32::<2>(v)),
            (4, _) => _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32::<3>(v)),
            (_, i) => {
                let eight = _mm512_maskz_compress_epi64(1 << i, v);
                _mm512_cvtepu8_epi64(_mm512_castsi512_si128(eight))
            }
        })
    }

    /// The elements that the lowest bytes of `order` name, of the elements in `v`.
    fn pick<const WIDTH: usize>(v: &[__m512i; WIDTH], order: __m512i) -> __m512i {
        match WIDTH {
            2 => _mm512_permutex2var_epi16(v[0], _mm512_cvtepu8_epi16(_mm512_castsi512_si256(order)), v[1]),
            4 => {
                let i = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(order));
                let a = _mm512_permutex2var_epi32(v[0], i, v[1]);
                let b = _mm512_permutex2var_epi32(v[2], i, v[3]);
                _mm512_mask_blend_epi32(_mm512_test_epi32_mask(i, _mm512_set1_epi32(32)), a, b)
            }
            _ => {
                let i = _mm512_cvtepu8_epi64(_mm512_castsi512_si128(order));
                let second = _mm512_test_epi64_mask(i, _mm512_set1_epi64(16));
                let a = _mm512_mask_blend_epi64(
                    second,
                    _mm512_permutex2var_epi64(v[0], i, v[1]),
                    _mm512_permutex2var_epi64(v[2], i, v[3]),
                );
                let b = _mm512_mask_blend_epi64(
                    second,
                    _mm512_permutex2var_epi64(v[4], i, v[5]),
                    _mm512_permutex2var_epi64(v[6], i, v[7]),
                );
                _mm512_mask_blend_epi64(_mm512_test_epi64_mask(i, _mm512_set1_epi64(32)), a, b)
            }
        }
    }

    /// Moves the bytes behind those that [`pick`] takes to the bottom.
    fn next_lanes<const WIDTH: usize>(order: __m512i) -> __m512i {
        match WIDTH {
            2 => _mm512_shuffle_i64x2::<0b11_10>(order, order),
            4 => _mm512_shuffle_i64x2::<0b11_10_01>(order, order),
            _ => _mm512_alignr_epi64::<1>(order, order),
        }
    }

    /// Gathers the residuals of a tile; `lowest` is working memory. False where a stream ends.
    pub(super) fn gather_tile<const WIDTH: usize>(
        ids: &[[u8; STEP]], lowest: &mut Bytes, bytes: &[u8], places: &mut [Vec<Place>; 2], to: &mut [[u8; 64]],
        mut ahead: Ahead<'_>
    ) -> bool {
        let to = &mut to.as_chunks_mut::<WIDTH>().0[..ids.len()];
        let [single, whole] = places;
        if WIDTH == 1 || whole.is_empty() {
            for i in 0..ids.len() {
                ask::<WIDTH, _MM_HINT_ET0>(&ahead, i);
            }
        }
        let lowest = &mut lowest.0.as_chunks_mut().0[..ids.len()];
        lowest.as_flattened_mut().fill(0);
        for cluster in single.chunks_mut(SINGLES) {
            let there =
                counted!(cluster, N => gather_singles::<N>(ids, bytes, cluster, lowest), 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
            if !there {
                return false;
            }
        }
        zip(to, lowest, |to, lowest| zip(to, &widened::<WIDTH>(load(lowest)), |to, &v| store(to, v)));
        // Elements of one byte have no streams of whole elements.
        WIDTH == 1 || whole.chunks_mut(WHOLES).all(|cluster| {
            let ahead = std::mem::take(&mut ahead);
            counted!(cluster, N => gather_wholes::<WIDTH, N>(ids, bytes, cluster, to, ahead), 1 2 3 4 5 6 7 8)
        })
    }

    /// Puts the single bytes of N contexts into `to`.
    fn gather_singles<const N: usize>(
        ids: &[[u8; STEP]], bytes: &[u8], places: &mut [Place], to: &mut [[u8; STEP]]
    ) -> bool {
        check(places, 1, bytes);
        assert!(ids.len() <= TILE / STEP, "a tile");
        let places: &mut [Place; N] = places.try_into().expect("N contexts");
        let mut next = places.each(|p| p.next);
        let context = places.each(|p| _mm512_set1_epi8(p.context.cast_signed()));
        zip(to, ids, |to, ids| {
            let ids = load(ids);
            let mut v = load(to);
            for i in 0..N {
                let mask = _mm512_cmpeq_epi8_mask(ids, context[i]);
                // SAFETY: `next` was not behind the stream's end, and since then there was less than a tile; behind that there
                // are 64 bytes.
                let from = in_register(unsafe { _mm512_loadu_si512(bytes.as_ptr().add(next[i]).cast()) });
                v = _mm512_or_si512(v, _mm512_maskz_expand_epi8(mask, from));
                next[i] += mask.count_ones() as usize;
            }
            store(to, v);
        });
        zip(places, &next, |p, &next| p.next = next);
        places.iter().all(|p| p.next <= p.end)
    }

    /// For streams of whole elements.
    fn gather_wholes<const WIDTH: usize, const N: usize>(
        ids: &[[u8; STEP]], bytes: &[u8], places: &mut [Place], to: &mut [[[u8; 64]; WIDTH]], ahead: Ahead<'_>
    ) -> bool {
        check(places, WIDTH, bytes);
        assert!(ids.len() <= TILE / STEP, "a tile");
        let places: &mut [Place; N] = places.try_into().expect("N contexts");
        let mut next = places.each(|p| p.next);
        let context = places.each(|p| _mm512_set1_epi8(p.context.cast_signed()));
        for (i, to) in to[..ids.len()].iter_mut().enumerate() {
            let ids = &ids[i];
            ask::<WIDTH, _MM_HINT_ET0>(&ahead, i);
            let ids = load(ids);
            let mut v: [__m512i; WIDTH] = array(|j| load(&to[j]));
            for i in 0..N {
                let mut mask = _mm512_cmpeq_epi8_mask(ids, context[i]);
                let mut at = next[i];
                next[i] += WIDTH * mask.count_ones() as usize;
                for v in &mut v {
                    // SAFETY: the next place was not behind the stream's end, and since then a tile at most was read;
                    // behind that there are 64 bytes.
                    let from = in_register(unsafe { _mm512_loadu_si512(bytes.as_ptr().add(at).cast()) });
                    let (expanded, n) = expand::<WIDTH>(mask, from);
                    *v = _mm512_or_si512(*v, expanded);
                    at += WIDTH * n as usize;
                    mask = mask.checked_shr(64 / WIDTH as u32).unwrap_or(0);
                }
            }
            zip(to, &v, |to, &v| store(to, v));
        }
        zip(places, &next, |p, &next| p.next = next);
        places.iter().all(|p| p.next <= p.end)
    }

    /// Puts elements where the lowest bits of a mask are, and zeros elsewhere; and how many there are.
    fn expand<const WIDTH: usize>(mask: u64, v: __m512i) -> (__m512i, u32) {
        match WIDTH {
            2 => (_mm512_maskz_expand_epi16(mask as u32, v), (mask as u32).count_ones()),
            4 => (_mm512_maskz_expand_epi32(mask as u16, v), (mask as u16).count_ones()),
            _ => (_mm512_maskz_expand_epi64(mask as u8, v), (mask as u8).count_ones()),
        }
    }
}
