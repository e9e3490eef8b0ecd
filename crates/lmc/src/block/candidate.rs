//! The ways to predict a part, and what each would cost, from a sample.

use super::keyed::{BUCKETS, Buckets, Guess, Keyed, Limits, bucket, buckets_cost, rest_bits};
use super::predicted::Expectation;
use crate::entropy::{Histogram, cost, histogram};
use crate::group::RUN;
use crate::group::classes::Effort;
use crate::group::element::{Element, extend, with_element};
use crate::map::Map;
use crate::predict::{Classes, Predictor};

/// Elements that decide, at least (if there are as many).
const SAMPLE: usize = 8192;
/// Bits that a further class costs: its head and table, and what its last chunk is padded with.
const CLASS_BITS: u64 = 700;

/// A way to predict, and what it would cost in 1/256 bit.
pub(super) struct Candidate {
    pub(super) predictor: Predictor,
    pub(super) context: Which,
    pub(super) classes: Option<Classes>,
    /// What was sampled of each class; empty if there is one.
    pub(super) guesses: Vec<Guess>,
    pub(super) bits: u64,
    pub(super) sure: bool,
}

impl Candidate {
    /// All elements in one class.
    pub(super) fn whole(predictor: Predictor, bits: u64) -> Self {
        Self { predictor, context: Which::None, classes: None, guesses: vec![], bits, sure: false }
    }

    /// Elements dealt to classes by a context, as [`Keyed::classes`] found them, if it found some.
    fn dealt(predictor: Predictor, by: Which, (classes, guesses, bits): (Option<Classes>, Vec<Guess>, u64)) -> Self {
        let context = if classes.is_some() { by } else { Which::None };
        Self { classes, guesses, context, ..Self::whole(predictor, bits) }
    }

    /// For each class of `n` elements of `width` bytes: how many there is room for, which is most likely enough, and bytes of each.
    pub(super) fn rooms(&self, n: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
        let all: u64 = self.guesses.iter().map(|g| g.elements).sum();
        let likely = move |g: &Guess| n.min((2 * n as u64 * g.elements / all.max(1)) as usize + n / 16);
        let whole = self.classes.is_none().then_some((n, width));
        self.guesses.iter().map(move |g| (likely(g), if g.single { 1 } else { width })).chain(whole)
    }
}

/// What elements are dealt by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    None,
    Prediction,
    Other,
}

