//! The head of a block, which describes its body (`docs/format.md` §3).

mod grid;
mod stream;

pub use grid::Grid;
pub use stream::{Cluster, Mask, Numbers, Palette, Patches, Stream};

use super::bases::SourceRange;
use super::checksum::Digest;
use super::extents::Extents;
use super::header::Features;
use super::limits::{MAX_COLUMNS, MAX_PREFIX, MAX_RANGE_BYTES, MAX_RANGES, MAX_RAW};
use lmc_kernels::entropy::SETS;
use lmc_kernels::predict::{Contexts, Conversion, MAX_BOUNDARIES, Predictor};
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// Lengths of the words and literals that the lanes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCounts {
    /// Words of each lane set.
    pub words: [usize; SETS],
    /// Symbols that were too rare for a table.
    pub literals: usize,
}

/// One block's head, parsed and checked as far as it can be without the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Length of the contents in bytes.
    pub raw_len: usize,
    /// The ranges of all columns, in order.
    pub(crate) ranges: Vec<SourceRange>,
    /// `None` if no cluster of the block has symbols.
    pub lanes: Option<LaneCounts>,
    /// The order in which the bytes of the columns alternate. One if there is one column.
    pub extents: Extents,
    /// The columns that the extents belong to.
    pub columns: Vec<Column>,
    pub(crate) digest: Digest,
    /// The check of the body, of a block that depends on other data.
    pub(crate) body_check: Option<u64>,
}

/// Elements that one method codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Raw bytes: the sum of the column's extents. Not stored.
    pub len: usize,
    /// How they are coded.
    pub method: Method,
}

/// How a column is coded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Bytes as they are.
    Stored,
    /// A frame of zstd.
    Zstd {
        /// Bytes of an element, if the frame holds byte planes of elements; otherwise 1.
        width: usize,
        /// The ranges that matches may reach, before the column.
        prefix: NamedRanges,
        /// Its length in bytes.
        frame_len: usize,
    },
    /// Elements in clusters.
    Plain(Box<Stream>),
    /// Residuals.
    Predicted(Box<Predicted>),
    /// Earlier bytes of the block.
    Copied {
        /// How many bytes before its own each one is.
        distance: usize,
    },
}

impl Column {
    /// Appends its description.
    /// `ranges` are those of its block.
    pub fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        match &self.method {
            Method::Stored => out.push(0),
            Method::Zstd { width, prefix, frame_len } => {
                out.extend([1, width.trailing_zeros() as u8]);
                prefix.put(ranges, out);
                put(out, *frame_len as u64);
            }
            Method::Plain(g) => {
                out.extend([2, g.width.trailing_zeros() as u8]);
                g.put(out);
            }
            Method::Predicted(p) => {
                out.push(3);
                p.put(ranges, out);
            }
            &Method::Copied { distance } => {
                out.push(4);
                put(out, distance as u64);
            }
        }
    }
}

impl Method {
    /// Whether any cluster of the column has symbols.
    fn has_symbols(&self) -> bool {
        self.streams().any(Stream::has_symbols)
    }

    /// The streams that the lanes code.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        let stream = if let Method::Plain(g) = self { Some(&**g) } else { None };
        let predicted = if let Method::Predicted(p) = self { Some(p) } else { None };
        let grid = predicted.and_then(|p| p.operand.grid()).into_iter().flat_map(|g| g.streams());
        let residuals = predicted.into_iter().flat_map(|p| p.streams.iter().filter_map(|s| s.1.as_ref()));
        stream.into_iter().chain(grid).chain(residuals)
    }
}

/// A column coded as residuals, by context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicted {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: usize,
    /// How a residual is computed from an element and its prediction.
    pub predictor: Predictor,
    /// The source of the predictions.
    pub operand: Operand,
    /// `None` for a single context.
    pub(crate) contexts: Option<Contexts>,
    /// For each context its number of elements, and their stream if there are any.
    pub streams: Vec<(usize, Option<Stream>)>,
}

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

    /// The operand of `n` elements of `width` bytes.
    fn parse(c: &mut Cursor<'_>, width: usize, n: usize, ranges: &mut Ranges) -> Result<Self> {
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

    fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
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

/// Ranges that a column names: consecutive ranges of its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedRanges {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl NamedRanges {
    pub(crate) fn of<'d>(&self, ranges: &'d [SourceRange]) -> &'d [SourceRange] {
        &ranges[self.first..][..self.count]
    }

    /// Bytes of the ranges.
    pub(crate) fn bytes(&self, ranges: &[SourceRange]) -> u64 {
        self.of(ranges).iter().map(|d| d.len).sum()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        put(out, self.count as u64);
        self.of(ranges).iter().for_each(|d| d.put(out));
    }
}

