//! How many 16-bit weights a step of Adam changes: as the state before it predicts, and as it was.
//!
//! An element is rounded to another value with the probability |u| / ulp(w), at most 1, where u is its update and
//! ulp(w) the distance of values around it. By the moments before the step, the update is r · |m| / (√v + ε): the next
//! gradient changes them by little. The rate r is the one that fits the changes of the copies: the learning rate times
//! Adam's corrections of bias, (1 − β₂ᵗ)^½ / (1 − β₁ᵗ), which fade with the step t. Weight decay is left out. Over
//! several steps updates of changing signs cancel, and this does not hold.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use lmc::internals::read_base;
use lmc::{Base, Dtype, Error, ErrorKind, Result, Segment};
use lmc_layout::roles::parameter;

use super::result::Density;
use super::sums::rounded;
use crate::kind::Kind;

/// The ε that most optimizers add to √v.
const EPSILON: f32 = 1e-8;
/// Elements that are read at once.
const ELEMENTS: u64 = 1 << 20;
/// Bits of numbers that are counted together: sign, exponent and four bits of the mantissa, so that each count is of numbers that differ by 6 %
/// at most.
const TOP: u32 = 16;

/// Where a tensor is.
type Place<'b> = (&'b Base<'b>, &'b Segment);

/// A parameter: its weights, their copies, and both moments.
type Parameter<'b> = [Place<'b>; 4];

/// The number of weights that a step from `old` to `new` changed, and the predicted number; `None` where they have no
/// 16-bit weights with copies and both moments in `F32`, or nothing moved.
pub(super) fn density(old: &[Base<'_>], new: &[Base<'_>], stop: &AtomicBool) -> Result<Option<Density>> {
    let (old, new) = (parameters(old), parameters(new));
    let mut sums = Sums::new();
    for (name, new) in &new {
        let Some(old) = old.get(name).filter(|old| old[0].1.dtype == new[0].1.dtype && old[0].1.len == new[0].1.len)
        else {
            continue;
        };
        let elements = new[1].1.len / 4;
        for at in (0..elements).step_by(ELEMENTS as usize) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Io, "the study was stopped"));
            }
            let n = ELEMENTS.min(elements - at);
            sums.add(&Elements::read(old, at, n)?, &Elements::read(new, at, n)?);
        }
    }
    Ok(sums.density())
}

/// The parameters of a checkpoint that have all four tensors, by the common part of their names.
fn parameters<'b>(files: &'b [Base<'b>]) -> BTreeMap<String, Parameter<'b>> {
    let mut found: BTreeMap<String, [Option<Place<'b>>; 4]> = BTreeMap::new();
    let mut ambiguous = HashSet::new();
    for (file, segment) in files.iter().flat_map(|f| f.segments().iter().map(move |s| (f, s))) {
        let Some(name) = segment.name.as_deref() else { continue };
        let place = match (Kind::of(Some(name)), segment.dtype) {
            (Kind::Weights | Kind::Norm | Kind::Embedding, Some(Dtype::Bf16 | Dtype::F16)) => 0,
            (Kind::Master, Some(Dtype::F32)) => 1,
            (Kind::ExpAvg, Some(Dtype::F32)) => 2,
            (Kind::ExpAvgSq, Some(Dtype::F32)) => 3,
            _ => continue,
        };
        let key = parameter(name);
        if found.entry(key.clone()).or_default()[place].replace((file, segment)).is_some() {
            ambiguous.insert(key);
        }
    }
    let whole = |(key, [a, b, c, d]): (String, [Option<Place<'b>>; 4])| {
        let all = [a?, b?, c?, d?];
        let len = 2 * all[0].1.len;
        (all[1..].iter().all(|p| p.1.len == len) && !ambiguous.contains(&key)).then_some((key, all))
    };
    found.into_iter().filter_map(whole).collect()
}

/// Some elements of a parameter.
struct Elements {
    dtype: Option<Dtype>,
    weights: Vec<u8>,
    /// Copies and both moments.
    copies: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Elements {
    fn read(of: &Parameter<'_>, at: u64, n: u64) -> Result<Self> {
        let bytes = |(file, segment): Place<'_>, width: u64| {
            let mut bytes = vec![0; (n * width) as usize];
            read_base(file, segment.offset + at * width, &mut bytes).map(|()| bytes)
        };
        let floats = |place| {
            let bytes = bytes(place, 4)?;
            Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>())
        };
        let dtype = of[0].1.dtype;
        Ok(Self {
            dtype,
            weights: bytes(of[0], 2)?,
            copies: floats(of[1])?,
            mean: floats(of[2])?,
            square: floats(of[3])?,
        })
    }

    /// Adam's update over the learning rate.
    fn direction(&self, i: usize) -> f64 {
        f64::from(self.mean[i] / (self.square[i].sqrt() + EPSILON))
    }

    /// The distance of 16-bit values around an element.
    fn ulp(&self, i: usize) -> f64 {
        let (mantissa, least) = if self.dtype == Some(Dtype::F16) { (10, -14) } else { (7, -126) };
        let exponent = (self.copies[i].to_bits() >> 23 & 0xff) as i32 - 127;
        2f64.powi(exponent.max(least) - mantissa)
    }
}

/// The counts of a step.
struct Sums {
    elements: u64,
    changed: u64,
    /// Products of how far copies moved and the direction after the step, and of each with itself.
    along: f64,
    moved: f64,
    direction: f64,
    /// Distances in ulp for each unit of the learning rate: how many, and their sum; by the moments, and with full
    /// updates.
    predicted: Vec<(u64, f64)>,
    full: Vec<(u64, f64)>,
}

impl Sums {
    fn new() -> Self {
        let none = vec![(0, 0.0); 1 << TOP];
        let (along, moved, direction) = (0.0, 0.0, 0.0);
        Self { elements: 0, changed: 0, along, moved, direction, predicted: none.clone(), full: none }
    }

    fn add(&mut self, old: &Elements, new: &Elements) {
        let count = |counts: &mut [(u64, f64)], x: f64| {
            let (n, sum) = &mut counts[(x.to_bits() >> (64 - TOP)) as usize];
            *n += 1;
            *sum += x;
        };
        for i in 0..new.copies.len() {
            let (moved, direction) = (f64::from(new.copies[i]) - f64::from(old.copies[i]), new.direction(i));
            self.along -= moved * direction;
            self.moved += moved * moved;
            self.direction += direction * direction;
            let ulp = old.ulp(i);
            count(&mut self.predicted, old.direction(i).abs() / ulp);
            count(&mut self.full, 1.0 / ulp);
        }
        self.elements += new.copies.len() as u64;
        let (new, old) = (new.weights.as_chunks::<2>().0, old.weights.as_chunks::<2>().0);
        self.changed += new.iter().zip(old).filter(|(a, b)| a != b).count() as u64;
    }

    fn density(&self) -> Option<Density> {
        let rate = self.along / self.direction;
        if !(rate > 0.0 && rate.is_finite() && self.moved > 0.0 && self.moved.is_finite()) {
            return None;
        }
        // Of the elements that are counted together, all or none exceed an ulp, but for the few that are counted with those at it.
        let part = |counts: &[(u64, f64)]| {
            let changed: f64 = counts.iter().map(|(n, sum)| (rate * sum).min(*n as f64)).sum();
            rounded(changed / self.elements as f64)
        };
        Some(Density {
            elements: self.elements,
            changed: self.changed,
            predicted: part(&self.predicted),
            at_most: part(&self.full),
            learning_rate: format!("{rate:.3e}").parse().unwrap_or(rate),
            explained: rounded(self.along * rate / self.moved),
        })
    }
}
