//! Histograms of residuals by the key of their elements, and contexts: ranges of keys worth separate streams.

use lmc_kernels::entropy::cost;
use lmc_kernels::entropy::merge::merge_neighbours;
use lmc_kernels::inline::zip;
use lmc_kernels::predict::{Contexts, MAX_BOUNDARIES};

/// Buckets of values of similar magnitude: four exact values, then two buckets for each further bit.
pub(in crate::block) const BUCKETS: usize = 128;

#[inline(always)]
pub(in crate::block) fn bucket(v: u64) -> usize {
    let len = 64 - v.leading_zeros() as usize;
    if len < 3 { v as usize } else { (2 * len - 2 + (v >> (len - 2) & 1) as usize).min(BUCKETS - 1) }
}

/// Bits of a value beside its bucket.
#[inline(always)]
pub(in crate::block) fn rest_bits(bucket: usize) -> u64 {
    if bucket < 4 { 0 } else { bucket as u64 / 2 - 1 }
}

pub(in crate::block) type Buckets = [u32; BUCKETS];

/// Cost in 1/256 bit of values with these counts of buckets, if a value has `rest(bucket)` bits beside its bucket.
pub(in crate::block) fn buckets_cost(h: &[u32], rest: impl Fn(usize) -> u64) -> u64 {
    h.iter().enumerate().fold(cost::entropy(h), |bits, (b, &c)| bits + u64::from(c) * rest(b) * cost::BIT)
}

/// Statistics of a context in a sample.
pub(in crate::block) struct ContextStats {
    /// Whether a byte holds every residual.
    pub(in crate::block) single: bool,
    pub(in crate::block) elements: u64,
}

/// Sampled residuals by key.
pub(in crate::block) struct ContextHistograms<C> {
    /// Index of a key's histogram, if it has one.
    place: [Option<u8>; 256],
    of: Vec<Buckets>,
    /// All buckets from here on are empty.
    end: usize,
    /// Cost in 1/256 bit of residuals by their counts in the first buckets, at least one; the other buckets are empty.
    cost: C,
}

/// Thresholds of contexts.
#[derive(Clone, Copy)]
pub(in crate::block) struct Limits {
    /// Fixed cost of a context in 1/256 bit, scaled to the sample.
    pub(in crate::block) context_cost: u64,
    /// A further context, which takes time, must save 1/`share` of the cost in one context.
    pub(in crate::block) share: u64,
    /// Keys with fewer elements join a neighbour.
    pub(in crate::block) rare: u64,
}

/// A range of keys.
struct Context {
    first: u8,
    seen: u64,
    h: Box<Buckets>,
    cost: u64,
}

impl<C: Fn(&[u32]) -> u64> ContextHistograms<C> {
    pub(in crate::block) fn new(cost: C) -> Self {
        Self { place: [None; 256], of: Vec::with_capacity(32), end: 1, cost }
    }

    /// Adds `count` residuals.
    #[inline(always)]
    pub(in crate::block) fn add(&mut self, key: u8, bucket: usize, count: u32) {
        let place = *self.place[usize::from(key)].get_or_insert_with(|| {
            self.of.push([0; BUCKETS]);
            // At most 256 keys.
            (self.of.len() - 1) as u8
        });
        self.of[usize::from(place)][bucket] += count;
        self.end = self.end.max(bucket + 1);
    }

    /// Cost of all in one context.
    pub(in crate::block) fn whole(&self) -> u64 {
        let mut all = [0; BUCKETS];
        self.of.iter().for_each(|h| join(&mut all, h));
        (self.cost)(&all[..self.end])
    }

    /// Contexts, statistics of each, and the cost of the sample in them. `None` if one context is as good.
    pub(in crate::block) fn contexts(self, limits: Limits) -> (Option<Contexts>, Vec<ContextStats>, u64) {
        let worth = (self.whole() / limits.share) as i64;
        let Limits { context_cost, rare, .. } = limits;
        let mut contexts: Vec<Context> = Vec::with_capacity(self.of.len());
        // Keys that are too rare to judge join their neighbour.
        for (key, place) in (0..=u8::MAX).zip(&self.place).filter_map(|(key, place)| place.map(|p| (key, p))) {
            let h = &self.of[usize::from(place)];
            let count: u64 = h.iter().map(|&c| u64::from(c)).sum();
            match contexts.last_mut() {
                Some(last) if last.seen < rare || count < rare => {
                    join(&mut last.h, h);
                    last.seen += count;
                }
                _ => contexts.push(Context { first: key, seen: count, h: Box::new(*h), cost: 0 }),
            }
        }
        let cost = |h: &Buckets| (self.cost)(&h[..self.end]);
        contexts.iter_mut().for_each(|c| c.cost = cost(&c.h));
        let gain = |a: &Context, b: &Context| {
            let mut h = *a.h;
            join(&mut h, &b.h);
            (a.cost + b.cost + context_cost) as i64 - cost(&h) as i64
        };
        let goes_on = |gain: i64, n: usize| gain + worth > 0 || n > MAX_BOUNDARIES + 1;
        merge_neighbours(&mut contexts, gain, goes_on, |left, right, gain| {
            join(&mut left.h, &right.h);
            left.seen += right.seen;
            // The gain was the difference to this cost.
            left.cost = (left.cost + right.cost + context_cost).wrapping_add_signed(-gain);
        });
        let bits = contexts.iter().map(|c| c.cost + context_cost).sum();
        if contexts.len() < 2 {
            return (None, vec![], bits);
        }
        let single = |h: &Buckets| h[bucket(256)..].iter().all(|&n| n == 0);
        let stats = contexts.iter().map(|c| ContextStats { single: single(&c.h), elements: c.seen }).collect();
        (Some(Contexts { boundaries: contexts[1..].iter().map(|c| c.first).collect() }), stats, bits)
    }
}

#[inline(always)]
fn join(a: &mut Buckets, b: &Buckets) {
    zip(a, b, |a, b| *a += b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_and_the_rest_give_a_value() {
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