/// The ranges of a block, while its columns are parsed.
struct Ranges {
    all: Vec<SourceRange>,
    /// Bytes that the block may still name.
    left: u64,
}

impl Ranges {
    fn parse(&mut self, c: &mut Cursor<'_>) -> Result<NamedRanges> {
        let first = self.all.len();
        // A range takes three bytes at least: the head's own length bounds the allocation.
        let count = c.size((MAX_RANGES - first).min(c.remaining() / 3), "a column's number of ranges")?;
        self.all.reserve(count);
        for _ in 0..count {
            self.all.push(SourceRange::parse(c, &mut self.left)?);
        }
        Ok(NamedRanges { first, count })
    }
}

/// The width of a column's elements, in bytes. It divides the column's length.
fn parse_width(c: &mut Cursor<'_>, len: usize) -> Result<usize> {
    let code = c.u8()?;
    if code > 3 || !len.is_multiple_of(1 << code) {
        return Err(Error::damaged(format!("a column of {len} bytes has elements of width code {code}")));
    }
    Ok(1 << code)
}

impl Predicted {
    fn parse(c: &mut Cursor<'_>, len: usize, ranges: &mut Ranges) -> Result<Self> {
        let width = parse_width(c, len)?;
        let n = len / width;
        let code = c.u8()?;
        let predictor = Predictor::from_code(code).ok_or_else(|| Error::unknown_code("predictor", code))?;
        let operands = c.u8()?;
        if operands != 1 {
            return Err(Error::damaged(format!("a column has {operands} operands, its predictor takes 1")));
        }
        let operand = Operand::parse(c, width, n, ranges)?;
        let contexts = match usize::from(c.u8()?) {
            0 => None,
            count if count > MAX_BOUNDARIES => {
                return Err(Error::damaged(format!(
                    "a column has {count} boundaries between contexts; there are at most {MAX_BOUNDARIES}"
                )));
            }
            count => {
                let boundaries = c.bytes(count)?.to_vec();
                if boundaries[0] == 0 || !boundaries.is_sorted_by(|a, b| a < b) {
                    return Err(Error::damaged(format!(
                        "a column's boundaries between contexts do not rise: {boundaries:?}"
                    )));
                }
                Some(Contexts { boundaries })
            }
        };
        let mut left = n;
        let streams = (0..contexts.as_ref().map_or(1, Contexts::count))
            .map(|_| {
                let count = c.size(left, "a context's number of elements")?;
                left -= count;
                let stream = if count > 0 { Some(Stream::parse(c, width)?) } else { None };
                Ok((count, stream))
            })
            .collect::<Result<_>>()?;
        if left != 0 {
            return Err(Error::damaged(format!("the contexts of a column leave {left} of its {n} elements uncovered")));
        }
        Ok(Self { width, predictor, operand, contexts, streams })
    }

    fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        const OPERANDS: u8 = 1;
        out.extend([self.width.trailing_zeros() as u8, self.predictor as u8, OPERANDS]);
        self.operand.put(ranges, out);
        let boundaries = self.contexts.as_ref().map_or(&[][..], |c| &c.boundaries);
        out.push(boundaries.len() as u8);
        out.extend_from_slice(boundaries);
        for (count, stream) in &self.streams {
            put(out, *count as u64);
            if let Some(s) = stream {
                s.put(out);
            }
        }
    }
}

/// A column of `len` bytes in a zstd frame.
fn parse_zstd(c: &mut Cursor<'_>, len: usize, ranges: &mut Ranges) -> Result<Method> {
    let width = parse_width(c, len)?;
    let prefix = ranges.parse(c)?;
    let bytes = prefix.bytes(&ranges.all);
    if prefix.count > 0 && width > 1 {
        return Err(Error::damaged(format!(
            "a zstd column has a prefix, and byte planes of elements of {width} bytes"
        )));
    }
    if bytes > MAX_PREFIX || bytes + len as u64 > MAX_RAW as u64 {
        return Err(Error::damaged(format!(
            "a zstd column of {len} bytes has a prefix of {bytes}; it can have {MAX_PREFIX}, both together {MAX_RAW}"
        )));
    }
    Ok(Method::Zstd { width, prefix, frame_len: c.size(2 * MAX_RAW, "a frame's length")? })
}

