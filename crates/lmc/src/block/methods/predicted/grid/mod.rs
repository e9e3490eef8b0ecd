//! A grid in the head of a block: levels, and how the scales and offsets of groups belong to elements (`docs/format.md` §3.8).

mod affine;
mod codebook;
mod decode;
pub(crate) mod find;
mod fit;
mod form;
mod lattice;
mod plan;
mod shape;
mod values;

pub use codebook::name_of;

use crate::block::stream::Stream;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::grid::{Groups, is_finite};
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// Predictions that are products of a level and the scale of a group, to which the offset of the group may be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The conversion of the results, which have type F32.
    pub conversion: Conversion,
    /// The bits of a binary32 each; finite.
    pub levels: Vec<u32>,
    /// The groups, and where the column begins.
    pub groups: Groups,
    /// The scales: elements of 4 bytes.
    pub scales: Stream,
    /// The offsets, if there are any: elements of 4 bytes.
    pub offsets: Option<Stream>,
    /// The index of each element's level: elements of 1 byte.
    pub indices: Stream,
}

impl Grid {
    /// Bytes of an element that it predicts.
    pub fn width(&self) -> usize {
        self.conversion.width_of_f32()
    }

    /// A grid of `n` elements of `width` bytes.
    pub(in crate::block) fn parse(c: &mut Cursor<'_>, width: usize, n: usize) -> Result<Self> {
        let code = c.u8()?;
        let conversion = Conversion::from_code(code)
            .filter(|&conversion| conversion != Conversion::WidenBf16)
            .ok_or_else(|| Error::unknown_code("conversion of a grid", code))?;
        if conversion.source_width(width) != Some(4) {
            return Err(Error::damaged(format!("a grid's conversion {code} does not give elements of {width} bytes")));
        }
        let has_offsets = match c.u8()? {
            code @ (0 | 1) => code == 1,
            code => return Err(Error::unknown_code("offsets of a grid", code)),
        };
        let count = usize::from(c.u8()?) + 1;
        let levels: Vec<u32> = c.bytes(4 * count)?.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        if let Some(level) = levels.iter().find(|&&level| !is_finite(level)) {
            return Err(Error::damaged(format!("a grid has level {level:#010x}, which is not finite")));
        }
        let mut sorted = levels.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::damaged(format!("a grid of {count} levels has {:#010x} twice", pair[0])));
        }
        let groups = Groups { row: c.varint()?, rows: c.varint()?, columns: c.varint()?, position: c.varint()? };
        if !groups.are_valid(n as u64) {
            let Groups { row, rows, columns, position } = groups;
            return Err(Error::damaged(format!(
                "a grid of {n} elements has rows of {row}, groups of {rows} rows and {columns} columns, and position {position}"
            )));
        }
        let scales = Stream::parse(c, 4)?;
        let offsets = if has_offsets { Some(Stream::parse(c, 4)?) } else { None };
        Ok(Self { conversion, levels, groups, scales, offsets, indices: Stream::parse(c, 1)? })
    }

    /// Its streams, in order.
    pub(in crate::block) fn streams(&self) -> impl Iterator<Item = &Stream> {
        std::iter::once(&self.scales).chain(&self.offsets).chain([&self.indices])
    }

    pub(in crate::block) fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.conversion.code());
        out.extend([self.offsets.is_some().into(), (self.levels.len() - 1) as u8]);
        self.levels.iter().for_each(|level| out.extend_from_slice(&level.to_le_bytes()));
        let Groups { row, rows, columns, position } = self.groups;
        [row, rows, columns, position].into_iter().for_each(|v| put(out, v));
        self.streams().for_each(|stream| stream.put(out));
    }
}