/// The most promising way to predict, from a sample of what did not stay as it was; `None` where nothing promises anything.
pub(super) fn candidate<E: Element>(
    elements: &[u8],
    x: &Expectation<'_>,
    map: Option<&[u8]>,
    effort: Effort,
) -> Option<Candidate> {
    let n = elements.len() / E::BYTES;
    let runs: Vec<usize> = (0..n.div_ceil(RUN)).filter(|&r| map.is_none_or(|map| map[r] == 0)).collect();
    // Where most stayed as it was, few of the others tell something.
    let size = if map.is_some() { 4 * SAMPLE } else { SAMPLE };
    let stride = (runs.len() / (size / RUN)).max(1);
    let sample: Vec<E> = sampled(elements, &runs, stride);
    let seen = sample.len() as u64;
    // What a class saves, it saves in runs that changed.
    let n = n.min(runs.len() * RUN);
    // What a class costs is counted in sampled elements.
    let limits = Limits {
        class_cost: CLASS_BITS * cost::BIT * seen / n.max(1) as u64,
        share: effort.deal_share,
        rare: (seen / 256).max(24),
    };
    let mut best: Option<Candidate> = None;
    let mut offer = |c: Candidate| {
        if best.as_ref().is_none_or(|b| c.bits < b.bits) {
            best = Some(c);
        }
    };
    // What nothing but the exponent would cost.
    let (plain, varying) = {
        let h: Histogram = histogram(&sample, |v| v.rotl1().shr(E::BITS - 8).wide() as usize);
        let all = (E::default(), E::cut(u64::MAX));
        let (or, and) = sample.iter().fold(all, |(or, and), v| (or.or(v.rotl1()), and.and(v.rotl1())));
        // Bits below the exponent that are not always the same.
        let varying = or.xor(and).and(E::cut(u64::MAX).shr(8)).wide().count_ones();
        (cost::entropy(&h) + seen * u64::from(varying) * cost::BIT, varying)
    };
    let float = x.map == Map::Rotate;
    let difference = if float { Predictor::Float } else { Predictor::Integer };
    let base: Option<Vec<E>> = x.base.map(|(base, _)| sampled(base, &runs, stride));
    let differences = |p: &[E]| -> Vec<u8> {
        sample.iter().zip(p).map(|(&v, &p)| bucket(difference.residual(v, p).wide()) as u8).collect()
    };
    let differences = base.as_deref().map(differences);
    if let Some((base, differences)) = base.as_ref().zip(differences.as_ref()) {
        let xor: Vec<E> = sample.iter().zip(base).map(|(v, &p)| v.xor(p)).collect();
        let xor: Buckets = histogram(&xor, |v| bucket(v.wide()));
        // Of what a sample cannot tell apart, a difference is the better guess.
        let bits = buckets_cost(&xor, rest_bits);
        let bits = bits + bits / 32;
        offer(Candidate::whole(Predictor::Xor, bits));
        let mut keyed = Keyed::new(|h: &[u32]| buckets_cost(h, rest_bits));
        let key_shift = E::BITS - 8;
        base.iter().zip(differences).for_each(|(&p, &bucket)| keyed.add(Classes::key(p, key_shift), bucket.into(), 1));
        // Integers have no exponent to go by.
        offer(if float {
            Candidate::dealt(difference, Which::Prediction, keyed.classes(key_shift, limits))
        } else {
            Candidate::whole(difference, keyed.whole())
        });
    }
    if let Some((context, width)) = x.context {
        with_element!(width, C => {
            let key_shift = C::BITS - 8;
            let context: Vec<C> = sampled(context, &runs, stride);
            let keys = || context.iter().map(|&c| Classes::key(c, key_shift));
            // Without a prediction the exponent is the bucket; neighbours in one half of all exponents are as good as all.
            let mut keyed = Keyed::new(|h: &[u32]| buckets_cost(h, |_| u64::from(varying)));
            let exponents = sample.iter().map(|v| v.rotl1().shr(E::BITS - 8).wide() as usize % BUCKETS);
            keys().zip(exponents).for_each(|(key, bucket)| keyed.add(key, bucket, 1));
            let (classes, guesses, bits) = keyed.classes(key_shift, limits);
            if classes.is_some() {
                // Elements have no residuals, of which a byte might hold many.
                let guesses = guesses.into_iter().map(|s| Guess { single: false, ..s }).collect();
                offer(Candidate::dealt(Predictor::None, Which::Other, (classes, guesses, bits)));
            }
            if let Some(differences) = &differences && float {
                let mut keyed = Keyed::new(|h: &[u32]| buckets_cost(h, rest_bits));
                keys().zip(differences).for_each(|(key, &bucket)| keyed.add(key, bucket.into(), 1));
                let dealt = Candidate::dealt(Predictor::Float, Which::Other, keyed.classes(key_shift, limits));
                if dealt.classes.is_some() {
                    offer(dealt);
                }
            }
        });
    }
    // Estimates of unlike things: what is close is planned both ways.
    let mut best = best.filter(|b| b.bits < plain + plain / 32)?;
    best.sure = best.bits < plain - plain / 5;
    Some(best)
}

/// The elements of every `stride`-th of these runs.
fn sampled<E: Element>(bytes: &[u8], runs: &[usize], stride: usize) -> Vec<E> {
    let run = RUN * E::BYTES;
    let mut sample = Vec::with_capacity(runs.len().div_ceil(stride) * RUN);
    for &r in runs.iter().step_by(stride) {
        let of_run = &bytes[r * run..bytes.len().min((r + 1) * run)];
        extend(&mut sample, of_run);
    }
    sample
}
