//! Finds scale and offset of a group: levels are integers, and scale × level + offset is rounded to all elements.
//!
//! A number of steps between the smallest and the largest value gives each value its level. Each pair of values then bounds the scale, and
//! each value bounds the offset that a scale needs.

use super::fit::Scales;
use super::form::{TOP, affine_element as element};
use super::lattice::Lattice;
use super::values::Value;
use lmc_kernels::predict::grid::Terms;

/// The most by which rounding moves a product, in parts of the largest one.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;
/// The margin of [`Scales::by_length`] at the ends: none, as all scales are tried. Ties of binary16 and bfloat16 are
/// often exact.
const EDGE: f64 = -1.0 / (1u64 << 40) as f64;
/// Numbers of steps for which terms are tried.
const TRIES: usize = 2;
/// The largest level that is tried for the smallest value.
const SHIFTS: usize = 3;
/// Scales that are tried for given levels, and offsets for each.
const SCALES: usize = 4;
const OFFSETS: usize = 3;

/// Finds terms, keeping its memory.
#[derive(Default)]
pub(super) struct AffineFit {
    /// Each value with the interval that is rounded to it, rising.
    values: Vec<Interval>,
    /// The level of each value, and where its product with the scale plus the offset may be.
    bounds: Vec<Bound>,
}

#[derive(Clone, Copy)]
struct Interval {
    lo: f64,
    hi: f64,
    bits: u32,
}

#[derive(Clone, Copy)]
struct Bound {
    level: usize,
    lo: f64,
    hi: f64,
}

impl Interval {
    fn middle(&self) -> f64 {
        (self.lo + self.hi) / 2.0
    }

    fn half(&self) -> f64 {
        (self.hi - self.lo) / 2.0
    }
}

/// Terms that give all values back.
pub(super) struct Affine {
    pub(super) terms: Terms,
    /// How unlikely it is that other values are on such a grid: the logarithm of one over the probability to base 2, roughly.
    pub(super) evidence: i32,
}

impl AffineFit {
    /// Terms that give all these values back, if there are any. One value may have any scale, and gets this one.
    pub(super) fn fit(&mut self, lattice: Lattice, values: &[Value], scale: u32) -> Option<Affine> {
        if let [one] = values {
            lattice.signed_interval(one.bits)?;
            let terms = Terms { scale, offset: Some(lattice.signed_value(one.bits).to_bits()) };
            return (element(lattice, terms, 0) == one.bits).then_some(Affine { terms, evidence: 0 });
        }
        if values.is_empty() || values.len() > TOP + 1 {
            return None;
        }
        self.values.clear();
        for &Value { bits, .. } in values {
            let (lo, hi) = lattice.signed_interval(bits)?;
            self.values.push(Interval { lo, hi, bits });
        }
        self.values.sort_unstable_by(|a, b| a.lo.total_cmp(&b.lo));
        let (first, last) = (self.values[0], self.values[values.len() - 1]);
        let range = last.middle() - first.middle();
        let narrowest = self.values.windows(2).map(|pair| pair[1].hi - pair[0].lo).fold(f64::MAX, f64::min);
        // Neighbours are a step apart at least.
        let least = ((last.lo - first.hi).max(0.0) / (narrowest + 2.0 * ROUNDING * range)) as usize;
        let mut tries = TRIES;
        for steps in least.max(values.len() - 1)..=TOP {
            let step = range / steps as f64;
            if !self.set_levels(step) {
                continue;
            }
            // The smallest value need not have the smallest level. It makes a difference where products are rounded as values are.
            let shifts = 0..=SHIFTS.min(TOP - steps);
            if let Some(terms) = shifts.into_iter().find_map(|shift| self.terms(lattice, step, shift)) {
                return Some(Affine { terms, evidence: self.evidence(step) });
            }
            tries -= 1;
            if tries == 0 {
                break;
            }
        }
        None
    }

