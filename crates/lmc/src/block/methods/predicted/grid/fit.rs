//! Finds the scale of a group: a number whose products with levels are rounded to all elements.
//!
//! Each element bounds the scale, once its level is known, by the interval that is rounded to the element, divided by
//! the level. If the intersection of all bounds is not empty, any scale in it gives all elements back.

use super::codebook::Codebook;

/// A value other than 0 of a group.
#[derive(Clone, Copy)]
pub(super) struct Bounded {
    /// The interval that is rounded to its magnitude.
    pub(super) lo: f64,
    pub(super) hi: f64,
    pub(super) negative: bool,
    /// Elements that have it.
    pub(super) count: u32,
}

/// The elements of all.
pub(super) fn count(bounds: &[Bounded]) -> usize {
    bounds.iter().map(|e| e.count as usize).sum()
}

/// Scales that give all elements, or most, back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    pub(super) lo: f64,
    pub(super) hi: f64,
}

/// Passes over the elements that may still have several levels.
const PASSES: usize = 6;
/// The largest element of a group may have any level but those of the lowest part.
const TOPS: usize = 4;

/// The scales that give all elements back, if there are any. No element is 0. `top` is the level of the largest element
/// in the group before, and becomes that of this group.
pub(super) fn fit(book: &Codebook, elements: &[Bounded], top: &mut usize) -> Option<Scales> {
    let largest = elements.iter().max_by(|a, b| a.hi.total_cmp(&b.hi))?;
    let levels = &book.side(largest.negative).levels;
    let last = levels.len().checked_sub(1)?;
    let tops = (levels.len() / TOPS..=last).rev();
    for at in std::iter::once((*top).min(last)).chain(tops) {
        let level = f64::from(levels[at]);
        let start = Scales { lo: largest.lo / level, hi: largest.hi / level };
        if let Some(found) = intersect(book, elements, start) {
            *top = at;
            return Some(found);
        }
    }
    None
}

/// The scales in `s` that give all elements back.
fn intersect(book: &Codebook, elements: &[Bounded], mut s: Scales) -> Option<Scales> {
    let mut open: Vec<Bounded> = Vec::new();
    for pass in 0..PASSES {
        let mut next = Vec::new();
        for e in if pass == 0 { elements } else { &open } {
            match level(book, e, s) {
                Possible::None => return None,
                Possible::Several if pass + 1 < PASSES => next.push(*e),
                Possible::Several => {
                    let side = book.side(e.negative);
                    let nearest = side.nearest(((e.lo + e.hi) / (s.lo + s.hi)) as f32);
                    s = narrow(s, e, side.level(nearest).into())?;
                }
                Possible::One(level) => s = narrow(s, e, level)?,
            }
        }
        if next.is_empty() {
            break;
        }
        open = next;
    }
    Some(s)
}

/// The levels that an element may have.
enum Possible {
    None,
    One(f64),
    Several,
}

/// The levels of an element that scales leave.
#[inline(always)]
fn level(book: &Codebook, e: &Bounded, s: Scales) -> Possible {
    let side = book.side(e.negative);
    let (lo, hi) = (e.lo / s.hi, e.hi / s.lo);
    let at = side.first_at_least(lo);
    let is_possible = |at: usize| side.levels.get(at).is_some_and(|&level| f64::from(level) <= hi);
    match (is_possible(at), is_possible(at + 1)) {
        (false, _) => Possible::None,
        (true, false) => Possible::One(side.levels[at].into()),
        (true, true) => Possible::Several,
    }
}

#[inline(always)]
fn narrow(s: Scales, e: &Bounded, level: f64) -> Option<Scales> {
    let s = Scales { lo: s.lo.max(e.lo / level), hi: s.hi.min(e.hi / level) };
    (s.lo <= s.hi).then_some(s)
}

/// Elements that may be the largest one that is on the grid, and the levels that it may have.
const SEEDS: usize = 4;
const SEED_LEVELS: usize = 3;
/// The part of elements that shows that nothing better will be found.
const MOST: (usize, usize) = (5, 6);

