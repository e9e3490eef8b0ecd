//! Operands that are computed from data in another precision (`docs/format.md` §3.10): codes and scales of quantised tensors, and fields
//! of blocks. (Casts are conversions.)

pub(in crate::block) mod plan;

use super::steps::check_len;
use crate::block::ranges::{BlockRanges, NamedRanges, Ranges};
use crate::block::stream::Stream;
use crate::block::stream::body::Body;
use crate::block::stream::decode::StreamDecoder;
use crate::format::bases::SourceRange;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::derived::{BLOCK, BlockType, Codes, Measure, Number, Scales, Scaling};
use lmc_kernels::predict::grid::Groups;
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// Most elements that one scale is of.
const MAX_GROUP: u64 = 1 << 24;
/// Most bytes of the elements that a column's scales are of.
pub(in crate::block) const MAX_SCALED: u64 = 1 << 26;

/// What the elements of a column are, and how they are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Derivation {
    /// Elements that are scaled and rounded, in groups that have a scale each; and whether the scales stand in the column.
    Codes(Codes, Groups, bool),
    /// Scales of groups.
    Scales(Scales),
    /// A field of blocks of such elements.
    Field(BlockType, u8, Number),
}

/// Where the scales of codes are.
#[derive(Clone, Debug, PartialEq)]
pub enum OfScales {
    /// There are none.
    None,
    /// In other data.
    Ranges(NamedRanges),
    /// In the column.
    Stream(Box<Stream>),
}

/// Predictions that are derived from other data.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// How.
    pub derivation: Derivation,
    /// The data.
    pub elements: NamedRanges,
    /// Their scales, if they have some.
    pub scales: OfScales,
}

impl Derivation {
    /// Codes of operands.
    pub(super) const CAST: u8 = 9;
    const CODES: u8 = 10;
    const SCALES: u8 = 11;
    const FIELD: u8 = 12;

    /// Whether an operand of this kind is one.
    pub(super) fn has_code(code: u8) -> bool {
        (Self::CODES..=Self::FIELD).contains(&code)
    }

    /// Bytes of the elements that a column of `len` bytes is computed from, and of their scales.
    fn lens(&self, len: usize) -> [usize; 2] {
        match self {
            Derivation::Codes(codes, groups, _) => {
                let n = len * codes.of_byte();
                [n * codes.from.width(), groups.count(n as u64) as usize * codes.scales.width()]
            }
            Derivation::Scales(s) => [len / s.to.width() * s.group * s.from.width(), 0],
            &Derivation::Field(blocks, field, from) => {
                [len / blocks.field_len(field).expect("checked when it was made") * BLOCK * from.width(), 0]
            }
        }
    }

    /// Replaces `out` by the predictions.
    pub(crate) fn predict(&self, elements: &[u8], scales: &[u8], out: &mut [u8]) {
        match self {
            Derivation::Codes(codes, groups, _) => codes.predict(*groups, elements, scales, out),
            Derivation::Scales(s) => s.predict(elements, out),
            &Derivation::Field(blocks, field, from) => blocks.predict(field, from, elements, out),
        }
    }
}