/// A column of copied bytes that begins at byte `start` of the block.
fn parse_copied(c: &mut Cursor<'_>, start: usize) -> Result<Method> {
    let distance = c.size(MAX_RAW, "the distance of a column's copies")?;
    if !(1..=start).contains(&distance) {
        return Err(Error::damaged(format!(
            "a column's first byte, at {start} of its block, is a copy of that {distance} bytes before"
        )));
    }
    Ok(Method::Copied { distance })
}

fn count(c: &mut Cursor<'_>, what: &str) -> Result<usize> {
    match u32::from_le_bytes(c.array()?) as usize {
        n if n <= MAX_RAW => Ok(n),
        n => Err(Error::damaged(format!("{what} is {n}; it can be at most {MAX_RAW}"))),
    }
}

impl BlockHead {
    pub(crate) fn parse(head: &[u8]) -> Result<Self> {
        let mut c = Cursor::new(head);
        let raw_len = c.size(MAX_RAW, "a block's raw length")?;
        if raw_len == 0 {
            return Err(Error::damaged("a block's raw length is 0"));
        }
        let lanes = match usize::from(c.u8()?) {
            0 => None,
            SETS => {
                let [first, second] = ["the number of words of lane set 0", "the number of words of lane set 1"];
                let words = [count(&mut c, first)?, count(&mut c, second)?];
                Some(LaneCounts { words, literals: count(&mut c, "a block's number of literals")? })
            }
            n => return Err(Error::damaged(format!("a block has {n} lane sets, neither 0 nor {SETS}"))),
        };
        let n_columns = usize::from(c.u8()?);
        if n_columns == 0 || n_columns > MAX_COLUMNS {
            return Err(Error::damaged(format!("a block has {n_columns} columns; it can have 1 to {MAX_COLUMNS}")));
        }
        let extents =
            if n_columns == 1 { Extents::whole(raw_len) } else { Extents::parse(&mut c, n_columns, raw_len)? };
        let mut columns = Vec::with_capacity(n_columns);
        let mut ranges = Ranges { all: Vec::new(), left: MAX_RANGE_BYTES };
        for (i, &len) in (0..).zip(&extents.lens()[..n_columns]) {
            let method = match c.u8()? {
                0 => Method::Stored,
                1 => parse_zstd(&mut c, len, &mut ranges)?,
                2 => {
                    let width = parse_width(&mut c, len)?;
                    Method::Plain(Box::new(Stream::parse_plain(&mut c, width)?))
                }
                3 => Method::Predicted(Box::new(Predicted::parse(&mut c, len, &mut ranges)?)),
                4 => parse_copied(&mut c, extents.first(i))?,
                code => return Err(Error::unknown_code("method", code)),
            };
            columns.push(Column { len, method });
        }
        if lanes.is_none() && columns.iter().any(|p| p.method.has_symbols()) {
            return Err(Error::damaged("a block has clusters with symbols but no lane sets"));
        }
        let digest = c.array()?;
        let ranges = ranges.all;
        let body_check = if ranges.is_empty() { None } else { Some(u64::from_le_bytes(c.array()?)) };
        c.finish()?;
        Ok(Self { raw_len, ranges, lanes, extents, columns, digest, body_check })
    }

    /// The ranges that its columns name.
    pub fn ranges(&self) -> &[SourceRange] {
        &self.ranges
    }

    /// The features that a file with this block needs.
    pub(crate) fn features(&self) -> Features {
        let is_grid_or_copy = |c: &Column| match &c.method {
            Method::Predicted(p) => p.operand.grid().is_some(),
            Method::Copied { .. } => true,
            Method::Stored | Method::Zstd { .. } | Method::Plain(_) => false,
        };
        Features {
            ranges: !self.ranges.is_empty(),
            own: self.ranges.iter().any(|d| d.source == 0),
            grids_or_copies: self.columns.iter().any(is_grid_or_copy),
        }
    }

    /// Its bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        put(out, self.raw_len as u64);
        out.push(if self.lanes.is_some() { SETS as u8 } else { 0 });
        // Fixed width: an encoder knows the length of a head before it knows these.
        if let Some(LaneCounts { words: [first, second], literals }) = self.lanes {
            [first, second, literals].into_iter().for_each(|n| out.extend_from_slice(&(n as u32).to_le_bytes()));
        }
        out.push(self.columns.len() as u8);
        if self.columns.len() > 1 {
            self.extents.put(out);
        }
        self.columns.iter().for_each(|p| p.put(&self.ranges, out));
        out.extend_from_slice(&self.digest);
        if let Some(check) = self.body_check {
            out.extend_from_slice(&check.to_le_bytes());
        }
    }
}
