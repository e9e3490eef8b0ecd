//! Grids (§3.8) from a description.
//!
//! Products, sums, conversions and the places of scales are shared with the reference decoder.

pub use super::super::grid::Groups;

use super::super::float32::{product, sum};
use super::super::grid::conversion;
use super::stream::{Cluster, Output, Stream};
use super::varint;

/// An operand that is computed: a scale and a level for each element, and perhaps an offset.
#[derive(Clone, Debug)]
pub struct Grid {
    pub conversion: u8,
    /// As the bits of a binary32.
    pub levels: Vec<u32>,
    pub groups: Groups,
    /// As the bits of a binary32. [`Grid::scale_count`] says how many there are in a valid grid.
    pub scales: Vec<u32>,
    pub scale_stream: Stream,
    /// As the bits of a binary32, one for each scale, if the grid has offsets.
    pub offsets: Option<Vec<u32>>,
    pub offset_stream: Stream,
    /// The index of each element's level.
    pub indices: Vec<u8>,
    pub index_stream: Stream,
}

/// Writes the fields of groups.
pub(super) fn write(groups: &Groups, head: &mut Vec<u8>) {
    let Groups { row, rows, columns, position } = *groups;
    [row, rows, columns, position].into_iter().for_each(|number| varint(head, number));
}

impl Grid {
    /// A grid without offsets whose streams have all bits as they are.
    pub fn of(conversion: u8, levels: Vec<u32>, groups: Groups, scales: Vec<u32>, indices: Vec<u8>) -> Self {
        let raw = |k| Stream::of(0, Cluster { k, ..Cluster::default() });
        let (scale_stream, offset_stream, index_stream) = (raw(32), raw(32), raw(8));
        let offsets = None;
        Self { conversion, levels, groups, scales, scale_stream, offsets, offset_stream, indices, index_stream }
    }

    /// How many scales, and offsets if it has any, a column of `n` elements needs.
    ///
    /// # Panics
    /// When a field of the groups is 0 that must not be.
    pub fn scale_count(groups: &Groups, n: usize) -> u128 {
        groups.scale_count(n)
    }

    /// The prediction of each of a column's `n` elements.
    pub(super) fn predictions(&self, n: usize) -> Result<Vec<u64>, String> {
        let conversion = conversion(self.conversion).ok_or("there is no such conversion of a grid")?;
        let Groups { row, rows, columns, .. } = self.groups;
        if [row, rows, columns].contains(&0) || self.indices.len() != n {
            return Err("a grid has no groups, or another number of elements than its column".into());
        }
        let prediction = |(element, &index): (usize, &u8)| {
            let level = self.levels.get(usize::from(index)).ok_or("an index is not of a level")?;
            let group = self.groups.scale_of(element);
            let scale = self.scales.get(group).ok_or("a grid has too few scales")?;
            let mut value = product((*scale).into(), (*level).into());
            if let Some(offsets) = &self.offsets {
                let offset = offsets.get(group).ok_or("a grid has too few offsets")?;
                value = sum(value, (*offset).into());
            }
            Ok(conversion.convert(value))
        };
        self.indices.iter().enumerate().map(prediction).collect()
    }

    pub(super) fn encode<'c>(&'c self, output: &mut Output<'_, 'c>) -> Result<(), String> {
        output.head.extend([self.conversion, self.offsets.is_some().into(), self.levels.len().wrapping_sub(1) as u8]);
        self.levels.iter().for_each(|level| output.head.extend(level.to_le_bytes()));
        write(&self.groups, &mut output.head);
        let wide = |numbers: &[u32]| numbers.iter().map(|&number| number.into()).collect::<Vec<u64>>();
        self.scale_stream.encode(&wide(&self.scales), 4, output)?;
        if let Some(offsets) = &self.offsets {
            self.offset_stream.encode(&wide(offsets), 4, output)?;
        }
        let indices: Vec<u64> = self.indices.iter().map(|&index| index.into()).collect();
        self.index_stream.encode(&indices, 1, output)
    }
}
