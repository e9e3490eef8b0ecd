//! Grids (§3.8): predictions that are products of a scale and a level, to which an offset may be added.

use super::bytes::Bytes;
use super::conversion::Conversion;
use super::faults::{Faults, must};
use super::float32::{is_finite, product, sum};
use super::ranges::{Ranges, elements};
use super::stream::{Stream, Streams};
use std::collections::HashSet;

/// The most elements of a row of groups, and the highest place of the last element.
const MOST: u128 = 1 << 48;

pub(super) struct Grid {
    conversion: Conversion,
    levels: Vec<u64>,
    groups: Groups,
    /// Elements of the column.
    n: usize,
    scale_count: usize,
    scales: Stream,
    /// If the grid has them.
    offsets: Option<Stream>,
    indices: Stream,
}

/// How a matrix is cut into groups, and where in it the column starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// C: elements of a row of the matrix.
    pub row: u64,
    /// r: rows of a group.
    pub rows: u64,
    /// c: columns of a group.
    pub columns: u64,
    /// Of the column's first element in r rows of the matrix.
    pub position: u64,
}

impl Groups {
    pub(super) fn parse(head: &mut Bytes<'_>, n: usize, faults: &mut Faults) -> Result<Self, String> {
        let groups =
            Self { row: head.varint()?, rows: head.varint()?, columns: head.varint()?, position: head.varint()? };
        must(groups.row >= 1, "the rows of a grid have no elements")?;
        must(groups.rows >= 1, "the groups of a grid have no rows")?;
        must(groups.columns >= 1, "the groups of a grid have no columns")?;
        faults.must(groups.columns <= groups.row, "the groups of a grid have more columns than its rows have elements");
        faults.must(groups.row_of_groups() <= MOST, "a row of groups has more than 2^48 elements");
        let position = u128::from(groups.position);
        faults.must(position < groups.row_of_groups(), "the position of a grid is not in its first row of groups");
        faults.must(position + n as u128 <= MOST, "a grid ends beyond 2^48 elements");
        Ok(groups)
    }

    /// Elements of a row of groups: r · C.
    fn row_of_groups(&self) -> u128 {
        u128::from(self.rows) * u128::from(self.row)
    }

    /// Groups of a row of groups: G.
    fn groups_of_a_row(&self) -> u128 {
        self.row.div_ceil(self.columns).into()
    }

    /// How many scales, and offsets if there are any, a column of `n` elements has: S.
    pub fn scale_count(&self, n: usize) -> u128 {
        (u128::from(self.position) + n as u128).div_ceil(self.row_of_groups()) * self.groups_of_a_row()
    }

    /// The number of the scale, and of the offset, of an element of the column.
    pub fn scale_of(&self, element: usize) -> usize {
        let a = u128::from(self.position) + element as u128;
        let in_row = a % u128::from(self.row) / u128::from(self.columns);
        (a / self.row_of_groups() * self.groups_of_a_row() + in_row) as usize
    }
}

impl Grid {
    /// Reads the operand of a column of `n` elements of `width` bytes, after the 4 in place of a conversion.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        width: usize,
        n: usize,
        lane_sets: u8,
        ranges: &mut Ranges<'_>,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        ranges.need(2, "grids", faults);
        let conversion = conversion(head.u8()?).ok_or("a grid has an unknown conversion")?;
        let gives = if conversion == Conversion::None { 4 } else { 2 };
        must(width == gives, "the conversion of a grid does not give elements of its column's width")?;
        let has_offsets = head.u8()?;
        faults.must(has_offsets <= 1, "the offsets of a grid are not 0 or 1");
        let count = u64::from(head.u8()?) + 1;
        let levels = elements(head.take(4 * count)?, 4);
        let distinct: HashSet<&u64> = levels.iter().collect();
        faults.must(distinct.len() == levels.len(), "a grid has a level twice");
        faults.must(levels.iter().all(|&level| is_finite(level)), "a level of a grid is not finite");
        let groups = Groups::parse(head, n, faults)?;
        let scale_count = groups.scale_count(n);
        let few = "a grid has more scales than its column has elements";
        faults.must(scale_count <= n as u128, few);
        // Not a fault, but an error at once: a decoder need not read more scales.
        must(scale_count <= 1 << 24, few)?;
        let scales = Stream::parse(head, 4, false, lane_sets, faults)?;
        let offsets = if has_offsets > 0 { Some(Stream::parse(head, 4, false, lane_sets, faults)?) } else { None };
        let indices = Stream::parse(head, 1, false, lane_sets, faults)?;
        Ok(Self { conversion, levels, groups, n, scale_count: scale_count as usize, scales, offsets, indices })
    }

    /// The prediction of each element.
    pub(super) fn decode(&self, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u64>, String> {
        let scales = self.scales.decode(self.scale_count, streams, faults)?;
        faults.must(scales.iter().all(|&scale| is_finite(scale)), "a scale of a grid is not finite");
        let mut offsets = None;
        if let Some(stream) = &self.offsets {
            let decoded = stream.decode(self.scale_count, streams, faults)?;
            faults.must(decoded.iter().all(|&offset| is_finite(offset)), "an offset of a grid is not finite");
            offsets = Some(decoded);
        }
        let indices = self.indices.decode(self.n, streams, faults)?;
        let mut values = Vec::new();
        for (element, &index) in indices.iter().enumerate() {
            let level = self.levels.get(index as usize);
            faults.must(level.is_some(), "an index is not of a level of its grid");
            values.push(product(scales[self.groups.scale_of(element)], level.copied().unwrap_or(0)));
        }
        streams.step("products", || values.clone());
        if let Some(offsets) = offsets {
            for (element, value) in values.iter_mut().enumerate() {
                *value = sum(*value, offsets[self.groups.scale_of(element)]);
            }
            streams.step("sums", || values.clone());
        }
        let predictions: Vec<u64> = values.into_iter().map(|x| self.conversion.convert(x)).collect();
        streams.step("predictions", || predictions.clone());
        Ok(predictions)
    }
}

/// The conversions of a grid: from F32, or none.
pub(super) fn conversion(code: u8) -> Option<Conversion> {
    Conversion::of(code).filter(|&conversion| conversion != Conversion::Bf16ToF32)
}
