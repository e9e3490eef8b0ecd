//! Which pairs of checkpoints are compared.

use std::collections::BTreeMap;

use super::input::AnalyzeOptions;

/// The most distances that are chosen, each the double of the one before.
const DISTANCES: u32 = 16;

/// The passes of a study.
pub(super) struct Plan {
    checkpoints: usize,
    /// Pairs besides those of neighbours.
    pub(super) pairs: Vec<(usize, usize)>,
}

impl Plan {
    pub(super) fn new(steps: &[u64], options: &AnalyzeOptions) -> Self {
        let wanted = options.distances.clone().unwrap_or_else(|| doubles(steps));
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
            let n = others.len().min(options.pairs.saturating_sub(neighbours));
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

    fn pairs(steps: &[u64], distances: Option<Vec<u64>>, pairs: usize) -> Vec<(usize, usize)> {
        Plan::new(steps, &AnalyzeOptions { distances, pairs, ..AnalyzeOptions::default() }).pairs
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
        let steps: Vec<u64> = (0..9).map(|i| 10 * i).collect();
        // One pair for each distance, from the middle of all.
        assert_eq!(pairs(&steps, None, 1), [(3, 5), (2, 6), (0, 8)]);
        assert_eq!(pairs(&steps, Some(vec![80, 80, 5, 0, 90]), 4), [(0, 8)]);
        assert_eq!(pairs(&steps, Some(vec![10]), 4), []);
        assert_eq!(pairs(&[1, 2, 4, 8], None, 4), []);
        assert_eq!(pairs(&[0, 1, 2, 3], Some(vec![2, 3]), 9), [(0, 2), (0, 3), (1, 3)]);
    }
}