impl Derived {
    /// The operand of a code of `len` bytes of elements of `width` bytes.
    pub(super) fn parse(code: u8, c: &mut Cursor<'_>, width: usize, len: usize, ranges: &mut Ranges) -> Result<Self> {
        let derivation = match code {
            Derivation::CODES => parse_codes(c, width, len)?,
            Derivation::SCALES => parse_scales(c, width, len)?,
            _ => parse_field(c, len)?,
        };
        let [of_elements, of_scales] = derivation.lens(len);
        let elements = ranges.parse(c)?;
        check_len(&elements, of_elements, ranges)?;
        let Derivation::Codes(codes, groups, _) = derivation else {
            return Ok(Self { derivation, elements, scales: OfScales::None });
        };
        let named = ranges.parse(c)?;
        let scales = if named.count() == 0 {
            OfScales::Stream(Box::new(Stream::parse(c, codes.scales.width())?))
        } else {
            check_len(&named, of_scales, ranges)?;
            OfScales::Ranges(named)
        };
        let in_column = matches!(scales, OfScales::Stream(_));
        Ok(Self { derivation: Derivation::Codes(codes, groups, in_column), elements, scales })
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        match self.derivation {
            Derivation::Codes(codes, groups, _) => {
                let Codes { from, to, scaling, precision, scales, factor } = codes;
                out.extend([Derivation::CODES, from.code(), to.code(), scaling as u8, precision.code(), scales.code()]);
                out.extend_from_slice(&factor.to_bits().to_le_bytes());
                let Groups { row, rows, columns, position } = groups;
                [row, rows, columns, position].into_iter().for_each(|v| put(out, v));
            }
            Derivation::Scales(s) => {
                let Scales { from, to, measure, precision, factor, group } = s;
                out.extend([Derivation::SCALES, from.code(), to.code(), measure as u8, precision.code()]);
                out.extend_from_slice(&factor.to_bits().to_le_bytes());
                put(out, group as u64);
            }
            Derivation::Field(blocks, field, from) => out.extend([Derivation::FIELD, from.code(), blocks as u8, field]),
        }
        self.elements.put(ranges, out);
        match &self.scales {
            OfScales::None => {}
            OfScales::Ranges(scales) => scales.put(ranges, out),
            OfScales::Stream(stream) => {
                NamedRanges::default().put(ranges, out);
                stream.put(out);
            }
        }
    }

    /// Memory in bytes, at most, that a decoder needs for the predictions of a column of `len` bytes.
    pub(super) fn memory(&self, len: u64, ranges: &[SourceRange]) -> u64 {
        let elements = self.elements.bytes(ranges);
        // There are no more scales than codes, of which pairs are computed one a byte.
        let scales = match &self.scales {
            OfScales::None => 0,
            OfScales::Ranges(scales) => scales.bytes(ranges),
            OfScales::Stream(_) => 16 * len,
        };
        elements + scales + 3 * len
    }

    /// Its streams, in the order of their bytes.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        if let OfScales::Stream(stream) = &self.scales { Some(&**stream) } else { None }.into_iter()
    }

    /// The ranges of its data, in order.
    pub(super) fn named(&self) -> impl Iterator<Item = &NamedRanges> {
        [&self.elements].into_iter().chain(if let OfScales::Ranges(scales) = &self.scales {
            Some(scales)
        } else {
            None
        })
    }

    /// [`Self::named`], to be set.
    pub(super) fn named_mut(&mut self) -> impl Iterator<Item = &mut NamedRanges> {
        let scales = if let OfScales::Ranges(scales) = &mut self.scales { Some(scales) } else { None };
        [&mut self.elements].into_iter().chain(scales)
    }

    /// Replaces `out` by the predictions; `buf` is working memory.
    pub(super) fn predict(
        &self,
        streams: &mut StreamDecoder,
        body: &mut Body<'_>,
        origin: &BlockRanges<'_>,
        buf: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let mut of_scales = Vec::new();
        let scales = match &self.scales {
            OfScales::None => &[],
            OfScales::Ranges(scales) => origin.get(scales, &mut of_scales)?,
            OfScales::Stream(stream) => {
                of_scales.resize(self.derivation.lens(out.len())[1], 0);
                streams.decode(stream, body, &mut of_scales)?;
                &of_scales
            }
        };
        self.derivation.predict(origin.get(&self.elements, buf)?, scales, out);
        Ok(())
    }
}

/// The conversion of a cast to elements of `width` bytes.
pub(super) fn parse_cast(c: &mut Cursor<'_>, width: usize) -> Result<Conversion> {
    let (from, to) = (number(c, "source of a cast", &Number::FLOATS)?, number(c, "result of a cast", &CASTS)?);
    match Conversion::between(from, to) {
        Some(cast @ Conversion::Cast(..)) if cast.source_width(width).is_some() => Ok(cast),
        _ => Err(Error::damaged(format!(
            "a column of {width}-byte elements has a cast from {} to {}",
            from.dtype(),
            to.dtype()
        ))),
    }
}

