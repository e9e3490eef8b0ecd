//! The contexts of elements, by the keys of their predictions.

use super::super::super::vectors::boundaries::Boundaries;
use super::{load, load_16, store};
use crate::inline::{Each, zip};
use crate::predict::job::{Model, TILE};
use crate::predict::partition::Finder;
use std::arch::x86_64::*;

/// Elements taken at once.
pub(super) const STEP: usize = 32;
/// The context of padding.
pub(in crate::arch) const NO_CONTEXT: u8 = u8::MAX;

/// The contexts of the elements of a tile.
pub(in crate::arch) type Ids = [u8; TILE];

/// Finds the contexts of elements.
pub(in crate::arch) struct ContextFinder<'a> {
    pub(in crate::arch) keys: Finder<'a>,
    boundaries: Vec<Near>,
}

/// [`Boundaries`] in registers.
struct Near {
    base: __m256i,
    at_most: __m256i,
}

kernels! {
    /// Prepares to find contexts; `None` if there is a single context.
    pub(in crate::arch) fn finder<'a>(m: &Model<'a>) -> Option<ContextFinder<'a>> {
        let keys = Finder::new(m)?;
        let near = |b: Boundaries| Near {
            base: _mm256_set1_epi8(b.base.cast_signed()),
            at_most: _mm256_broadcastsi128_si256(load_16(&b.at_most)),
        };
        let boundaries = Boundaries::new(keys.boundaries).into_iter().map(near).collect();
        Some(ContextFinder { keys, boundaries })
    }

    /// The contexts of `n` elements, from element `i` on, in whole steps; behind the last one [`NO_CONTEXT`].
    pub(in crate::arch) fn find<'k>(f: &ContextFinder<'_>, i: usize, n: usize, ids: &'k mut Ids) -> &'k [[u8; STEP]] {
        let steps = &mut ids.as_chunks_mut().0[..n.div_ceil(STEP)];
        match (f.keys.terms, f.keys.width) {
            (None, 1) => find_as::<1>(f, f.keys.predictions(i, n), steps),
            (None, 2) => find_as::<2>(f, f.keys.predictions(i, n), steps),
            (None, 4) => find_as::<4>(f, f.keys.predictions(i, n), steps),
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

    /// The keys of 32 elements: the eight bits below the sign, and of bytes the seven, and the sign.
    fn keys<const WIDTH: usize>(v: [__m256i; WIDTH]) -> __m256i {
        if WIDTH == 1 {
            _mm256_sub_epi8(_mm256_add_epi8(v[0], v[0]), _mm256_cmpgt_epi8(_mm256_setzero_si256(), v[0]))
        } else if WIDTH == 2 {
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