    /// Gives each value its level above the first, if they are about so far apart.
    fn set_levels(&mut self, step: f64) -> bool {
        let [first, .., last] = self.values[..] else { return false };
        self.bounds.clear();
        for v in &self.values {
            let above = v.middle() - first.middle();
            let level = (above / step + 0.5) as usize;
            // Rounding at both ends moves the step.
            let tolerance = v.half() + first.half() + last.half() + ROUNDING * above;
            let is_near = (above - step * level as f64).abs() <= tolerance;
            if !is_near || self.bounds.last().is_some_and(|below| below.level >= level) {
                return false;
            }
            self.bounds.push(Bound { level, lo: v.lo, hi: v.hi });
        }
        true
    }

    /// Terms with few bits of mantissa that give all values back, if the first one has level `shift`.
    fn terms(&mut self, lattice: Lattice, step: f64, shift: usize) -> Option<Terms> {
        let first = self.bounds[0].level;
        for (bound, v) in self.bounds.iter_mut().zip(&self.values) {
            bound.level = bound.level - first + shift;
            let rounding = ROUNDING * step * bound.level as f64;
            (bound.lo, bound.hi) = (v.lo - rounding, v.hi + rounding);
        }
        let scales = self.scales()?;
        // Near the ends of its range a scale leaves little room for an offset.
        [scales, scales.middle()].into_iter().find_map(|scales| {
            scales.by_length(EDGE).take(SCALES).find_map(|scale| {
                let of_levels = f64::from(f32::from_bits(scale));
                let products = || self.bounds.iter().map(|bound| (bound, of_levels * bound.level as f64));
                let lo = products().map(|(bound, product)| bound.lo - product).fold(f64::MIN, f64::max);
                let hi = products().map(|(bound, product)| bound.hi - product).fold(f64::MAX, f64::min);
                offsets(lo, hi).map(|offset| Terms { scale, offset: Some(offset) }).find(|&terms| {
                    let mut both = self.values.iter().zip(&self.bounds);
                    both.all(|(v, bound)| element(lattice, terms, bound.level) == v.bits)
                })
            })
        })
    }

    /// The scales for which some offset gives all values back.
    fn scales(&self) -> Option<Scales> {
        let mut s = Scales { lo: 0.0, hi: f64::MAX };
        for (i, a) in self.bounds.iter().enumerate() {
            for b in &self.bounds[i + 1..] {
                let inverse = INVERSES[b.level - a.level];
                s = Scales { lo: s.lo.max((b.lo - a.hi) * inverse), hi: s.hi.min((b.hi - a.lo) * inverse) };
            }
            if s.lo > s.hi {
                return None;
            }
        }
        (s.hi > f64::from(f32::MIN_POSITIVE)).then_some(s)
    }

    /// [`Affine::evidence`] of values that are on a grid with this step.
    fn evidence(&self, step: f64) -> i32 {
        let (mut all, mut most) = (0, [0; 2]);
        for v in &self.values {
            let bits = (exponent(step) - exponent(v.hi - v.lo)).max(0);
            all += bits;
            most = [most[0].max(bits), most[1].max(most[0].min(bits))];
        }
        // Any two values are on a grid.
        all - most[0] - most[1]
    }
}

/// One over each difference of levels.
static INVERSES: [f64; TOP + 1] = {
    let mut inverses = [f64::INFINITY; TOP + 1];
    let mut i = 1;
    while i <= TOP {
        inverses[i] = 1.0 / i as f64;
        i += 1;
    }
    inverses
};

fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52) as i32
}