/// Results of casts.
const CASTS: [Number; 5] = [Number::F16, Number::Bf16, Number::F32, Number::E4m3, Number::E5m2];
/// Types of codes.
const CODES: [Number; 4] = [Number::I8, Number::E4m3, Number::E5m2, Number::F4];
/// Types of scales.
pub(crate) const SCALES: [Number; 5] = [Number::F16, Number::Bf16, Number::F32, Number::E4m3, Number::E8m0];

fn parse_codes(c: &mut Cursor<'_>, width: usize, len: usize) -> Result<Derivation> {
    if width != 1 {
        return Err(Error::damaged(format!("a column of {width}-byte elements has codes as its operand")));
    }
    let from = number(c, "source of codes", &Number::FLOATS)?;
    let to = number(c, "type of codes", &CODES)?;
    let scaling = operation(c, &Scaling::ALL)?;
    let precision = number(c, "precision of codes", &Number::FLOATS)?;
    let scales = number(c, "type of scales", &SCALES)?;
    let codes = Codes { from, to, scaling, precision, scales, factor: factor(c)? };
    let groups = Groups { row: c.varint()?, rows: c.varint()?, columns: c.varint()?, position: c.varint()? };
    let n = len * codes.of_byte();
    if !groups.are_valid(n as u64) {
        let Groups { row, rows, columns, position } = groups;
        return Err(Error::damaged(format!(
            "{n} codes have rows of {row}, groups of {rows} rows and {columns} columns, and position {position}"
        )));
    }
    Ok(Derivation::Codes(codes, groups, false))
}

fn parse_scales(c: &mut Cursor<'_>, width: usize, len: usize) -> Result<Derivation> {
    let from = number(c, "source of scales", &Number::FLOATS)?;
    let to = number(c, "type of scales", &SCALES)?;
    let measure = operation(c, &Measure::ALL)?;
    let precision = number(c, "precision of scales", &Number::FLOATS)?;
    let (factor, group) = (factor(c)?, c.varint()?);
    let bytes = u128::from(group) * (len / width * from.width()) as u128;
    if to.width() != width || !(1..=MAX_GROUP).contains(&group) || bytes > MAX_SCALED.into() {
        return Err(Error::damaged(format!(
            "a column of {} elements of {width} bytes has scales of type {} of groups of {group}",
            len / width,
            to.dtype()
        )));
    }
    Ok(Derivation::Scales(Scales { from, to, measure, precision, factor, group: group as usize }))
}

fn parse_field(c: &mut Cursor<'_>, len: usize) -> Result<Derivation> {
    let from = number(c, "source of blocks", &Number::FLOATS)?;
    let (code, field) = (c.u8()?, c.u8()?);
    let blocks = BlockType::from_code(code).ok_or_else(|| Error::unknown_code("type of blocks", code))?;
    match blocks.field_len(field) {
        Some(of_field) if len.is_multiple_of(of_field) => Ok(Derivation::Field(blocks, field, from)),
        _ => Err(Error::damaged(format!("a column of {len} bytes has field {field} of blocks of {}", blocks.name()))),
    }
}

/// One of some types of numbers.
fn number(c: &mut Cursor<'_>, what: &str, of: &[Number]) -> Result<Number> {
    let code = c.u8()?;
    of.iter().copied().find(|number| number.code() == code).ok_or_else(|| Error::unknown_code(what, code))
}

fn operation<T: Copy>(c: &mut Cursor<'_>, all: &[T]) -> Result<T> {
    let code = c.u8()?;
    all.get(usize::from(code)).copied().ok_or_else(|| Error::unknown_code("operation with a scale", code))
}

fn factor(c: &mut Cursor<'_>) -> Result<f32> {
    let [factor] = super::steps::constants(c)?;
    Ok(factor)
}
