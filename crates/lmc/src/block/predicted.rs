//! How a part is predicted: from what, into which classes, or not at all.

use super::head::{ContextSource, Predicted, Unchanged};
use super::plan::{GroupedPlan, PlannedClassMap, Planner};
use super::sparse::{self, few_of};
use crate::entropy::cost;
use crate::group::RUN;
use crate::group::classes::Effort;
use crate::group::element::{Element, with_element};
use crate::map::Map;
use crate::predict::job::{Context, Model, Sections};
use crate::predict::unchanged::{elements as unchanged_elements, leave_out};
use crate::predict::{Classes, Conversion, Predictor};

/// What a part may be predicted from.
pub(crate) struct Expectation<'a> {
    /// An element for every one of the part, and how it was converted.
    pub(crate) base: Option<(&'a [u8], Conversion)>,
    /// The same of other data, and the width of its elements in bytes.
    pub(crate) context: Option<(&'a [u8], usize)>,
    /// How elements are mapped that are not predicted.
    pub(crate) map: Map,
}

/// A predicted part, ready to be encoded.
pub(crate) struct PredictedPlan {
    /// Dependencies are named by whoever puts the block together.
    pub(crate) predicted: Predicted,
    /// One for every class that has elements.
    pub(crate) plans: Vec<Option<GroupedPlan>>,
    pub(crate) sections: Sections,
    /// The map of unchanged runs, if they are told apart.
    pub(crate) unchanged: Option<PlannedClassMap>,
    /// Estimated bytes, lane states left out.
    pub(crate) estimate: u64,
    /// Whether the sample says that nothing without prediction comes near.
    pub(crate) sure: bool,
}

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

/// What a sample says of a class.
pub(super) struct Guess {
    /// Whether a byte holds every residual.
    single: bool,
    elements: u64,
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
    fn rooms(&self, n: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
        let all: u64 = self.guesses.iter().map(|g| g.elements).sum();
        let likely = move |g: &Guess| n.min((2 * n as u64 * g.elements / all.max(1)) as usize + n / 16);
        let whole = self.classes.is_none().then_some((n, width));
        self.guesses.iter().map(move |g| (likely(g), if g.single { 1 } else { width })).chain(whole)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    None,
    Prediction,
    Other,
}

/// Which elements of a part sections tell.
#[derive(PartialEq, Eq)]
enum Told {
    All,
    /// Those of runs that changed, by a map of runs that did not.
    ChangedRuns(Vec<u8>),
    /// Those that changed, which the planner holds.
    Changes,
}

/// Elements that decide, at least (if there are as many).
const SAMPLE: usize = 8192;
/// Runs that are looked at together, how many such stretches are, if there are as many, and of how many one is, at least.
const STRETCH: usize = 4;
const STRETCHES: usize = 64;
const STRETCH_OF: usize = 16;
/// Values of about equal size: four exact ones, then two for each further bit.
pub(super) const BUCKETS: usize = 128;
/// Most classes.
const MAX_CLASSES: usize = 16;
/// Bits that a further class costs: its head and table, and what its last chunk is padded with.
const CLASS_BITS: u64 = 700;

pub(super) fn bucket(v: u64) -> usize {
    let len = 64 - v.leading_zeros() as usize;
    if len < 3 { v as usize } else { (2 * len - 2 + (v >> (len - 2) & 1) as usize).min(BUCKETS - 1) }
}

/// Bits of a value that its bucket does not tell.
pub(super) fn rest_bits(bucket: usize) -> u64 {
    if bucket < 4 { 0 } else { bucket as u64 / 2 - 1 }
}

pub(super) type Buckets = [u32; BUCKETS];

/// Cost of values of these buckets in 1/256 bit, if a value has so many bits that its bucket does not tell.
pub(super) fn buckets_cost(h: &Buckets, rest: impl Fn(usize) -> u64) -> u64 {
    cost::entropy(h) + h.iter().enumerate().map(|(b, &c)| u64::from(c) * rest(b) * cost::BIT).sum::<u64>()
}

impl Planner {
    /// The best way to predict `elements`, if there is one that is better than `plain` bytes, or might be.
    pub(super) fn plan_predicted(
        &mut self,
        width: usize,
        elements: &[u8],
        x: &Expectation<'_>,
        sections: Sections,
    ) -> Result<PredictedPlan, Sections> {
        // A look at some runs tells most that there is to be known of all.
        self.stats.clear();
        let stretch = STRETCH * RUN * width;
        let step = (elements.len() / stretch / STRETCHES).clamp(1, STRETCH_OF);
        let mut map = vec![];
        for (i, of_stretch) in elements.chunks(stretch).enumerate().step_by(step) {
            self.isa.run_stats(width, x.map, of_stretch, &mut self.stats);
            if let Some((base, _)) = x.base {
                self.isa.unchanged_runs(width, of_stretch, &base[i * stretch..][..of_stretch.len()], &mut map);
            }
        }
        // Runs of one value cost nothing without a prediction; where there are some, they are many, side by side.
        let constant = self.stats.or.iter().zip(&self.stats.and).filter(|(o, a)| o == a).count();
        let few = constant * 16 <= self.stats.len();
        let unchanged = map.iter().filter(|&&u| u == 1).count();
        let base = x.base.filter(|_| unchanged > 0 && unchanged >= map.len() / 128);
        let most = few_of(elements.len() / width);
        if let Some((base, _)) = base
            && self.isa.changes(width, elements, base, most, &mut self.changes)
        {
            let mut c = sparse::candidate(width, base, x.map, &self.changes);
            c.sure &= few;
            return Ok(self.plan_candidate(width, elements, x, c, Told::Changes, sections));
        }
        let map = base.map(|(base, _)| {
            map.clear();
            self.isa.unchanged_runs(width, elements, base, &mut map);
            map
        });
        let map = map.filter(|map| worth_telling(map));
        let effort = self.effort();
        match with_element!(width, E => candidate::<E>(elements, x, map.as_deref(), effort)) {
            Some(mut c) => {
                c.sure &= few;
                let told = map.map_or(Told::All, Told::ChangedRuns);
                Ok(self.plan_candidate(width, elements, x, c, told, sections))
            }
            None => Err(sections),
        }
    }

    fn plan_candidate(
        &mut self,
        width: usize,
        elements: &[u8],
        x: &Expectation<'_>,
        c: Candidate,
        told: Told,
        mut sections: Sections,
    ) -> PredictedPlan {
        let (base, conversion) = x.base.unwrap_or((&[], Conversion::None));
        let predicts = c.predictor != Predictor::None;
        let other_width = x.context.map_or(0, |o| o.1);
        let sparse = told == Told::Changes;
        let map = if let Told::ChangedRuns(map) = told { Some(map).filter(|_| predicts) } else { None };
        let [changed, kept, kept_other] = &mut *self.changed;
        let mut elements = elements;
        let mut model = Model {
            width,
            len: elements.len() / width,
            predictor: c.predictor,
            prediction: if predicts { base } else { &[] },
            context: match c.context {
                Which::None => Context::None,
                Which::Prediction => Context::Prediction,
                Which::Other => {
                    let (bytes, width) = x.context.expect("a candidate has what it names");
                    Context::Other(bytes, width)
                }
            },
            classes: c.classes.as_ref(),
        };
        let n = model.len;
        if let Some(map) = &map {
            leave_out(width, map, elements, changed);
            elements = changed;
            leave_out(width, map, base, kept);
            (model.len, model.prediction) = (elements.len() / width, kept);
            if let Context::Other(bytes, width) = model.context {
                leave_out(width, map, bytes, kept_other);
                model.context = Context::Other(kept_other, width);
            }
        }
        let changed_len = model.len;
        let counts = if sparse {
            let counts = sparse::list(self.isa, &model, &self.changes, &mut self.lists);
            sections.reset(counts.iter().map(|_| (0, width)));
            counts
        } else {
            // Classes are dealt as the sample has them; where it was wrong, what they have is counted.
            sections.reset(c.rooms(changed_len, width));
            if self.isa.partition(&model, elements, &mut sections) {
                sections.widen(width);
            } else {
                sections.reset(self.isa.count_classes(&model).into_iter().map(|n| (n, width)));
                assert!(self.isa.partition(&model, elements, &mut sections), "there is room for every class");
            }
            sections.counts()
        };
        let nowhere = super::head::Named { first: 0, count: 0 };
        let mut plan = PredictedPlan {
            predicted: Predicted {
                width,
                predictor: c.predictor,
                conversion: if predicts { conversion } else { Conversion::None },
                base: predicts.then_some(nowhere),
                context: match c.context {
                    Which::None => ContextSource::None,
                    Which::Prediction => ContextSource::Prediction,
                    Which::Other => ContextSource::Other { width: other_width, named: nowhere },
                },
                classes: c.classes,
                unchanged: None,
                sections: Vec::with_capacity(counts.len()),
            },
            plans: Vec::with_capacity(counts.len()),
            sections,
            unchanged: None,
            estimate: 16,
            sure: c.sure,
        };
        for (class, &n) in counts.iter().enumerate() {
            let section = (n > 0).then(|| match c.predictor {
                _ if sparse => GroupedPlan::listed(width, Map::Identity, &mut self.lists[class]),
                Predictor::None => self.plan(width, x.map, plan.sections.get(class)),
                _ => {
                    let width = plan.sections.width(class);
                    self.plan_residuals(width, plan.sections.get_mut(class), changed_len)
                }
            });
            plan.estimate += section.as_ref().map_or(1, |s| s.estimate);
            plan.predicted.sections.push((n, section.as_ref().map(|s| s.grouped.widened(width))));
            plan.plans.push(section);
        }
        if let Some(map) = map {
            let elements = unchanged_elements(&map, n);
            let (group, planned, bits) = self.plan_class_map(map);
            plan.estimate += bits / (8 * cost::BIT) + 8;
            plan.predicted.unchanged = Some(Unchanged { elements, map: group });
            plan.unchanged = Some(planned);
        }
        plan
    }
}

/// Whether runs that did not change are so many, and so often side by side, that they are not just sparse changes' chance gaps.
fn worth_telling(map: &[u8]) -> bool {
    let unchanged = map.iter().filter(|&&u| u == 1).count();
    let beside = map.windows(2).filter(|w| w == &[1, 1]).count();
    unchanged >= 16.max(map.len() / 64) && 2 * beside >= unchanged
}

/// The most promising way to predict, from a sample of what did not stay as it was; `None` where nothing promises anything.
fn candidate<E: Element>(
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
        let mut h = [0u32; 256];
        let (mut or, mut and) = (0, u64::MAX);
        for v in &sample {
            let v = v.rotl1();
            h[v.shr(E::BITS - 8).wide() as usize] += 1;
            (or, and) = (or | v.wide(), and & v.wide());
        }
        // Bits below the exponent that are not always the same.
        let varying = ((or ^ and) & (E::cut(u64::MAX).shr(8).wide())).count_ones();
        (cost::entropy(&h) + seen * u64::from(varying) * cost::BIT, varying)
    };
    let float = x.map == Map::Rotate;
    let difference = if float { Predictor::Float } else { Predictor::Integer };
    let base: Option<Vec<E>> = x.base.map(|(base, _)| sampled(base, &runs, stride));
    let differences = |p: &[E]| -> Vec<usize> {
        sample.iter().zip(p).map(|(&v, &p)| bucket(difference.residual(v, p).wide())).collect()
    };
    let differences = base.as_deref().map(differences);
    if let Some((base, differences)) = base.as_ref().zip(differences.as_ref()) {
        let mut xor: Buckets = [0; BUCKETS];
        sample.iter().zip(base).for_each(|(v, &p)| xor[bucket(v.xor(p).wide())] += 1);
        // Of what a sample cannot tell apart, a difference is the better guess.
        let bits = buckets_cost(&xor, rest_bits);
        let bits = bits + bits / 32;
        offer(Candidate::whole(Predictor::Xor, bits));
        let mut keyed = Keyed::new(|h: &Buckets| buckets_cost(h, rest_bits));
        let key_shift = E::BITS - 8;
        base.iter().zip(differences).for_each(|(&p, &bucket)| keyed.add(Classes::key(p, key_shift), bucket, 1));
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
            let mut keyed = Keyed::new(|h: &Buckets| buckets_cost(h, |_| u64::from(varying)));
            let exponents = sample.iter().map(|v| v.rotl1().shr(E::BITS - 8).wide() as usize % BUCKETS);
            keys().zip(exponents).for_each(|(key, bucket)| keyed.add(key, bucket, 1));
            let (classes, guesses, bits) = keyed.classes(key_shift, limits);
            if classes.is_some() {
                // Elements have no residuals, of which a byte might hold many.
                let guesses = guesses.into_iter().map(|s| Guess { single: false, ..s }).collect();
                offer(Candidate::dealt(Predictor::None, Which::Other, (classes, guesses, bits)));
            }
            if let Some(differences) = &differences && float {
                let mut keyed = Keyed::new(|h: &Buckets| buckets_cost(h, rest_bits));
                keys().zip(differences).for_each(|(key, &bucket)| keyed.add(key, bucket, 1));
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
        sample.extend(of_run.chunks_exact(E::BYTES).map(E::load));
    }
    sample
}

/// Sampled residuals by key.
pub(super) struct Keyed<C> {
    of: Vec<Option<Box<Buckets>>>,
    /// What residuals cost together, in 1/256 bit.
    cost: C,
}

/// Which classes are worth having.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// What a class costs by itself, in 1/256 bit of the sample.
    pub(super) class_cost: u64,
    /// Of what all cost in one class, a further class must save one part of so many, for the time that it takes.
    pub(super) share: u64,
    /// Keys of fewer elements are too rare to judge.
    pub(super) rare: u64,
}

impl<C: Fn(&Buckets) -> u64> Keyed<C> {
    pub(super) fn new(cost: C) -> Self {
        Self { of: vec![None; 256], cost }
    }

    /// Adds `count` residuals.
    pub(super) fn add(&mut self, key: u8, bucket: usize, count: u32) {
        self.of[usize::from(key)].get_or_insert_with(|| Box::new([0; BUCKETS]))[bucket] += count;
    }

    /// Cost of all in one class.
    fn whole(&self) -> u64 {
        let mut all = [0; BUCKETS];
        self.of.iter().flatten().for_each(|h| join(&mut all, h));
        (self.cost)(&all)
    }

    /// Classes, what the sample has of each, and its cost in them. `None` if one class is as good.
    pub(super) fn classes(self, shift: u32, limits: Limits) -> (Option<Classes>, Vec<Guess>, u64) {
        let worth = (self.whole() / limits.share) as i64;
        let Limits { class_cost, rare, .. } = limits;
        struct Class {
            first: u8,
            seen: u64,
            h: Box<Buckets>,
            cost: u64,
        }
        let mut classes: Vec<Class> = Vec::new();
        // Keys that are too rare to judge join their neighbour.
        for (key, h) in self.of.into_iter().enumerate().filter_map(|(k, h)| h.map(|h| (k, h))) {
            let count: u64 = h.iter().map(|&c| u64::from(c)).sum();
            match classes.last_mut() {
                Some(last) if last.seen < rare || count < rare => {
                    join(&mut last.h, &h);
                    last.seen += count;
                }
                _ => classes.push(Class { first: key as u8, seen: count, h, cost: 0 }),
            }
        }
        classes.iter_mut().for_each(|c| c.cost = (self.cost)(&c.h));
        let gain = |a: &Class, b: &Class| {
            let mut h = a.h.clone();
            join(&mut h, &b.h);
            (a.cost + b.cost + class_cost) as i64 - (self.cost)(&h) as i64
        };
        let mut gains: Vec<i64> = classes.windows(2).map(|w| gain(&w[0], &w[1])).collect();
        while let Some((i, &g)) = gains.iter().enumerate().max_by_key(|(i, g)| (**g, usize::MAX - i)) {
            if g + worth <= 0 && classes.len() <= MAX_CLASSES {
                break;
            }
            let right = classes.remove(i + 1);
            gains.remove(i);
            let left = &mut classes[i];
            join(&mut left.h, &right.h);
            left.seen += right.seen;
            left.cost = (self.cost)(&left.h);
            if i > 0 {
                gains[i - 1] = gain(&classes[i - 1], &classes[i]);
            }
            if i < gains.len() {
                gains[i] = gain(&classes[i], &classes[i + 1]);
            }
        }
        let bits = classes.iter().map(|c| c.cost + class_cost).sum();
        if classes.len() < 2 {
            return (None, vec![], bits);
        }
        let single = |h: &Buckets| h[bucket(256)..].iter().all(|&n| n == 0);
        let guesses = classes.iter().map(|c| Guess { single: single(&c.h), elements: c.seen }).collect();
        (Some(Classes { shift, boundaries: classes[1..].iter().map(|c| c.first).collect() }), guesses, bits)
    }
}

fn join(a: &mut Buckets, b: &Buckets) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tell_all_but_the_rest() {
        let mut last = 0;
        for v in 0..100_000u64 {
            let b = bucket(v);
            assert!(b >= last && b < BUCKETS);
            last = b;
        }
        for v in [3, 4, 6, 8, 12, 1 << 20, 3 << 20] {
            let same = (v..).take_while(|&w| bucket(w) == bucket(v)).count() as u64;
            assert_eq!(same, 1 << rest_bits(bucket(v)), "{v}");
        }
        assert_eq!(bucket(u64::MAX), 127);
    }
}