/// Binary32 in an interval, those with few bits of mantissa first.
fn offsets(lo: f64, hi: f64) -> impl Iterator<Item = u32> {
    let zero = (lo <= 0.0 && hi >= 0.0).then_some(0);
    let negative = lo + hi < 0.0;
    let (lo, hi) = if negative { (-hi, -lo) } else { (lo, hi) };
    let all = Scales { lo: lo.max(0.0), hi };
    let others = [all, all.middle()].into_iter().filter(|s| s.lo <= s.hi).flat_map(|s| s.by_length(EDGE).take(OFFSETS));
    zero.into_iter().chain(others.map(move |bits| bits | u32::from(negative) << 31))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::methods::predicted::grid::form::affine_level as level;
    use lmc_kernels::predict::Conversion;
    use lmc_kernels::predict::grid::GridModel;
    use lmc_test_inputs::Random;

    const CONVERSIONS: [Conversion; 3] = [Conversion::None, Conversion::NarrowBf16, Conversion::NarrowF16];

    fn values(bits: impl Iterator<Item = u32>) -> Vec<Value> {
        let mut all: Vec<u32> = bits.collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|bits| Value { bits, count: 1 }).collect()
    }

    /// Groups of elements on a grid; a scale and an offset of few bits each, as products of an fp16 and six bits have.
    fn on_grid(r: &mut Random, conversion: Conversion, top: u64, n: usize) -> Vec<Value> {
        let of_bits = |r: &mut Random, bits: u32, unit: f32| (1 + r.below((1 << bits) - 1)) as f32 * unit;
        let scale = of_bits(r, 16, 1.0 / (1 << 24) as f32);
        let offset = if r.below(8) == 0 { 0.0 } else { -scale * r.below(top) as f32 - of_bits(r, 12, scale / 8192.0) };
        let terms = Terms { scale: scale.to_bits(), offset: Some(offset.to_bits()) };
        values((0..n).map(|_| element(Lattice(conversion), terms, r.below(top + 1) as usize)))
    }

    #[test]
    fn terms_give_all_values_back() {
        let (mut r, mut fit) = (Random::new(41), AffineFit::default());
        for conversion in CONVERSIONS {
            let lattice = Lattice(conversion);
            for top in [1, 3, 15, 31] {
                let (mut found, all) = (0, 500);
                for _ in 0..all {
                    let values = on_grid(&mut r, conversion, top, 32);
                    let Some(affine) = fit.fit(lattice, &values, ONE.scale) else { continue };
                    assert!(values.iter().all(|v| level(lattice, affine.terms, v.bits).1), "{values:?}");
                    found += 1;
                }
                println!("{conversion:?} {top}: {found} of {all}");
                assert!(found * 100 >= all * 97, "{conversion:?} {top}: {found} of {all}");
            }
        }
    }

    #[test]
    fn other_values_are_on_no_grid() {
        let (mut r, mut fit) = (Random::new(42), AffineFit::default());
        for conversion in CONVERSIONS {
            let lattice = Lattice(conversion);
            for n in [3, 4, 8, 16, 32, 40] {
                let mut found = 0;
                for _ in 0..2000 {
                    let random = |_| GridModel::element(conversion, ONE, (r.below(1 << 24) as f32 - 8e6).to_bits());
                    let values = values((0..n).map(random));
                    found += usize::from(fit.fit(lattice, &values, ONE.scale).is_some_and(|f| f.evidence >= 12));
                }
                assert!(found <= 4, "{conversion:?} {n}: {found}");
            }
        }
    }

    const ONE: Terms = Terms { scale: 0x3f80_0000, offset: None };

    #[test]
    fn one_value_is_the_offset() {
        let (mut fit, scale) = (AffineFit::default(), 0x3c00_0000);
        for conversion in CONVERSIONS {
            let lattice = Lattice(conversion);
            for x in [0.0f32, 1.5, -0.25] {
                let bits = GridModel::element(conversion, ONE, x.to_bits());
                let terms = fit.fit(lattice, &values([bits].into_iter()), scale).unwrap().terms;
                assert_eq!((terms.scale, terms.offset), (scale, Some(x.to_bits())));
            }
            let all = u32::MAX >> (32 - 8 * conversion.width_of_f32());
            // −0, and NaN.
            for bits in [all ^ all >> 1, all] {
                assert!(fit.fit(lattice, &values([bits].into_iter()), scale).is_none());
            }
        }
    }

    #[test]
    fn any_values_are_looked_at() {
        let (mut r, mut fit) = (Random::new(43), AffineFit::default());
        for conversion in CONVERSIONS {
            let lattice = Lattice(conversion);
            let all = u64::MAX >> (64 - 8 * conversion.width_of_f32());
            for _ in 0..20_000 {
                let near = r.below(2) == 0;
                let (base, n) = (r.u64() & all, 1 + r.below(34));
                let bits = |r: &mut Random| if near { (base + r.below(40)) & all } else { r.u64() & all } as u32;
                let values = values((0..n).map(|_| bits(&mut r)));
                if let Some(affine) = fit.fit(lattice, &values, ONE.scale) {
                    assert!(values.iter().all(|v| level(lattice, affine.terms, v.bits).1), "{values:x?}");
                }
            }
        }
    }
}