/// The scales that give most elements back: some may not be on the grid. `top` as for [`fit`].
pub(super) fn fit_most(book: &Codebook, elements: &[Bounded], top: &mut usize) -> Option<Scales> {
    let mut largest: Vec<&Bounded> = elements.iter().collect();
    largest.sort_by(|a, b| b.hi.total_cmp(&a.hi));
    let mut best: Option<(Scales, usize)> = None;
    let all = count(elements);
    for seed in largest.into_iter().take(SEEDS) {
        let levels = &book.side(seed.negative).levels;
        let Some(last) = levels.len().checked_sub(1) else { continue };
        let tops = (0..=last).rev().take(SEED_LEVELS);
        for at in std::iter::once((*top).min(last)).chain(tops) {
            let level = f64::from(levels[at]);
            let start = Scales { lo: seed.lo / level, hi: seed.hi / level };
            // Few levels are known at first, and nearly all when these have narrowed the scales.
            let Some(found) = deepest(book, elements, start).and_then(|(s, _)| deepest(book, elements, s)) else {
                continue;
            };
            if best.is_none_or(|b| found.1 > b.1) {
                best = Some(found);
                *top = at;
            }
            if found.1 * MOST.1 >= all * MOST.0 {
                return Some(found.0);
            }
        }
    }
    best.map(|b| b.0)
}

/// The scales in `s` that give the most elements back of those that have one possible level.
fn deepest(book: &Codebook, elements: &[Bounded], s: Scales) -> Option<(Scales, usize)> {
    let mut edges = Vec::with_capacity(2 * elements.len());
    for e in elements {
        if let Possible::One(level) = level(book, e, s) {
            let of = Scales { lo: (e.lo / level).max(s.lo), hi: (e.hi / level).min(s.hi) };
            if of.lo < of.hi {
                edges.push((of.lo, i64::from(e.count)));
                edges.push((of.hi, -i64::from(e.count)));
            }
        }
    }
    // Of equal edges, those that end come first: at an edge, products are rounded to one of two neighbours. Many edges are equal, as levels
    // of several exponents have the same mantissas.
    edges.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut depth, mut best) = (0, None);
    for (i, &(at, step)) in edges.iter().enumerate() {
        depth += step;
        if step > 0 && best.is_none_or(|(_, most)| depth > most) {
            best = Some((Scales { lo: at, hi: edges[i + 1].0 }, depth));
        }
    }
    best.map(|(s, depth)| (s, depth as usize))
}

/// Relative distance from the ends of an interval that a scale keeps: there, products are rounded to the element or to its neighbour.
const MARGIN: f64 = 1.0 / (1 << 23) as f64;

impl Scales {
    /// The bits of the binary32 in it that has the fewest bits of mantissa: it takes the least space.
    pub(super) fn shortest(self) -> u32 {
        // If no binary32 is in it, one beside it.
        self.by_length(MARGIN)
            .next()
            .unwrap_or_else(|| (((self.lo + self.hi) / 2.0).min(f32::MAX.into()) as f32).to_bits())
    }

    /// The half that is farthest from the ends.
    pub(super) fn middle(self) -> Scales {
        let quarter = (self.hi - self.lo) / 4.0;
        Scales { lo: self.lo + quarter, hi: self.hi - quarter }
    }

    /// The bits of binary32 in it, farther from the ends than `margin`, a part of them: the one with the fewest bits of mantissa, and for
    /// each number of bits more one.
    pub(super) fn by_length(self, margin: f64) -> impl Iterator<Item = u32> {
        let margin = (margin * self.lo).min((self.hi - self.lo) / 8.0);
        // Scales are finite. An element may be larger than any of them times its level.
        let finite = |x: f64| x.clamp(f32::MIN_POSITIVE.into(), f32::MAX.into());
        let (lo, hi) = (finite(self.lo + margin), finite(self.hi - margin));
        let from = lo as f32;
        // The smallest binary32 that is not below.
        let first = if f64::from(from) < lo { from.next_up() } else { from }.to_bits();
        let mut last = None;
        (0..=23).rev().filter_map(move |dropped| {
            let candidate = first.next_multiple_of(1 << dropped);
            let is_new = f64::from(f32::from_bits(candidate)) <= hi && last != Some(candidate);
            is_new.then(|| *last.insert(candidate))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::methods::predicted::grid::codebook::ALL;

    #[test]
    fn scales_at_the_edge_of_two_intervals_give_one_of_them_back() {
        let int4 = ALL.iter().find(|book| book.side(false).levels == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
        let value = |lo, hi, count| Bounded { lo, hi, negative: false, count };
        // All have the level 7. More have the scale at the edge of the first and the second than any other.
        let values = [value(10.0, 10.1, 4), value(10.1, 10.2, 3), value(10.05, 10.15, 2)];
        let (scales, count) = deepest(int4, &values, Scales { lo: 10.0 / 7.0, hi: 10.2 / 7.0 }).unwrap();
        assert_eq!((scales.lo, scales.hi, count), (10.05 / 7.0, 10.1 / 7.0, 6));
    }
}
