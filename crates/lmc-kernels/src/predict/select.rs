//! Select: finds elements by their ranks in a context, as in succinct data structures
//! (Jacobson 1989, "Space-efficient static trees and graphs").

use std::ops::Range;

/// A search for elements of one context.
pub struct Selection<'a> {
    /// Ranks of the sought elements in the context, rising.
    ranks: &'a [u32],
    at: &'a mut [u32],
    found: usize,
    taken: usize,
    /// Elements of the context so far.
    seen: u32,
}

impl<'a> Selection<'a> {
    /// `at` receives the indices of the elements with these `ranks`; entries of ranks that the context does not have are left unchanged.
    pub fn new(ranks: &'a [u32], at: &'a mut [u32]) -> Self {
        assert_eq!(ranks.len(), at.len(), "room for every element");
        assert!(ranks.is_sorted_by(|a, b| a < b), "ranks rise");
        Self { ranks, at, found: 0, taken: 0, seen: 0 }
    }

    /// Elements of the context so far.
    pub fn seen(&self) -> usize {
        self.seen as usize
    }

    /// The elements found since the last call: their range among all, and their indices.
    pub fn take(&mut self) -> (Range<usize>, &[u32]) {
        let new = self.taken..self.found;
        self.taken = self.found;
        (new.clone(), &self.at[new])
    }

    /// Goes on by `n` elements of the context, unless one of them is sought.
    #[cfg_attr(not(any(test, target_arch = "x86_64")), expect(dead_code, reason = "for kernels of x86-64"))]
    #[inline(always)]
    pub(crate) fn pass(&mut self, n: u32) -> bool {
        let none = self.ranks.get(self.found).is_none_or(|&rank| rank - self.seen >= n);
        if none {
            self.seen += n;
        }
        none
    }

    /// Goes on by up to 64 elements of the column for each mask, from element `first` on: the context has those of the masks. `nth_one` is
    /// [`nth_one`], or does the same.
    #[inline(always)]
    pub(crate) fn step<const N: usize>(&mut self, first: u32, masks: [u64; N], nth_one: impl Fn(u64, u32) -> u32) {
        let (mut found, mut seen) = (self.found, self.seen);
        for (i, mask) in masks.into_iter().enumerate() {
            let first = first + 64 * i as u32;
            let n = mask.count_ones();
            while let Some(&rank) = self.ranks.get(found)
                && rank - seen < n
            {
                self.at[found] = first + nth_one(mask, rank - seen);
                found += 1;
            }
            seen += n;
        }
        (self.found, self.seen) = (found, seen);
    }
}

/// The index of the one bit of `mask` that `n` ones precede; `mask` has more than `n` ones.
#[inline(always)]
pub(crate) fn nth_one(mut mask: u64, mut n: u32) -> u32 {
    let mut passed = 0;
    for half in [32, 16, 8] {
        let lower = (mask & ((1 << half) - 1)).count_ones();
        if n >= lower {
            n -= lower;
            mask >>= half;
            passed += half;
        }
    }
    for _ in 0..n {
        mask &= mask - 1;
    }
    passed + mask.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_context_does_not_have_is_not_found() {
        let mut at = [7; 4];
        let mut s = Selection::new(&[0, 2, 3, 9], &mut at);
        assert!(!s.pass(1));
        s.step(64, [0b1011], nth_one);
        assert!(!s.pass(2) && s.seen() == 3);
        s.step(128, [1 << 63], nth_one);
        assert_eq!(s.take(), (0..3, &[64, 67, 191][..]));
        assert!(s.pass(5) && s.seen() == 9);
        assert!(!s.pass(1));
        assert_eq!(s.take(), (3..3, &[][..]));
        assert_eq!(at, [64, 67, 191, 7]);
    }

    #[test]
    fn ones_are_counted() {
        for mask in [1, 1 << 63, u64::MAX, 0x8000_0001_0180_0081, 0xf0f0_0000_0000_0f0f] {
            let ones: Vec<u32> = (0..64).filter(|i| mask >> i & 1 == 1).collect();
            assert_eq!((0..mask.count_ones()).map(|n| nth_one(mask, n)).collect::<Vec<_>>(), ones, "{mask:x}");
        }
    }

    #[test]
    #[should_panic(expected = "ranks rise")]
    fn equal_ranks_are_refused() {
        Selection::new(&[1, 1], &mut [0; 2]);
    }
}
