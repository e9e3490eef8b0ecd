//! How much of a step of Adam is its gradient.
//!
//! A step moves weights along m₁ / (√v₁ + ε), of the moments after it, but for their decay. The state before it knows
//! m₀ / (√v₀ + ε) alone: what that does not tell of the step is what its gradient brings.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use lmc::internals::read_base;
use lmc::{Base, Dtype, Result, Segment};
use lmc_layout::roles;

use super::result::AdamStep;
use super::sums::rounded;
use super::survey::stopped;
use crate::kind::Kind;

/// The ε that most optimizers have.
const EPSILON: f64 = 1e-8;
/// Elements that are read at once.
const ELEMENTS: u64 = 1 << 16;
/// About how many elements are looked at; the pieces are spread evenly.
const AT_MOST: u64 = 1 << 20;
/// The part of a step that its moments explain at least, if it is one of Adam.
const IS_ADAM: f64 = 0.9;

/// Where a tensor is.
type Place<'b> = (&'b Base<'b>, &'b Segment);

/// What the moments tell of the step from one checkpoint to the next; `None` without weights and both moments in `F32`, or
/// if nothing moved.
pub(super) fn step(old: &[Base<'_>], new: &[Base<'_>], stop: &AtomicBool) -> Result<Option<AdamStep>> {
    let (old, new) = (parameters(old), parameters(new));
    let lens = |of: &[Place<'_>; 3]| of.map(|place| place.1.len);
    let both = new.iter().filter_map(|(name, new)| Some((old.get(name).filter(|old| lens(old) == lens(new))?, new)));
    let both: Vec<_> = both.collect();
    let every = both.iter().map(|(_, new)| new[0].1.len / 4).sum::<u64>().div_ceil(AT_MOST);
    let mut sums = Sums::default();
    let mut seen = 0;
    for (old, new) in both {
        let elements = new[0].1.len / 4;
        for at in (0..elements).step_by(ELEMENTS as usize) {
            if stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let n = ELEMENTS.min(elements - at);
            if sums.elements * every <= seen {
                sums.add(&read(old, at, n)?, &read(new, at, n)?);
            }
            seen += n;
        }
    }
    Ok(sums.step())
}

/// The weights of each parameter, or their copies if there are any, and both moments.
fn parameters<'b>(files: &'b [Base<'b>]) -> BTreeMap<String, [Place<'b>; 3]> {
    let tensors = files.iter().flat_map(|f| f.segments().iter().map(move |s| (f, s)));
    let tensors: Vec<(&str, Place<'b>)> = tensors.filter_map(|at| Some((at.1.name.as_deref()?, at))).collect();
    let names = roles::parameters(tensors.iter().map(|(name, (_, segment))| (*name, &segment.shape[..])));
    let mut found: BTreeMap<String, [Option<Place<'b>>; 4]> = BTreeMap::new();
    let mut ambiguous = HashSet::new();
    for ((name, place), key) in tensors.into_iter().zip(names) {
        let which = match Kind::of(Some(name)) {
            Kind::Weights | Kind::Norm | Kind::Embedding => 0,
            Kind::Master => 1,
            Kind::ExpAvg => 2,
            Kind::ExpAvgSq => 3,
            Kind::Other => continue,
        };
        if place.1.dtype != Some(Dtype::F32) {
            continue;
        }
        if found.entry(key.clone()).or_default()[which].replace(place).is_some() {
            ambiguous.insert(key);
        }
    }
    let whole = |(key, [weights, copies, mean, square]): (String, [Option<Place<'b>>; 4])| {
        let all = [copies.or(weights)?, mean?, square?];
        let same = all.iter().all(|place| place.1.len == all[0].1.len);
        (same && !ambiguous.contains(&key)).then_some((key, all))
    };
    found.into_iter().filter_map(whole).collect()
}

/// Some weights, and the quotients of their moments.
fn read(of: &[Place<'_>; 3], at: u64, n: u64) -> Result<Vec<(f64, f64)>> {
    let floats = |(file, segment): Place<'_>| {
        let mut bytes = vec![0; 4 * n as usize];
        read_base(file, segment.offset + 4 * at, &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect::<Vec<_>>())
    };
    let [weights, mean, square] = [floats(of[0])?, floats(of[1])?, floats(of[2])?];
    let quotients = mean.into_iter().zip(square).map(|(m, v)| m / (v.sqrt() + EPSILON));
    Ok(weights.into_iter().zip(quotients).collect())
}

/// Of steps Δ, and of the moments' quotients before and after them: sums of squares and products.
#[derive(Default)]
struct Sums {
    elements: u64,
    moved: f64,
    before: f64,
    after: f64,
    with_before: f64,
    with_after: f64,
}

impl Sums {
    fn add(&mut self, old: &[(f64, f64)], new: &[(f64, f64)]) {
        self.elements += new.len() as u64;
        for ((w0, before), (w1, after)) in old.iter().zip(new) {
            let moved = w1 - w0;
            if !(moved.is_finite() && before.is_finite() && after.is_finite()) {
                continue;
            }
            self.moved += moved * moved;
            self.before += before * before;
            self.after += after * after;
            self.with_before += moved * before;
            self.with_after += moved * after;
        }
    }

    fn step(&self) -> Option<AdamStep> {
        // A step goes against the moments.
        let part = |product: f64, squares: f64| match self.moved * squares {
            all if all > 0.0 && all.is_finite() => product.min(0.0).powi(2) / all,
            _ => 0.0,
        };
        let explained = rounded(part(self.with_after, self.after));
        let gradient = (explained >= IS_ADAM).then(|| rounded(1.0 - part(self.with_before, self.before)));
        (self.moved > 0.0).then_some(AdamStep { elements: self.elements, explained, gradient })
    }
}
