//! Scatters a tile of residuals to the streams of their contexts.
//!
//! Every context has a mask of 32 elements; a table has, for eight bits of it, the shuffle that moves their elements to
//! the front.

use super::contexts::{STEP, pack};
use super::{at, load, load_16};
use crate::cluster::element::with_element;
use crate::inline::{Each, array};
use crate::predict::job::{BEHIND, Overflow, Place, TILE};
use crate::predict::partition::note_overflows;
use std::arch::x86_64::*;

/// Most bytes that a tile and a store put behind a place, of elements of up to four bytes.
const MOST: usize = 4 * TILE + 32;
const _: () = assert!(MOST <= BEHIND, "what is behind a stream can be written");

kernels! {
    /// Writes the residuals of the elements with contexts `ids` to their streams, and records those that exceed a
    /// byte-wide stream. The places are those of [`places_by_width`], none beyond its end; afterwards some are if their
    /// streams have no room.
    ///
    /// [`places_by_width`]: crate::predict::job::places_by_width
    pub(super) fn scatter_tile<const WIDTH: usize>(
        ids: &[[u8; STEP]], residuals: &[u8], bytes: &mut [u8], places: &mut [Vec<Place>; 2],
        overflows: &mut Vec<Overflow>
    ) {
        let [single, whole] = places;
        let is_single = is_single(single);
        for (i, step) in ids.iter().enumerate() {
            let residuals = &residuals[i * STEP * WIDTH..][..STEP * WIDTH];
            let ids = load(step);
            if !single.is_empty() {
                let v: [__m256i; WIDTH] = array(|i| load(at(residuals, 32 * i)));
                if _mm256_testz_si256(_mm256_shuffle_epi8(is_single, ids), exceeding(v)) == 0 {
                    with_element!(WIDTH, E => note_overflows::<E>(step, residuals, single, overflows));
                }
                scatter_bytes(ids, lowest_bytes(v), bytes, single);
            }
            for place in &mut *whole {
                let mut next = place.next;
                let (eights, n) = eights(ids, place);
                place.next += WIDTH * n;
                for (j, eight) in eights.into_iter().enumerate() {
                    if WIDTH == 2 {
                        let v = _mm_shuffle_epi8(load_16(at(residuals, 16 * j)), load_16(&FRONT_2[eight]));
                        let to = at_place(bytes, next);
                        // SAFETY: see `at_place`.
                        unsafe { _mm_storeu_si128(to.cast(), v) };
                    } else {
                        let front = _mm256_cvtepu8_epi32(load_8(&FRONT[eight]));
                        let v = _mm256_permutevar8x32_epi32(load(at(residuals, 32 * j)), front);
                        let to = at_place(bytes, next);
                        // SAFETY: see `at_place`.
                        unsafe { _mm256_storeu_si256(to.cast(), v) };
                    }
                    next += WIDTH * eight.count_ones() as usize;
                }
            }
        }
    }

    fn scatter_bytes(ids: __m256i, lowest: __m256i, bytes: &mut [u8], single: &mut [Place]) {
        let (a, b) = (_mm256_castsi256_si128(lowest), _mm256_extracti128_si256::<1>(lowest));
        let lowest = [a, _mm_srli_si128::<8>(a), b, _mm_srli_si128::<8>(b)];
        for place in single {
            let mut next = place.next;
            let (eights, n) = eights(ids, place);
            place.next += n;
            for (j, eight) in eights.into_iter().enumerate() {
                let to = at_place(bytes, next);
                // SAFETY: see `at_place`.
                unsafe { _mm_storel_epi64(to.cast(), _mm_shuffle_epi8(lowest[j], load_8(&FRONT[eight]))) };
                next += eight.count_ones() as usize;
            }
        }
    }

    /// The masks of a context's elements, of eight each, and the number of these elements.
    fn eights(ids: __m256i, place: &Place) -> ([usize; 4], usize) {
        let own = _mm256_cmpeq_epi8(ids, _mm256_set1_epi8(place.context.cast_signed()));
        let mask = _mm256_movemask_epi8(own);
        (mask.to_le_bytes().each(usize::from), mask.count_ones() as usize)
    }

    /// Byte `c` of either half: whether context `c` has one of these places.
    fn is_single(single: &[Place]) -> __m256i {
        load(&array(|i| if single.iter().any(|p| usize::from(p.context) == i % 16) { 0xff } else { 0 }))
    }

    fn lowest_bytes<const WIDTH: usize>(v: [__m256i; WIDTH]) -> __m256i {
        if WIDTH == 1 {
            v[0]
        } else if WIDTH == 2 {
            pack(v.each(|v| _mm256_and_si256(v, _mm256_set1_epi16(0xff))))
        } else {
            pack(v.each(|v| _mm256_and_si256(v, _mm256_set1_epi32(0xff))))
        }
    }

    /// A byte for each of 32 elements that is not 0 if the element exceeds a byte.
    fn exceeding<const WIDTH: usize>(v: [__m256i; WIDTH]) -> __m256i {
        if WIDTH == 1 {
            _mm256_setzero_si256()
        } else if WIDTH == 2 {
            pack(v.each(|v| _mm256_srli_epi16::<8>(v)))
        } else {
            pack(v.each(|v| _mm256_min_epu32(_mm256_srli_epi32::<8>(v), _mm256_set1_epi32(0xff))))
        }
    }

    /// Where a place is in the streams, for a store of up to 32 bytes. A place was at most the end of its stream before
    /// the tile, and goes on by no more than the elements of the tile. `MOST` bytes behind the end of a stream can be
    /// written: `places_by_width` made sure.
    fn at_place(bytes: &mut [u8], place: usize) -> *mut u8 {
        debug_assert!(place + 32 <= bytes.len());
        bytes.as_mut_ptr().wrapping_add(place)
    }

    fn load_8(bytes: &[u8; 8]) -> __m128i {
        _mm_cvtsi64_si128(i64::from_le_bytes(*bytes))
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
