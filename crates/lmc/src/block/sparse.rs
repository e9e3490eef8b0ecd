//! Parts of which hardly an element changed: how they are predicted, going by those that did.

use super::patches::PatchList;
use super::plan::GroupedPlan;
use super::predicted::{
    BUCKETS, Buckets, Candidate, Expectation, Keyed, Limits, Which, bucket, buckets_cost, rest_bits,
};
use crate::entropy::cost;
use crate::group::RUN;
use crate::group::element::{Element, with_element};
use crate::map::Map;
use crate::predict::{Classes, Predictor};

/// One element of so many may have changed, at most: where more did, lanes are faster than codes of numbers, and no larger.
const SPARSE: usize = 32;
/// Changed elements that decide.
const SAMPLE: usize = 8192;
/// Elements that tell how many there are of each key.
const KEYS: usize = 1 << 16;
/// Bits that a further class costs: its head, with the codes of gaps and changes.
const CLASS_BITS: u64 = 220;
/// log2(e) in 1/256 bit: what a place among many costs beyond log2 of how few there are.
const LOG2_E: u64 = 369;

/// Which elements changed.
pub(super) struct Changed(Vec<u32>);

/// Gives `note` every element that is not zero, and its value; or that is not that of `other`, and the XOR of both. Most are passed over 32 bytes at once.
#[inline(always)]
pub(super) fn each_nonzero<E: Element>(elements: &[u8], other: Option<&[u8]>, mut note: impl FnMut(usize, u64)) {
    const ZERO: [u8; 32] = [0; 32];
    let in_word = 8 / E::BYTES;
    let (whole, rest) = elements.as_chunks::<32>();
    let (others, other_rest) = other.map_or((&[][..], &ZERO[..rest.len()]), |o| o.as_chunks::<32>());
    for (q, of_element) in whole.iter().enumerate() {
        let of_other = if other.is_some() { &others[q] } else { &ZERO };
        let words: [u64; 4] = std::array::from_fn(|i| {
            let word = |b: &[u8; 32]| u64::from_le_bytes(b[8 * i..8 * i + 8].try_into().expect("eight bytes"));
            word(of_element) ^ word(of_other)
        });
        if words.iter().fold(0, |all, w| all | w) == 0 {
            continue;
        }
        for (w, mut word) in words.into_iter().enumerate() {
            while word != 0 {
                let i = word.trailing_zeros() / E::BITS;
                note((4 * q + w) * in_word + i as usize, E::cut(word >> (i * E::BITS)).wide());
                word &= u64::MAX.unbounded_shl((i + 1) * E::BITS);
            }
        }
    }
    for (i, (a, b)) in rest.chunks_exact(E::BYTES).zip(other_rest.chunks_exact(E::BYTES)).enumerate() {
        let v = E::load(a).xor(E::load(b)).wide();
        if v != 0 {
            note(whole.len() * 4 * in_word + i, v);
        }
    }
}

/// Of `n` elements, so many are few enough to be listed.
pub(super) fn few_of(n: usize) -> usize {
    n / SPARSE
}

impl Changed {
    /// `None` where they are too many. `unchanged` has 1 for each run without any.
    fn find<E: Element>(elements: &[u8], base: &[u8], unchanged: &[u8]) -> Option<Self> {
        let n = elements.len() / E::BYTES;
        let run_bytes = RUN * E::BYTES;
        let mut changed = Vec::new();
        for (r, _) in unchanged.iter().enumerate().filter(|(_, u)| **u == 0) {
            let end = elements.len().min((r + 1) * run_bytes);
            let (new, old) = (&elements[r * run_bytes..end], &base[r * run_bytes..end]);
            each_nonzero::<E>(new, Some(old), |i, _| changed.push((r * RUN + i) as u32));
            if changed.len() > few_of(n) {
                return None;
            }
        }
        Some(Self(changed))
    }

    /// The residuals of a part in a single class, as a section without groups.
    pub(super) fn plan(&self, width: usize, predictor: Predictor, elements: &[u8], base: &[u8]) -> GroupedPlan {
        let mut patches = PatchList::default();
        with_element!(width, E => {
            for i in self.0.iter().map(|&i| i as usize) {
                patches.push(i, predictor.residual(element::<E>(elements, i), element::<E>(base, i)).wide());
            }
        });
        GroupedPlan::listed(width, patches)
    }
}

