//! The contexts of elements, by the keys of their predictions.

use super::{load, load_16, store};
use crate::inline::{array, zip};
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
        let mut keys = [0; TILE];
        f.keys.keys(i, n, &mut keys);
        let steps = &mut ids.as_chunks_mut().0[..n.div_ceil(STEP)];
        zip(steps, keys.as_chunks().0, |ids, keys| {
            let keys = load(keys);
            let mut context = _mm256_setzero_si256();
            for near in &f.boundaries {
                let distance = _mm256_min_epu8(_mm256_subs_epu8(keys, near.base), _mm256_set1_epi8(15));
                context = _mm256_add_epi8(context, _mm256_shuffle_epi8(near.at_most, distance));
            }
            store(ids, context);
        });
        ids[n..].fill(NO_CONTEXT);
        &ids.as_chunks().0[..n.div_ceil(STEP)]
    }
}
