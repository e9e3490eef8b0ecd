//! Gathers a tile of residuals from the streams of their contexts.
//!
//! The rank of an element among those of its context in a group of 16 or 8 says which of the next residuals of that
//! context is its own. One vector of ranks serves all contexts: it shuffles the next residuals of a context to the
//! places of its elements, and of these each takes its own.
//!
//! What did not help, measured on bf16 and fp32 weights one step apart: undoing the residuals in the same loop, or the
//! positions of all elements first, by ranks in 32 and the counts of all contexts, then a `vpgatherdd` or scalar loads
//! (fp32: no faster with up to 12 contexts).

use super::contexts::STEP;
use super::{load, store};
use crate::inline::{Each, zip};
use crate::predict::job::{BEHIND, Place, TILE};
use std::arch::x86_64::*;

/// The residuals of a step, of `WIDTH` bytes each.
type Step<const WIDTH: usize> = [[u8; STEP]; WIDTH];

/// Most bytes that a tile and a load take from behind a place, of elements of up to four bytes.
const MOST: usize = 4 * TILE + 32;
const _: () = assert!(MOST <= BEHIND, "what is behind a stream can be read");

/// The number of equal bytes before each byte of a group. `$shift` moves the bytes of groups up.
macro_rules! ranks {
    ($ids:expr, $shift:ident, $($by:literal)*) => {{
        // Zeros are shifted in, and no context is 0 here. (Padding is: nobody looks at its ranks.)
        let ids = _mm256_add_epi8($ids, _mm256_set1_epi8(1));
        let mut ranks = _mm256_setzero_si256();
        $(ranks = _mm256_sub_epi8(ranks, _mm256_cmpeq_epi8(ids, $shift::<$by>(ids)));)*
        ranks
    }};
}

kernels! {
    /// Puts the residuals of the elements with contexts `ids` into `to`. The places are those of [`places_by_width`],
    /// none beyond its end; afterwards some are if their streams are too short.
    ///
    /// [`places_by_width`]: crate::predict::job::places_by_width
    pub(super) fn gather_tile<const WIDTH: usize>(
        ids: &[[u8; STEP]], bytes: &[u8], places: &mut [Vec<Place>; 2], to: &mut [u8]
    ) {
        let [single, whole] = places;
        let to: &mut [Step<WIDTH>] = to.as_chunks_mut().0.as_chunks_mut().0;
        zip(to, ids, |to, ids| {
            let ids = load(ids);
            if WIDTH == 1 {
                store(&mut to[0], lowest_bytes(ids, ranks_in_16(ids), bytes, single));
            } else if WIDTH == 2 {
                gather_words(ids, bytes, single, whole, to);
            } else {
                gather_dwords(ids, bytes, single, whole, to);
            }
        });
    }

    fn gather_words<const WIDTH: usize>(
        ids: __m256i, bytes: &[u8], single: &mut [Place], whole: &mut [Place], to: &mut Step<WIDTH>
    ) {
        let ranks = ranks_in_16(ids);
        let mut low = lowest_bytes(ids, ranks, bytes, single);
        let mut high = _mm256_setzero_si256();
        for place in whole {
            let own = own(ids, place);
            let [first, second, next] = from::<2, 3>(place, own, [0, 16, 32]);
            place.next = next;
            let v = [0, 16].each(|o| both(bytes, first + o, second + o));
            let planes = [
                v.each(|v| _mm256_and_si256(v, _mm256_set1_epi16(0xff))),
                v.each(|v| _mm256_srli_epi16::<8>(v)),
            ];
            let [l, h] = planes.each(|v| _mm256_shuffle_epi8(_mm256_packus_epi16(v[0], v[1]), ranks));
            low = _mm256_blendv_epi8(low, l, own);
            high = _mm256_blendv_epi8(high, h, own);
        }
        // Unpacking works within halves.
        let (a, b) = (_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high));
        store(&mut to[0], _mm256_permute2x128_si256::<0x20>(a, b));
        store(&mut to[1], _mm256_permute2x128_si256::<0x31>(a, b));
    }

    fn gather_dwords<const WIDTH: usize>(
        ids: __m256i, bytes: &[u8], single: &mut [Place], whole: &mut [Place], to: &mut Step<WIDTH>
    ) {
        let mut e = [_mm256_setzero_si256(); 4];
        if !single.is_empty() {
            e = dwords(lowest_bytes(ids, ranks_in_16(ids), bytes, single));
        }
        let ranks = dwords(ranks!(ids, _mm256_slli_epi64, 8 16 24 32 40 48 56));
        let contexts = dwords(ids);
        for place in whole {
            let [a, b, c, d, next] = from::<4, 5>(place, own(ids, place), [0, 8, 16, 24, 32]);
            place.next = next;
            let context = _mm256_set1_epi32(place.context.into());
            for (j, at) in [a, b, c, d].into_iter().enumerate() {
                let v = _mm256_permutevar8x32_epi32(eight(bytes, at), ranks[j]);
                e[j] = _mm256_blendv_epi8(e[j], v, _mm256_cmpeq_epi32(contexts[j], context));
            }
        }
        zip(to, &e, |to, e| store(to, *e));
    }

    /// The residuals of the elements whose streams are byte-wide, 0 for all others.
    fn lowest_bytes(ids: __m256i, ranks: __m256i, bytes: &[u8], single: &mut [Place]) -> __m256i {
        let mut lowest = _mm256_setzero_si256();
        for place in single {
            let own = own(ids, place);
            let [first, second, next] = from::<1, 3>(place, own, [0, 16, 32]);
            place.next = next;
            lowest = _mm256_blendv_epi8(lowest, _mm256_shuffle_epi8(both(bytes, first, second), ranks), own);
        }
        lowest
    }

    fn ranks_in_16(ids: __m256i) -> __m256i {
        ranks!(ids, _mm256_bslli_epi128, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }

    /// The elements of a context.
    fn own(ids: __m256i, place: &Place) -> __m256i {
        _mm256_cmpeq_epi8(ids, _mm256_set1_epi8(place.context.cast_signed()))
    }

    /// Where the residuals of a context begin, of `BYTES` bytes each, that are its own from each of `elements` of the
    /// step on.
    fn from<const BYTES: usize, const N: usize>(place: &Place, own: __m256i, elements: [u32; N]) -> [usize; N] {
        let mask = u64::from(_mm256_movemask_epi8(own).cast_unsigned());
        elements.each(|n| place.next + BYTES * (mask & ((1 << n) - 1)).count_ones() as usize)
    }

    /// 16 bytes from each of two places on.
    fn both(bytes: &[u8], first: usize, second: usize) -> __m256i {
        debug_assert!(first.max(second) + 16 <= bytes.len());
        // SAFETY: a place was at most the end of its stream before the tile, and goes on by no more than the elements
        // of the tile. `MOST` bytes behind the end of a stream can be read: `places_by_width` made sure.
        let load = |at: usize| unsafe { _mm_loadu_si128(bytes.as_ptr().add(at).cast()) };
        _mm256_set_m128i(load(second), load(first))
    }

    /// 32 bytes from a place on.
    fn eight(bytes: &[u8], at: usize) -> __m256i {
        debug_assert!(at + 32 <= bytes.len());
        // SAFETY: as above.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().add(at).cast()) }
    }

    /// Bytes as dwords.
    fn dwords(v: __m256i) -> [__m256i; 4] {
        let (a, b) = (_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        [a, _mm_srli_si128::<8>(a), b, _mm_srli_si128::<8>(b)].each(|v| _mm256_cvtepu8_epi32(v))
    }
}
