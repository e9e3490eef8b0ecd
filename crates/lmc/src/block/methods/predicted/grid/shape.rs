//! The shapes of groups that are tried.

use std::ops::Range;

use crate::block::Matrix;
use lmc_kernels::predict::grid::Groups;

/// Elements of a group along a row or down a column, in quantised formats.
const LENGTHS: [u64; 5] = [128, 64, 32, 256, 16];
/// Rows and columns of a block that has one scale.
const BLOCK: u64 = 128;
/// More rows than any column spans.
const ALL_ROWS: u64 = 1 << 24;
/// Most elements of a row of a matrix whose groups have several rows.
const MOST_ROW: u64 = 1 << 32;

/// The possible groups of `n` elements of a matrix, those that are found most often first.
pub(super) fn candidates(m: &Matrix, n: u64) -> Vec<Groups> {
    let Matrix { row, position } = *m;
    let of = |rows: u64, columns: u64| Groups { row, rows, columns, position: position % (rows * row) };
    // Rows that are cut into whole groups need not be known.
    let along = |len: u64| {
        if row.is_multiple_of(len) {
            Groups { row: len, rows: 1, columns: len, position: position % len }
        } else {
            of(1, len)
        }
    };
    // One for all.
    let mut all = vec![Groups { row: n, rows: 1, columns: n, position: 0 }];
    let rows = (position % row + n).div_ceil(row);
    // A larger number is not the rows of a matrix.
    let rows = if row <= MOST_ROW { rows } else { 1 };
    if rows > 1 {
        if row > BLOCK {
            all.push(of(BLOCK, BLOCK));
        }
        all.push(of(1, row));
        all.push(of(ALL_ROWS.min((1 << 40) / row), 1));
    }
    for len in LENGTHS {
        if row > len {
            all.push(along(len));
        }
        if rows > 1 && row > 1 {
            all.push(of(len, 1));
        }
    }
    all.retain(|g| g.are_valid(n) && g.count(n) * 2 <= n);
    all
}

/// The elements of a group, of `n` in the column: a range for each row.
pub(super) fn pieces(g: &Groups, group: u64, n: u64) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
    let Groups { row, rows, columns, position } = *g;
    let (of_rows, of_columns) = (group / g.in_a_row(), group % g.in_a_row());
    let (from, to) = (of_columns * columns, row.min((of_columns + 1) * columns));
    let first = (of_rows * rows).max(position / row);
    let end = ((of_rows + 1) * rows).min((position + n).div_ceil(row));
    (first..end).filter_map(move |r| {
        let [from, to] = [from, to].map(|column| (r * row + column).clamp(position, position + n) - position);
        (from < to).then_some(from as usize..to as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_those_of_the_group() {
        for (row, rows, columns) in [(1, 1, 1), (7, 1, 7), (7, 1, 3), (10, 3, 4), (8, 2, 8), (5, 4, 1)] {
            for position in 0..row * rows {
                for n in [1u64, 2, 9, 40] {
                    let g = Groups { row, rows, columns, position };
                    let mut of = vec![vec![]; g.count(n) as usize];
                    g.of(n as usize).for_each(|(group, range)| of[group].extend(range));
                    for (group, expected) in of.iter().enumerate() {
                        let found: Vec<usize> = pieces(&g, group as u64, n).flatten().collect();
                        assert_eq!(&found, expected, "{g:?} {n} {group}");
                    }
                }
            }
        }
    }

    #[test]
    fn candidates_have_fewer_scales_than_elements() {
        for (row, position, n) in [(1, 0, 100), (16, 3, 1000), (4096, 77, 1 << 19), (1 << 40, 5, 1 << 12), (3, 1, 4)] {
            let found = candidates(&Matrix { row, position }, n);
            assert!(found.iter().all(|g| 2 * g.count(n) <= n && g.position < g.rows * g.row));
            assert!(found.iter().all(|g| u128::from(g.rows) * u128::from(g.row) <= 1 << 48), "{found:?}");
        }
        let all = candidates(&Matrix { row: 4096, position: 77 }, 1 << 19);
        assert!(
            all.iter().any(|g| (g.rows, g.columns) == (128, 128)) && all.iter().any(|g| (g.rows, g.columns) == (1, 64))
        );
    }
}
