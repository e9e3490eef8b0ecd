//! The bytes of block records that stand for ranges of raw bytes: one division for files, deltas and studies.
//!
//! A column of small tensors is divided by length. Where a delta is compared with its base, it is known what changed:
//! predicted columns are divided by that, since elements that stayed take next to nothing.

use std::ops::Range;

use lmc::Result;
use lmc::internals::split_record;

use crate::describe::{BlockDescription, GridDescription};

/// Bytes of the records of adjacent blocks by the raw bytes that they stand for: each column's bytes, evenly, or by what
/// changed.
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
        shares.add(block, &[], (0, 0.0));
        shares
    }

    /// The shares of the record of a delta's block whose raw bytes are `pieces`, in order.
    ///
    /// # Errors
    /// When it is no such record.
    ///
    /// # Panics
    /// If it ends early.
    pub(crate) fn of_changes(record: &[u8], pieces: &[Weighted]) -> Result<Self> {
        let (head, ..) = split_record(record)?;
        let mut shares = Self::default();
        shares.add(&BlockDescription::new(&head, record.len() as u64), pieces, (0, 0.0));
        Ok(shares)
    }

    /// The shares of records of adjacent blocks.
    ///
    /// # Errors
    /// When these are no such records.
    pub(crate) fn new(mut records: &[u8]) -> Result<Self> {
        let (mut shares, mut end) = (Self::default(), (0, 0.0));
        while !records.is_empty() {
            let (head, _, rest) = split_record(records)?;
            end = shares.add(&BlockDescription::new(&head, (records.len() - rest.len()) as u64), &[], end);
            records = rest;
        }
        Ok(shares)
    }

    /// Adds a block behind `raw` bytes, for which there are `coded`; returns both behind it. Without `pieces` nothing is
    /// known of changes.
    fn add(&mut self, block: &BlockDescription, pieces: &[Weighted], (raw, mut coded): (u64, f64)) -> (u64, f64) {
        let parts = parts(block, pieces);
        let mut weights = vec![0u128; block.columns.len()];
        parts.iter().for_each(|part| weights[part.column] += part.weight);
        let mut at = 0;
        for part in &parts {
            let (len, column) = (part.len as f64, &block.columns[part.column]);
            let share = match weights[part.column] {
                0 => len / column.raw_len.max(1) as f64,
                all => part.weight as f64 / all as f64,
            };
            let rate = column.coded_len as f64 * share / len;
            self.stretches.push(Stretch { raw: raw + at, coded, rate, column: part.column });
            if let Some(grid) = column.prediction.as_ref().and_then(|p| p.grid) {
                self.grids.push((raw + at..raw + at + part.len, grid));
            }
            at += part.len;
            coded += rate * len;
        }
        (raw + at, coded)
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

/// Raw bytes of a block that belong to one segment.
pub(crate) struct Weighted {
    pub(crate) bytes: Range<u64>,
    /// Their weight in a predicted column.
    pub(crate) weight: u64,
}

/// Raw bytes of one extent, and of one piece if there are any.
struct Part {
    len: u64,
    column: usize,
    /// 0 where nothing is known, and where nothing changed.
    weight: u128,
}

/// The parts of a block, in order.
fn parts(block: &BlockDescription, pieces: &[Weighted]) -> Vec<Part> {
    let (mut parts, mut at) = (Vec::with_capacity(block.extents.len()), 0);
    let mut pieces = pieces.iter().peekable();
    for extent in &block.extents {
        let (column, end) = (extent.column, at + extent.raw_len);
        // Only from bases: of elements of the file itself, nothing is known.
        let sources = block.columns[column].prediction.as_ref().map_or(&[][..], |p| &p.sources);
        let is_predicted = !sources.is_empty() && !sources.contains(&0);
        while at < end {
            while pieces.next_if(|p| p.bytes.end <= at).is_some() {}
            let Some(piece) = pieces.peek().filter(|_| is_predicted) else {
                parts.push(Part { len: end - at, column, weight: 0 });
                at = end;
                break;
            };
            let len = piece.bytes.end.min(end) - at;
            // Of a piece with several extents, as many bits for each byte.
            let of = piece.bytes.end - piece.bytes.start;
            let weight = (u128::from(piece.weight) << 32) * u128::from(len) / u128::from(of);
            parts.push(Part { len, column, weight });
            at += len;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use lmc::internals::{BlockEncoder, Extent, Group, Origin, Output, encode_block};
    use lmc::{Dtype, Level};
    use lmc_kernels::isa::Isa;

    use super::*;
    use crate::describe::{ColumnDescription, ExtentDescription, PredictionDescription};

    struct NoBase;

    impl Origin for NoBase {
        fn read(&self, _: u32, _: u64, _: &mut [u8]) -> Result<()> {
            unreachable!("no block has a base")
        }
    }

    #[test]
    fn shares_add_up_to_the_records() {
        let raw: Vec<u8> = (0..100_000u32)
            .flat_map(|i| if i < 50_000 { 0 } else { i.wrapping_mul(0x9e37_79b9) }.to_le_bytes())
            .collect();
        let mut records = Vec::new();
        let mut encoder = BlockEncoder::new(Isa::detect().unwrap(), Level::Default);
        let mut out = Output::new(&mut records);
        for block in raw.chunks(1 << 16) {
            let extent = Extent {
                dtype: Some(Dtype::F32),
                len: block.len(),
                base: None,
                step: None,
                derived: None,
                group: Group::Others,
                matrix: None,
            };
            encode_block(&mut encoder, block, &[extent], &NoBase, &mut out).unwrap();
        }
        out.finish();
        let shares = Shares::new(&records).unwrap();
        let len = raw.len() as u64;
        assert_eq!(shares.of(&(0..len)), records.len() as u64);
        let parts: u64 = (0..len).step_by(1000).map(|at| shares.of(&(at..(at + 1000).min(len)))).sum();
        assert_eq!(parts, records.len() as u64);
        assert!(shares.of(&(0..len / 3)) < 1000 && shares.of(&(2 * len / 3..len)) > len / 4);
        assert_eq!(shares.columns(&(0..len)), [0]);
        assert_eq!(Shares::new(&[]).unwrap().of(&(0..100)), 0);
    }

    /// A block of two columns of 100 and 50 bytes that alternate, of 60 and 20 bytes in the file.
    fn block(sources: &[u32]) -> BlockDescription {
        let column = |raw_len, coded_len, prediction| ColumnDescription {
            raw_len,
            coded_len,
            method: "predicted",
            width: Some(2),
            map: None,
            prediction,
            clusters: vec![],
            patches: 0,
            listed: 0,
            masked: false,
        };
        let sources = sources.to_vec();
        let prediction = PredictionDescription {
            predictor: "ulp",
            conversion: None,
            derived: None,
            grid: None,
            sources,
            contexts: 1,
        };
        let extents = [(0, 40), (1, 50), (0, 60)].map(|(column, raw_len)| ExtentDescription { column, raw_len });
        let columns = vec![column(100, 60, Some(prediction)), column(50, 20, None)];
        BlockDescription { raw_len: 150, lane_sets: 0, literals: 0, extents: extents.into(), columns }
    }

    #[test]
    fn predicted_columns_are_divided_by_what_changed() {
        let of = |sources: &[u32], weights: [u64; 4]| {
            let ranges = [0..30, 30..40, 40..90, 90..150];
            let pieces: Vec<_> =
                ranges.clone().into_iter().zip(weights).map(|(bytes, weight)| Weighted { bytes, weight }).collect();
            let mut shares = Shares::default();
            assert_eq!(shares.add(&block(sources), &pieces, (0, 0.0)).0, 150);
            ranges.map(|bytes| shares.of(&bytes))
        };
        assert_eq!(of(&[1], [0, 20, 7, 40]), [0, 20, 20, 40]);
        assert_eq!(of(&[1], [0, 0, 7, 0]), [18, 6, 20, 36], "by length");
        // Of what the file itself predicts, changes say nothing.
        assert_eq!(of(&[0, 1], [0, 20, 7, 40]), [18, 6, 20, 36]);
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
