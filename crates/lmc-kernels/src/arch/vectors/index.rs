//! Indices of symbols in an encoder's columns.
//!
//! The index is the symbol's distance from the first one, as long as the kept symbols lie close enough together (exponents
//! do); one beyond the last is the escape's. Otherwise symbols are first renamed to their rank, one by one.

use crate::entropy::rans::COARSE;

/// Marks the entries of escaped symbols, in a column with a spare bit.
pub(in crate::arch) const ESCAPED: u8 = 0x80;

pub(in crate::arch) struct Index {
    /// The first symbol and the last index, where the index of a symbol is its distance from the first.
    pub(in crate::arch) first: u8,
    pub(in crate::arch) last: u8,
    /// Otherwise the rank of every symbol, which is its index.
    pub(in crate::arch) ranks: Option<Box<[u8; 256]>>,
}

impl Index {
    /// Also returns the entries by index: a symbol, and whether it is the escape.
    pub(in crate::arch) fn new(kept: &[bool; 256]) -> (Self, Vec<(usize, bool)>) {
        let known: Vec<usize> = (0..256).filter(|&s| kept[s]).collect();
        let (first, last) = (known[0], known[known.len() - 1]);
        let near = last + 1 - first < COARSE;
        let mut entries: Vec<_> = (first..=last).filter(|&s| near || kept[s]).map(|s| (s, !kept[s])).collect();
        let beyond = entries.len();
        assert!(beyond < COARSE, "slots for every symbol and the escape");
        // Any symbol that is not kept serves as the escape.
        entries.extend((0..256).find(|&s| !kept[s]).map(|s| (s, true)));
        if near {
            return (Self { first: first as u8, last: beyond as u8, ranks: None }, entries);
        }
        let mut ranks = Box::new([beyond as u8; 256]);
        known.iter().zip(0..).for_each(|(&s, rank)| ranks[s] = rank);
        (Self { first: 0, last: COARSE as u8 - 1, ranks: Some(ranks) }, entries)
    }

    /// Number of 16-entry registers that the indices need.
    pub(in crate::arch) fn stretches(&self) -> usize {
        usize::from(self.last) / 16 + 1
    }
}
