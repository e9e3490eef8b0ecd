//! Boundaries between contexts, as tables for shuffles.

use crate::inline::array;

/// Boundaries that are near to each other: one shuffle counts those that are at most a key.
pub(in crate::arch) struct Boundaries {
    /// No boundary is less, or more than 15 greater.
    pub(in crate::arch) base: u8,
    /// The number of boundaries by the distance of a key from the base; the last one for greater distances, too.
    pub(in crate::arch) at_most: [u8; 16],
}

impl Boundaries {
    /// The context of a key is the sum of what these say; `boundaries` rise.
    pub(in crate::arch) fn new(boundaries: &[u8]) -> Vec<Self> {
        let mut all = vec![];
        let mut left = boundaries;
        while let [first, ..] = left {
            // A lesser key has distance 0, too. No key is less than 0.
            let base = first.saturating_sub(1);
            let (near, rest) = left.split_at(left.partition_point(|b| b - base <= 15));
            let at_most = array(|i| near.iter().filter(|&&b| usize::from(b - base) <= i).count() as u8);
            all.push(Self { base, at_most });
            left = rest;
        }
        all
    }
}