fn element<E: Element>(bytes: &[u8], i: usize) -> E {
    E::load(&bytes[i * E::BYTES..])
}

/// How a part of which hardly an element changed is predicted; `None` if it is no such part. `unchanged` has 1 for each run of which nothing did.
pub(super) fn candidate(width: usize, elements: &[u8], x: &Expectation<'_>, unchanged: &[u8]) -> Option<Candidate> {
    let (base, _) = x.base?;
    with_element!(width, E => {
        let changed = Changed::find::<E>(elements, base, unchanged)?;
        Some(candidate_of::<E>(elements, base, x.map == Map::Rotate, changed))
    })
}

fn candidate_of<E: Element>(elements: &[u8], base: &[u8], float: bool, changed: Changed) -> Candidate {
    let n = elements.len() / E::BYTES;
    let step = changed.0.len().div_ceil(SAMPLE).max(1);
    let sampled = || changed.0.iter().step_by(step).map(|&i| i as usize);
    let difference = if float { Predictor::Float } else { Predictor::Integer };
    let cost_of = |predictor: Predictor| {
        let mut h: Buckets = [0; BUCKETS];
        sampled().for_each(|i| h[bucket(predictor.residual(element::<E>(elements, i), element(base, i)).wide())] += 1);
        buckets_cost(&h, rest_bits)
    };
    let (xor, bits) = (cost_of(Predictor::Xor), cost_of(difference));
    let mut best = Candidate {
        predictor: if xor < bits { Predictor::Xor } else { difference },
        context: Which::None,
        classes: None,
        guesses: vec![],
        bits: xor.min(bits),
        sure: true,
        changed: None,
    };
    // Integers have no exponent to go by.
    if float && !changed.0.is_empty() {
        let key_shift = E::BITS - 8;
        let mut keyed = Keyed::new(sparse_cost);
        let key = |i: usize| Classes::key(element::<E>(base, i), key_shift);
        // As many of each as there are, by a sample of runs and one of changes.
        let stride = (n / KEYS).max(1);
        (0..n.div_ceil(RUN)).step_by(stride).flat_map(|r| r * RUN..n.min((r + 1) * RUN)).for_each(|i| {
            keyed.add(key(i), 0, stride as u32);
        });
        for i in sampled() {
            let residual = best.predictor.residual(element::<E>(elements, i), element(base, i));
            keyed.add(key(i), bucket(residual.wide()), step as u32);
        }
        let limits = Limits { class_cost: CLASS_BITS * cost::BIT, rare: 1 };
        if let (Some(classes), guesses, _) = keyed.classes(key_shift, limits) {
            (best.context, best.classes, best.guesses) = (Which::Prediction, Some(classes), guesses);
        }
    }
    best.changed = Some(changed);
    best
}

/// Cost in 1/256 bit of listing what changed. The first bucket is of what did not.
fn sparse_cost(h: &Buckets) -> u64 {
    let changed: u32 = h[1..].iter().sum();
    if changed == 0 {
        return 0;
    }
    let all = changed + h[0];
    let place = u64::from(cost::log2(all) - cost::log2(changed)) + LOG2_E;
    let mut values = *h;
    values[0] = 0;
    u64::from(changed) * place + buckets_cost(&values, rest_bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::unchanged::find;

    #[test]
    fn what_changed_is_found() {
        for width in [1, 2, 4, 8] {
            for n in [1, 31, 64, 127, 128, 129, 1000] {
                let base: Vec<u8> = (0..n * width).map(|i| (i * 7 / 3) as u8).collect();
                // The last element, and neighbours; and one more than there may be.
                let few: Vec<u32> = [n - 1, n / 2, n / 2 - n.min(2) / 2].iter().map(|&i| i as u32).collect();
                for changed in [&few[..1], &few[..], &(0..=few_of(n) as u32).collect::<Vec<_>>()[..]] {
                    let mut changed = changed.to_vec();
                    changed.sort_unstable();
                    changed.dedup();
                    let mut elements = base.clone();
                    changed.iter().for_each(|&i| elements[i as usize * width + width - 1] ^= 0x80);
                    let mut unchanged = vec![];
                    find(width, &elements, &base, &mut unchanged);
                    let found = with_element!(width, E => Changed::find::<E>(&elements, &base, &unchanged));
                    assert_eq!(found.map(|f| f.0), (changed.len() <= few_of(n)).then_some(changed));
                }
            }
        }
    }
}
