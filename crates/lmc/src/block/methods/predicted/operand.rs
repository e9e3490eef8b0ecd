//! Operands: what the predictions of a column are computed from. A kind of operand is a variant, with its description and
//! its streams here, and its predictions in `decode.rs`.

use super::grid::Grid;
use crate::block::ranges::{NamedRanges, Ranges};
use crate::block::stream::Stream;
use crate::format::bases::SourceRange;
use crate::format::header::Features;
use lmc_kernels::predict::Conversion;
use lmc_kernels::varint::Cursor;
use lmc_layout::error::{Error, Result};

/// The data that the predictions of a column are computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Other data.
    Ranges {
        /// The conversion of their bytes.
        conversion: Conversion,
        /// Where they are.
        base: NamedRanges,
    },
    /// Levels, scales and offsets.
    Grid(Box<Grid>),
}

impl Operand {
    /// The code of a grid among the conversions.
    const GRID: u8 = 4;

    /// The grid, if it is one.
    pub fn grid(&self) -> Option<&Grid> {
        if let Operand::Grid(grid) = self { Some(grid) } else { None }
    }

    /// Its ranges, if it has some, and the conversion of their bytes.
    pub(crate) fn ranges(&self) -> Option<(Conversion, &NamedRanges)> {
        if let Operand::Ranges { conversion, base } = self { Some((*conversion, base)) } else { None }
    }

    /// Memory in bytes, at most, that a decoder needs for the predictions of a column of `len` bytes, in elements of `width`
    /// bytes.
    pub(crate) fn memory(&self, len: u64, width: u64, ranges: &[SourceRange]) -> u64 {
        match self {
            Operand::Ranges { conversion: Conversion::None, base } => base.bytes(ranges),
            Operand::Ranges { base, .. } => base.bytes(ranges) + len,
            // The predictions, an index of each, at most as many scales and offsets, and scales that a mask selects.
            Operand::Grid(_) => len + 13 * len / width,
        }
    }

    /// The features that a file with it needs, beside those of its ranges.
    pub(in crate::block) fn features(&self) -> Features {
        Features { grids_or_copies: matches!(self, Operand::Grid(_)), ..Features::default() }
    }

    /// Its streams, in the order of their bytes.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.grid().into_iter().flat_map(Grid::streams)
    }

    /// The operand of `n` elements of `width` bytes.
    pub(super) fn parse(c: &mut Cursor<'_>, width: usize, n: usize, ranges: &mut Ranges) -> Result<Self> {
        let code = c.u8()?;
        if code == Self::GRID {
            return Ok(Operand::Grid(Box::new(Grid::parse(c, width, n)?)));
        }
        let conversion = Conversion::from_code(code).ok_or_else(|| Error::unknown_code("conversion", code))?;
        let source = conversion.source_width(width).ok_or_else(|| {
            Error::damaged(format!("a column's conversion {code} does not give elements of {width} bytes"))
        })?;
        let base = ranges.parse(c)?;
        let bytes = base.bytes(&ranges.all);
        if base.count == 0 || bytes != (n * source) as u64 {
            return Err(Error::damaged(format!(
                "a column of {n} elements has an operand of {} ranges with {bytes} bytes, not of {}",
                base.count,
                n * source
            )));
        }
        Ok(Operand::Ranges { conversion, base })
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        match self {
            Operand::Ranges { conversion, base } => {
                out.push(*conversion as u8);
                base.put(ranges, out);
            }
            Operand::Grid(grid) => {
                out.push(Self::GRID);
                grid.put(out);
            }
        }
    }
}
