//! Which pairs of checkpoints are compared.

use std::collections::BTreeMap;

use super::input::PAIRS;

/// The most distances that are chosen, each the double of the one before.
const DISTANCES: u32 = 16;

/// The passes of a study.
pub(super) struct Plan {
    checkpoints: usize,
    /// Pairs besides those of neighbours.
    pub(super) pairs: Vec<(usize, usize)>,
}

impl Plan {
    pub(super) fn new(steps: &[u64], distances: Option<Vec<u64>>) -> Self {
        let wanted = distances.unwrap_or_else(|| doubles(steps));
        let mut pairs = Vec::new();
        for distance in wanted {
            let of_distance: Vec<_> = (0..steps.len())
                .filter_map(|to| {
                    let from = steps.binary_search(&steps[to].checked_sub(distance)?).ok()?;
                    (from < to).then_some((from, to))
                })
                .collect();
            // Neighbours are compared anyway, and count.
            let neighbours = of_distance.iter().filter(|(from, to)| to - from == 1).count();
            let others: Vec<_> = of_distance.into_iter().filter(|(from, to)| to - from > 1).collect();
            let n = others.len().min(PAIRS.saturating_sub(neighbours));
            pairs.extend((0..n).map(|i| others[(2 * i + 1) * others.len() / (2 * n)]));
        }
        pairs.sort_unstable_by_key(|&(from, to)| (to, from));
        pairs.dedup();
        Self { checkpoints: steps.len(), pairs }
    }

    pub(super) fn passes(&self) -> usize {
        // Each but the first is read beside the one before it, and by itself.
        self.checkpoints + self.checkpoints.saturating_sub(1) + self.pairs.len()
    }
}

/// One, two, four and so on times the distance that most neighbours have; of several, the smallest.
fn doubles(steps: &[u64]) -> Vec<u64> {
    let mut gaps: BTreeMap<u64, usize> = BTreeMap::new();
    steps.windows(2).for_each(|s| *gaps.entry(s[1] - s[0]).or_default() += 1);
    let unit = gaps.into_iter().rev().max_by_key(|(_, n)| *n).map_or(0, |(gap, _)| gap);
    let span = steps.last().unwrap_or(&0) - steps.first().unwrap_or(&0);
    (0..DISTANCES).map_while(|i| unit.checked_mul(1 << i)).take_while(|d| (1..=span).contains(d)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(steps: &[u64], distances: Option<Vec<u64>>) -> Vec<(usize, usize)> {
        Plan::new(steps, distances).pairs
    }

    #[test]
    fn distances_double() {
        assert_eq!(doubles(&[0, 500, 1000, 2500]), [500, 1000, 2000]);
        assert_eq!(doubles(&[1, 2, 4, 8]), [1, 2, 4]);
        // Whatever a few neighbours have.
        assert_eq!(doubles(&[0, 1000, 2000, 3000, 4000, 4001]), [1000, 2000, 4000]);
        assert_eq!(doubles(&[0, 7, 1007, 2007]), [1000, 2000]);
        assert_eq!((doubles(&[7]), doubles(&[])), (vec![], vec![]));
        assert_eq!(doubles(&[0, u64::MAX]), [u64::MAX]);
        assert_eq!(doubles(&[0, 1, u64::MAX]).len(), DISTANCES as usize);
    }

    #[test]
    fn pairs_are_spread_and_bounded() {
        let steps: Vec<u64> = (0..33).map(|i| 10 * i).collect();
        // From the middle of each quarter of the pairs of a distance.
        assert_eq!(pairs(&steps, Some(vec![160])), [(2, 18), (6, 22), (10, 26), (14, 30)]);
        let all = [(0, 2), (0, 4), (2, 4), (1, 5), (4, 6), (3, 7), (0, 8), (4, 8), (6, 8)];
        assert_eq!(pairs(&steps[..9], None), all);
        assert_eq!(pairs(&steps[..9], Some(vec![80, 80, 5, 0, 90])), [(0, 8)]);
        assert_eq!(pairs(&steps, Some(vec![10])), []);
        assert_eq!(pairs(&[1, 2, 4, 8], None), []);
        assert_eq!(pairs(&[0, 1, 2, 3], Some(vec![2, 3])), [(0, 2), (0, 3), (1, 3)]);
    }
}
