//! Operands: what the predictions of a column are computed from. A kind of operand is a variant, with its predictions in
//! `decode.rs`; its description, and how it is found, are in a file or folder of its own.

use super::derived::{Derivation, Derived, parse_cast};
use super::factored::Factored;
use super::grid::Grid;
use super::steps::{Moment, Scaled, Weight, check_len};
use crate::block::ranges::{NamedRanges, Ranges};
use crate::block::stream::Stream;
use crate::format::bases::SourceRange;
use crate::format::header::Features;
use lmc_kernels::predict::Conversion;
use lmc_kernels::varint::Cursor;
use lmc_layout::error::{Error, Result};

/// The data that the predictions of a column are computed from.
#[derive(Clone, Debug, PartialEq)]
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
    /// Multiples of other data.
    Scaled(Scaled),
    /// Second moments, by a step of Adam.
    Moment(Box<Moment>),
    /// Weights, by a step of Adam.
    Weight(Box<Weight>),
    /// Sums of a term of the row and one of the column.
    Factored(Box<Factored>),
    /// Codes, scales and fields of blocks, from data in another precision.
    Derived(Box<Derived>),
}

impl Operand {
    /// Codes of kinds; those below are conversions.
    const GRID: u8 = 4;
    const SCALED: u8 = 5;
    const MOMENT: u8 = 6;
    const WEIGHT: u8 = 7;
    const FACTORED: u8 = 8;

    /// The grid, if it is one.
    pub fn grid(&self) -> Option<&Grid> {
        if let Operand::Grid(grid) = self { Some(grid) } else { None }
    }

    /// Its ranges, if it is nothing but some, and the conversion of their bytes.
    pub(crate) fn ranges(&self) -> Option<(Conversion, &NamedRanges)> {
        if let Operand::Ranges { conversion, base } = self { Some((*conversion, base)) } else { None }
    }

    /// [`Self::named`], to be set.
    pub(in crate::block) fn named_mut(&mut self) -> Vec<&mut NamedRanges> {
        match self {
            Operand::Ranges { base, .. } | Operand::Scaled(Scaled { base, .. }) => vec![base],
            Operand::Moment(moment) => moment.operands.iter_mut().collect(),
            Operand::Weight(weight) => weight.operands.iter_mut().chain(&mut weight.before).collect(),
            Operand::Derived(derived) => derived.named_mut().collect(),
            Operand::Grid(_) | Operand::Factored(_) => vec![],
        }
    }

    /// The ranges of the data that it is computed from, in order.
    pub(crate) fn named(&self) -> Vec<NamedRanges> {
        match self {
            Operand::Ranges { base, .. } | Operand::Scaled(Scaled { base, .. }) => vec![*base],
            Operand::Moment(moment) => moment.operands.to_vec(),
            Operand::Weight(weight) => weight.operands.iter().chain(&weight.before).copied().collect(),
            Operand::Derived(derived) => derived.named().copied().collect(),
            Operand::Grid(_) | Operand::Factored(_) => vec![],
        }
    }

    /// Memory in bytes, at most, that a decoder needs for the predictions of a column of `len` bytes, in elements of `width`
    /// bytes.
    pub(crate) fn memory(&self, len: u64, width: u64, ranges: &[SourceRange]) -> u64 {
        match self {
            Operand::Ranges { conversion: Conversion::None, base } => base.bytes(ranges),
            Operand::Ranges { base, .. } => base.bytes(ranges) + len,
            // The predictions, an index of each, at most as many scales and offsets, and scales that a mask selects.
            Operand::Grid(_) => len + 13 * len / width,
            Operand::Scaled(_) => 2 * len,
            Operand::Moment(_) => 4 * len,
            Operand::Weight(_) => 5 * len,
            // The predictions, at most as many terms of rows and of columns, and terms that a mask selects.
            Operand::Factored(_) => len + 3 * len / width,
            Operand::Derived(derived) => derived.memory(len, ranges),
        }
    }

    /// The features that a file with it needs, beside those of its ranges.
    pub(in crate::block) fn features(&self) -> Features {
        match self {
            Operand::Ranges { conversion: Conversion::Cast(..), .. } | Operand::Derived(_) => {
                Features { derived: true, ..Features::default() }
            }
            Operand::Ranges { .. } => Features::default(),
            Operand::Grid(_) => Features { grids: true, ..Features::default() },
            Operand::Scaled(_) | Operand::Moment(_) | Operand::Weight(_) | Operand::Factored(_) => {
                Features { optimizer: true, ..Features::default() }
            }
        }
    }

    /// Its streams, in the order of their bytes.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        let factored = if let Operand::Factored(factored) = self { Some(factored) } else { None };
        let of_grid = self.grid().into_iter().flat_map(Grid::streams);
        let derived = if let Operand::Derived(derived) = self { Some(derived) } else { None };
        let of_derived = derived.into_iter().flat_map(|derived| derived.streams());
        of_grid.chain(factored.into_iter().flat_map(|factored| factored.streams())).chain(of_derived)
    }

    /// The operand of `n` elements of `width` bytes.
    pub(super) fn parse(c: &mut Cursor<'_>, width: usize, n: usize, ranges: &mut Ranges) -> Result<Self> {
        let code = c.u8()?;
        Ok(match code {
            Self::GRID => Operand::Grid(Box::new(Grid::parse(c, width, n)?)),
            Self::SCALED => Operand::Scaled(Scaled::parse(c, width, n, ranges)?),
            Self::MOMENT => Operand::Moment(Box::new(Moment::parse(c, width, n, ranges)?)),
            Self::WEIGHT => Operand::Weight(Box::new(Weight::parse(c, width, n, ranges)?)),
            Self::FACTORED => Operand::Factored(Box::new(Factored::parse(c, width)?)),
            _ if Derivation::has_code(code) => {
                Operand::Derived(Box::new(Derived::parse(code, c, width, n * width, ranges)?))
            }
            _ => {
                let conversion = if code == Derivation::CAST {
                    parse_cast(c, width)?
                } else {
                    Conversion::from_code(code).ok_or_else(|| Error::unknown_code("kind of operand", code))?
                };
                let source = conversion.source_width(width).ok_or_else(|| {
                    Error::damaged(format!("a column's conversion {code} does not give elements of {width} bytes"))
                })?;
                let base = ranges.parse(c)?;
                check_len(&base, n * source, ranges)?;
                Operand::Ranges { conversion, base }
            }
        })
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        match self {
            Operand::Ranges { conversion, base } => {
                match *conversion {
                    Conversion::Cast(from, to) => out.extend([Derivation::CAST, from.code(), to.code()]),
                    conversion => out.extend(conversion.code()),
                }
                base.put(ranges, out);
            }
            Operand::Grid(grid) => {
                out.push(Self::GRID);
                grid.put(out);
            }
            Operand::Scaled(scaled) => {
                out.push(Self::SCALED);
                scaled.put(ranges, out);
            }
            Operand::Moment(moment) => {
                out.push(Self::MOMENT);
                moment.put(ranges, out);
            }
            Operand::Weight(weight) => {
                out.push(Self::WEIGHT);
                weight.put(ranges, out);
            }
            Operand::Factored(factored) => {
                out.push(Self::FACTORED);
                factored.put(out);
            }
            Operand::Derived(derived) => derived.put(ranges, out),
        }
    }
}
