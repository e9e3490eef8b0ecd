//! The contexts of elements, by the keys of their predictions.

use super::{load, load_16, store};
use crate::inline::{Each, array, zip};
use crate::predict::job::{Model, TILE};
use crate::predict::partition::Finder;
use std::arch::x86_64::*;

/// Elements taken at once.
pub(super) const STEP: usize = 32;
/// The context of padding.
pub(super) const NO_CONTEXT: u8 = u8::MAX;

/// The contexts of the elements of a tile.
pub(super) type Ids = [u8; TILE];

/// Finds the contexts of elements.
pub(super) struct ContextFinder<'a> {
    pub(super) keys: Finder<'a>,
    boundaries: Vec<Near>,
}

/// Boundaries that are near to each other: one shuffle counts those that are at most a key.
struct Near {
    /// No boundary is less, or more than 15 greater.
    base: __m256i,
    /// The number of boundaries by the distance of a key from the base; the last one for greater distances, too.
    at_most: __m256i,
}

kernels! {
    /// Prepares to find contexts; `None` if there is a single context.
    pub(super) fn finder<'a>(m: &Model<'a>) -> Option<ContextFinder<'a>> {
        let keys = Finder::new(m)?;
        let mut boundaries = vec![];
        let mut left = keys.boundaries;
        while let [first, ..] = left {
            // A lesser key has distance 0, too. No key is less than 0.
            let base = first.saturating_sub(1);
            let (near, rest) = left.split_at(left.partition_point(|b| b - base <= 15));
            let at_most = array(|i| near.iter().filter(|&&b| usize::from(b - base) <= i).count() as u8);
            boundaries.push(Near {
                base: _mm256_set1_epi8(base.cast_signed()),
                at_most: _mm256_broadcastsi128_si256(load_16(&at_most)),
            });
            left = rest;
        }
        Some(ContextFinder { keys, boundaries })
    }

    /// The contexts of `n` elements, from element `i` on, in whole steps; behind the last one [`NO_CONTEXT`].
    pub(super) fn find<'k>(f: &ContextFinder<'_>, i: usize, n: usize, ids: &'k mut Ids) -> &'k [[u8; STEP]] {
        let steps = &mut ids.as_chunks_mut().0[..n.div_ceil(STEP)];
        match f.keys.width {
            2 if f.keys.terms.is_none() => find_as::<2>(f, f.keys.predictions(i, n), steps),
            4 if f.keys.terms.is_none() => find_as::<4>(f, f.keys.predictions(i, n), steps),
            _ => {
                let mut keys = [0; TILE];
                f.keys.keys(i, n, &mut keys);
                zip(steps, keys.as_chunks().0, |ids, keys| store(ids, contexts(f, load(keys))));
            }
        }
        steps.as_flattened_mut()[n..].fill(NO_CONTEXT);
        steps
    }

    fn find_as<const WIDTH: usize>(f: &ContextFinder<'_>, predictions: &[u8], ids: &mut [[u8; STEP]]) {
        let steps = predictions.as_chunks::<STEP>().0.as_chunks::<WIDTH>().0;
        zip(ids, steps, |ids, p| store(ids, contexts(f, keys(p.each(|p| load(&p))))));
        if let Some(ids) = ids.get_mut(steps.len()) {
            let mut last = [[0; STEP]; WIDTH];
            let rest = &predictions[steps.len() * STEP * WIDTH..];
            last.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
            store(ids, contexts(f, keys(last.each(|p| load(&p)))));
        }
    }

    /// The contexts of 32 keys.
    fn contexts(f: &ContextFinder<'_>, keys: __m256i) -> __m256i {
        let mut context = _mm256_setzero_si256();
        for near in &f.boundaries {
            let distance = _mm256_min_epu8(_mm256_subs_epu8(keys, near.base), _mm256_set1_epi8(15));
            context = _mm256_add_epi8(context, _mm256_shuffle_epi8(near.at_most, distance));
        }
        context
    }

    /// The keys of 32 elements: the eight bits below the sign.
    fn keys<const WIDTH: usize>(v: [__m256i; WIDTH]) -> __m256i {
        if WIDTH == 2 {
            pack(v.each(|v| _mm256_and_si256(_mm256_srli_epi16::<7>(v), _mm256_set1_epi16(0xff))))
        } else {
            pack(v.each(|v| _mm256_and_si256(_mm256_srli_epi32::<23>(v), _mm256_set1_epi32(0xff))))
        }
    }

    /// 32 elements of two or four bytes, which fit a byte, as bytes.
    pub(super) fn pack<const WIDTH: usize>(v: [__m256i; WIDTH]) -> __m256i {
        // Packing works within halves, which are put in order here.
        if WIDTH == 2 {
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(v[0], v[1]))
        } else {
            let v = _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
            _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
        }
    }
}
