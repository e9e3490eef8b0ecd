//! The formats that dequantised weights had.

use std::collections::BTreeMap;

use crate::describe::GridDescription;

/// A format, and whether its groups have offsets.
type Format = (&'static str, bool);

/// Raw bytes of a tensor that are on grids of known formats.
#[derive(Default)]
pub(super) struct Grids(BTreeMap<Format, BTreeMap<String, u64>>);

impl Grids {
    /// Adds bytes that are on a grid.
    pub(super) fn add(&mut self, grid: &GridDescription, bytes: u64) {
        if grid.is_known() {
            let of_format = self.0.entry((grid.format, grid.offsets)).or_default();
            *of_format.entry(grid.to_string()).or_default() += bytes;
        }
    }

    /// The format of most of these bytes, as the grid that most of them have is described, and their number.
    pub(super) fn most(&self) -> Option<(&str, u64)> {
        let formats = self.0.values().map(|of| {
            let (grid, _) = of.iter().max_by_key(|(_, bytes)| **bytes).expect("it has bytes");
            (&grid[..], of.values().sum())
        });
        formats.max_by_key(|(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_most_bytes() {
        let grid = |format, columns| GridDescription {
            format,
            levels: 16,
            group: [1, columns],
            row: 1024,
            scales: 1024 / columns,
            offsets: false,
        };
        let mut grids = Grids::default();
        assert_eq!(grids.most(), None);
        for (format, columns, bytes) in [("nf4", 64, 70), ("int4", 32, 50), ("int4", 64, 40), ("levels", 64, 900)] {
            grids.add(&grid(format, columns), bytes);
        }
        assert_eq!(grids.most(), Some(("int4 1 × 32", 90)));
        grids.add(&grid("nf4", 64), 21);
        assert_eq!(grids.most(), Some(("nf4 1 × 64", 91)));
    }
}
