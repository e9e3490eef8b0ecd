//! Agglomerative clustering in one dimension: the neighbours that gain most by it are merged, again and again.

/// Merges neighbours in `items` while `goes_on`, which is given the best gain of a merger and the number of items.
///
/// `gain` returns the gain of merging two neighbours; `join` merges the right one into the left one, for the gain that
/// was found. Of equal gains the leftmost comes first.
pub fn merge_neighbours<T>(
    items: &mut Vec<T>,
    gain: impl Fn(&T, &T) -> i64,
    goes_on: impl Fn(i64, usize) -> bool,
    mut join: impl FnMut(&mut T, T, i64),
) {
    let mut gains: Vec<i64> = items.windows(2).map(|w| gain(&w[0], &w[1])).collect();
    while let Some((i, &best)) = gains.iter().enumerate().max_by_key(|(i, g)| (**g, usize::MAX - i))
        && goes_on(best, items.len())
    {
        let right = items.remove(i + 1);
        gains.remove(i);
        join(&mut items[i], right, best);
        if i > 0 {
            gains[i - 1] = gain(&items[i - 1], &items[i]);
        }
        if i < gains.len() {
            gains[i] = gain(&items[i], &items[i + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(values: &[i64], goes_on: impl Fn(i64, usize) -> bool) -> Vec<(i64, usize)> {
        let mut items: Vec<(i64, usize)> = values.iter().map(|&v| (v, 1)).collect();
        merge_neighbours(
            &mut items,
            |a, b| -(a.0 - b.0).abs(),
            goes_on,
            |a, b, gain| {
                assert_eq!(gain, -(a.0 - b.0).abs());
                *a = (a.0.max(b.0), a.1 + b.1);
            },
        );
        items
    }

    #[test]
    fn the_nearest_are_merged_first() {
        let values = [1, 2, 9, 20, 21, 22];
        assert_eq!(merged(&values, |gain, _| gain > -3), [(2, 2), (9, 1), (22, 3)]);
        assert_eq!(merged(&values, |_, n| n > 2), [(9, 3), (22, 3)]);
        assert_eq!(merged(&[5, 5, 5], |gain, n| gain == 0 && n > 2), [(5, 2), (5, 1)]);
        assert_eq!(merged(&[], |_, _| true), []);
        assert_eq!(merged(&values, |_, _| true), [(22, 6)]);
    }
}
