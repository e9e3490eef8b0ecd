//! The bytes of block records that stand for ranges of raw bytes: one division for files, deltas and studies.

use std::ops::Range;

use lmc::Result;
use lmc::internals::split_record;

use crate::describe::{BlockDescription, GridDescription};

/// Bytes of the records of adjacent blocks by the raw bytes that they stand for: each column's bytes, evenly.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// In order.
    stretches: Vec<Stretch>,
    /// Raw bytes that are on grids.
    grids: Vec<(Range<u64>, GridDescription)>,
}

/// Adjacent raw bytes of one column.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    raw: u64,
    /// Bytes of records before it.
    coded: f64,
    /// Bytes of records for each raw byte of it.
    rate: f64,
    /// Of its block.
    column: usize,
}

impl Shares {
    /// The shares of one block.
    pub fn of_block(block: &BlockDescription) -> Self {
        let mut shares = Self::default();
        shares.add(block, (0, 0.0));
        shares
    }

    /// The shares of records of adjacent blocks.
    ///
    /// # Errors
    /// When these are no such records.
    pub(crate) fn new(mut records: &[u8]) -> Result<Self> {
        let (mut shares, mut end) = (Self::default(), (0, 0.0));
        while !records.is_empty() {
            let (head, _, rest) = split_record(records)?;
            end = shares.add(&BlockDescription::new(&head, (records.len() - rest.len()) as u64), end);
            records = rest;
        }
        Ok(shares)
    }

    /// Adds a block behind `raw` bytes, for which there are `coded`; returns both behind it.
    fn add(&mut self, block: &BlockDescription, (mut raw, mut coded): (u64, f64)) -> (u64, f64) {
        for extent in &block.extents {
            let column = &block.columns[extent.column];
            let rate = column.coded_len as f64 / column.raw_len.max(1) as f64;
            self.stretches.push(Stretch { raw, coded, rate, column: extent.column });
            if let Some(grid) = column.prediction.as_ref().and_then(|p| p.grid) {
                self.grids.push((raw..raw + extent.raw_len, grid));
            }
            raw += extent.raw_len;
            coded += rate * extent.raw_len as f64;
        }
        (raw, coded)
    }

    /// Bytes for a range of raw bytes, in whole bytes, which add up.
    pub fn of(&self, bytes: &Range<u64>) -> u64 {
        self.before(bytes.end) - self.before(bytes.start)
    }

    /// The columns, each of its block, that a range of raw bytes is of.
    pub fn columns(&self, bytes: &Range<u64>) -> Vec<usize> {
        let first = self.stretches.partition_point(|s| s.raw <= bytes.start).saturating_sub(1);
        let mut columns = Vec::new();
        for stretch in self.stretches[first..].iter().take_while(|s| s.raw < bytes.end) {
            if !columns.contains(&stretch.column) {
                columns.push(stretch.column);
            }
        }
        columns
    }

    /// The grids that parts of a range of raw bytes are on, each with its bytes.
    pub(crate) fn grids(&self, bytes: &Range<u64>) -> Vec<(GridDescription, u64)> {
        let first = self.grids.partition_point(|(at, _)| at.end <= bytes.start);
        let overlapping = self.grids[first..].iter().take_while(|(at, _)| at.start < bytes.end);
        overlapping.map(|(at, grid)| (*grid, at.end.min(bytes.end) - at.start.max(bytes.start))).collect()
    }

    fn before(&self, at: u64) -> u64 {
        let next = self.stretches.partition_point(|s| s.raw <= at);
        let Some(Stretch { raw, coded, rate, .. }) = next.checked_sub(1).map(|i| self.stretches[i]) else { return 0 };
        // A sum that should be a whole number may be a little less.
        (coded + rate * (at - raw) as f64 + 1e-3) as u64
    }
}

#[cfg(test)]
mod tests {
    use lmc::{Dtype, Isa, Level};

    use super::*;
    use crate::bench::Blocks;

    #[test]
    fn shares_add_up_to_the_records() {
        let raw: Vec<u8> = (0..100_000u32)
            .flat_map(|i| if i < 50_000 { 0 } else { i.wrapping_mul(0x9e37_79b9) }.to_le_bytes())
            .collect();
        let mut records = Vec::new();
        Blocks::new(Isa::detect().unwrap(), Level::Default, 1 << 16).encode(Dtype::F32, &raw, &mut records);
        let shares = Shares::new(&records).unwrap();
        let len = raw.len() as u64;
        assert_eq!(shares.of(&(0..len)), records.len() as u64);
        let parts: u64 = (0..len).step_by(1000).map(|at| shares.of(&(at..(at + 1000).min(len)))).sum();
        assert_eq!(parts, records.len() as u64);
        assert!(shares.of(&(0..len / 3)) < 1000 && shares.of(&(2 * len / 3..len)) > len / 4);
        assert_eq!(shares.columns(&(0..len)), [0]);
        assert_eq!(Shares::new(&[]).unwrap().of(&(0..100)), 0);
    }

    #[test]
    fn grids_of_a_range() {
        let grid =
            |levels| GridDescription { format: "int4", levels, group: [1, 2], row: 4, scales: 2, offsets: false };
        let grids = vec![(10..20, grid(1)), (20..30, grid(2)), (50..60, grid(3))];
        let shares = Shares { stretches: vec![], grids };
        let of = |range| shares.grids(&range).iter().map(|(g, bytes)| (g.levels, *bytes)).collect::<Vec<_>>();
        assert_eq!(of(0..100), [(1, 10), (2, 10), (3, 10)]);
        assert_eq!((of(15..20), of(19..21), of(25..55)), (vec![(1, 5)], vec![(1, 1), (2, 1)], vec![(2, 5), (3, 5)]));
        assert_eq!((of(0..10), of(30..50), of(60..90)), (vec![], vec![], vec![]));
    }
}
