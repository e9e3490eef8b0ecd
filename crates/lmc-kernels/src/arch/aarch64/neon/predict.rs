//! Gathers residuals from the streams of their contexts, for elements of up to four bytes.
//!
//! The rank of an element among those of its context in a group of 16 says which of the next residuals of that context
//! is its own. One vector of ranks serves all contexts: it shuffles the next residuals of a context to the places of
//! its elements, and of these each takes its own. Instructions that load and store structures make wider residuals
//! planes of bytes.

use super::super::super::vectors::boundaries::Boundaries;
use super::{load, store};
use crate::inline::{array, zip};
use crate::predict::job::{BEHIND, Model, Place, Streams, TILE};
use crate::predict::partition::{self as portable, Finder};
use std::arch::aarch64::*;

/// Elements taken at once.
const STEP: usize = 16;
/// The context of padding.
const NO_CONTEXT: u8 = u8::MAX;

/// The elements of a step, of `WIDTH` bytes each.
type Step<const WIDTH: usize> = [[u8; STEP]; WIDTH];

/// Most bytes that a tile and a load take from behind a place, of elements of up to four bytes.
const MOST: usize = 4 * (TILE + STEP);
const _: () = assert!(MOST <= BEHIND, "what is behind a stream can be read");

/// [`Boundaries`] in registers.
struct Near {
    base: uint8x16_t,
    at_most: uint8x16_t,
}

/// The number of equal bytes before each byte.
macro_rules! ranks {
    ($ids:expr, $($from:literal)*) => {{
        let zero = vdupq_n_u8(0);
        // Zeros are moved in, and no context is 0 here. (Padding is: nobody looks at its ranks.)
        let ids = vaddq_u8($ids, vdupq_n_u8(1));
        let mut ranks = zero;
        $(ranks = vsubq_u8(ranks, vceqq_u8(ids, vextq_u8::<$from>(zero, ids)));)*
        ranks
    }};
}

kernels! {
    pub(in crate::arch) fn gather(m: &Model<'_>, streams: &Streams, out: &mut [u8]) -> bool {
        let Some(f) = Finder::new(m).filter(|_| m.width <= 4 && m.terms.is_none()) else { return portable::restore(m, streams, out) };
        let near = |b: Boundaries| Near { base: vdupq_n_u8(b.base), at_most: load(&b.at_most) };
        let near: Vec<Near> = Boundaries::new(f.boundaries).into_iter().map(near).collect();
        portable::restore_tiles(m, f.contexts, streams, out, |i, n, bytes, places, to| {
            let predictions = f.predictions(i, n);
            match m.width {
                1 => gather_tile::<1>(&near, predictions, bytes, places, to),
                2 => gather_tile::<2>(&near, predictions, bytes, places, to),
                _ => gather_tile::<4>(&near, predictions, bytes, places, to),
            }
        })
    }

    /// Puts the residuals of the elements with these predictions into `to`. The places are those of
    /// [`places_by_width`], none beyond its end; afterwards some are if their streams are too short.
    ///
    /// [`places_by_width`]: crate::predict::job::places_by_width
    fn gather_tile<const WIDTH: usize>(
        near: &[Near], predictions: &[u8], bytes: &[u8], places: &mut [Vec<Place>; 2], to: &mut [u8]
    ) {
        let steps: &[Step<WIDTH>] = predictions.as_chunks().0.as_chunks().0;
        let to: &mut [Step<WIDTH>] = to.as_chunks_mut().0.as_chunks_mut().0;
        zip(&mut *to, steps, |to, p| gather_step(contexts(near, p), bytes, places, to));
        let rest = &predictions[steps.len() * STEP * WIDTH..];
        if !rest.is_empty() {
            let mut last = [[0; STEP]; WIDTH];
            last.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
            let mut ids = [0; STEP];
            store(&mut ids, contexts(near, &last));
            ids[rest.len() / WIDTH..].fill(NO_CONTEXT);
            gather_step(load(&ids), bytes, places, &mut to[steps.len()]);
        }
    }

    fn gather_step<const WIDTH: usize>(
        ids: uint8x16_t, bytes: &[u8], places: &mut [Vec<Place>; 2], to: &mut Step<WIDTH>
    ) {
        let [single, whole] = places;
        let ranks = ranks!(ids, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        let mut e = [vdupq_n_u8(0); WIDTH];
        for place in single {
            let own = vceqq_u8(ids, vdupq_n_u8(place.context));
            let [v] = planes(bytes, place.next);
            e[0] = vbslq_u8(own, vqtbl1q_u8(v, ranks), e[0]);
            place.next += count(own);
        }
        for place in whole {
            let own = vceqq_u8(ids, vdupq_n_u8(place.context));
            let v: [uint8x16_t; WIDTH] = planes(bytes, place.next);
            e = array(|i| vbslq_u8(own, vqtbl1q_u8(v[i], ranks), e[i]));
            place.next += WIDTH * count(own);
        }
        let to = to.as_flattened_mut();
        // SAFETY: 16 elements are there to write.
        unsafe {
            match WIDTH {
                1 => vst1q_u8(to.as_mut_ptr(), e[0]),
                2 => vst2q_u8(to.as_mut_ptr(), uint8x16x2_t(e[0], e[1 % WIDTH])),
                _ => vst4q_u8(to.as_mut_ptr(), uint8x16x4_t(e[0], e[1 % WIDTH], e[2 % WIDTH], e[3 % WIDTH])),
            }
        }
    }

    /// The bytes that are all ones.
    fn count(own: uint8x16_t) -> usize {
        usize::from(vaddvq_s8(vreinterpretq_s8_u8(own)).unsigned_abs())
    }

    /// The contexts of elements with these predictions.
    fn contexts<const WIDTH: usize>(near: &[Near], p: &Step<WIDTH>) -> uint8x16_t {
        let p: [uint8x16_t; WIDTH] = planes(p.as_flattened(), 0);
        // The top byte, rotated left by one.
        let keys = vsriq_n_u8::<7>(vshlq_n_u8::<1>(p[WIDTH - 1]), p[WIDTH.max(2) - 2]);
        let mut contexts = vdupq_n_u8(0);
        for near in near {
            let distance = vminq_u8(vqsubq_u8(keys, near.base), vdupq_n_u8(15));
            contexts = vaddq_u8(contexts, vqtbl1q_u8(near.at_most, distance));
        }
        contexts
    }

    /// The lowest bytes of 16 elements from `at` on, the next ones, ….
    fn planes<const WIDTH: usize>(bytes: &[u8], at: usize) -> [uint8x16_t; WIDTH] {
        debug_assert!(at + STEP * WIDTH <= bytes.len());
        // SAFETY: a place was at most the end of its stream before the tile, and goes on by no more than the elements
        // of the tile. `MOST` bytes behind the end of a stream can be read: `places_by_width` made sure. And a step is
        // as long as this.
        unsafe {
            let from = bytes.as_ptr().add(at);
            match WIDTH {
                1 => [vld1q_u8(from); WIDTH],
                2 => {
                    let uint8x16x2_t(a, b) = vld2q_u8(from);
                    array(|i| [a, b][i])
                }
                _ => {
                    let uint8x16x4_t(a, b, c, d) = vld4q_u8(from);
                    array(|i| [a, b, c, d][i])
                }
            }
        }
    }
}
