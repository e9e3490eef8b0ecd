//! The head of a block: what its body holds and how (`docs/format.md` §3).

mod stream;

pub use stream::{Cluster, Patches, Stream};

use super::bases::Dependency;
use super::checksum::Digest;
use super::limits::{MAX_COLUMNS, MAX_DEPENDENCIES, MAX_DEPENDENCY_BYTES, MAX_EXTENTS, MAX_RAW};
use super::varint::{Cursor, put};
use crate::entropy::SETS;
use crate::entropy::coder::Coder;
use crate::error::{Error, Result};
use crate::predict::{Contexts, Conversion, MAX_BOUNDARIES, Predictor};

/// Lengths of what the lanes read.
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
    pub(crate) dependencies: Vec<Dependency>,
    /// `None` if no cluster of the block has symbols.
    pub lanes: Option<LaneCounts>,
    /// `(column, bytes)` in raw order. One entry if there is one column.
    pub extents: Vec<(u8, usize)>,
    /// What the extents belong to.
    pub columns: Vec<Column>,
    pub(crate) digest: Digest,
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
        /// Its length in bytes.
        frame_len: usize,
    },
    /// Elements in clusters.
    Plain(Stream),
    /// Residuals.
    Predicted(Box<Predicted>),
    /// The header of a safetensors file as a list of tensors in a zstd frame; `list_len` is the length of the unpacked list.
    TensorList {
        /// Length of the list before it was packed.
        list_len: usize,
        /// Length of the frame that it was packed into.
        frame_len: usize,
    },
}

impl Column {
    /// Appends its description.
    pub fn put(&self, out: &mut Vec<u8>) {
        match &self.method {
            Method::Stored => out.push(0),
            Method::Zstd { frame_len } => {
                out.push(1);
                put(out, *frame_len as u64);
            }
            Method::Plain(g) => {
                out.extend([2, g.width.trailing_zeros() as u8]);
                g.put(out);
            }
            Method::Predicted(p) => {
                out.push(3);
                p.put(out);
            }
            Method::TensorList { list_len, frame_len } => {
                out.push(4);
                put(out, *list_len as u64);
                put(out, *frame_len as u64);
            }
        }
    }
}

impl Method {
    /// Whether any cluster of the column has symbols.
    fn has_symbols(&self) -> bool {
        let map = if let Method::Predicted(p) = self { p.unchanged.as_ref() } else { None };
        self.streams().any(Stream::has_symbols) || map.is_some_and(|u| u.map.coder != Coder::None)
    }

    /// The streams that the lanes code.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        let stream = if let Method::Plain(g) = self { Some(g) } else { None };
        let predicted = if let Method::Predicted(p) = self { Some(p) } else { None };
        stream.into_iter().chain(predicted.into_iter().flat_map(|p| p.streams.iter().filter_map(|s| s.1.as_ref())))
    }
}

/// A column coded as residuals, by context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicted {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: usize,
    /// What makes a residual of an element and its prediction.
    pub predictor: Predictor,
    /// What the bytes of the dependencies become before they are predictions.
    pub conversion: Conversion,
    /// Dependencies that the prediction is made from.
    pub(crate) base: Named,
    /// `None` for a single context.
    pub(crate) contexts: Option<Contexts>,
    /// Runs equal to their prediction, if there is a map of them.
    pub(crate) unchanged: Option<Unchanged>,
    /// For each context its number of elements, and their stream if there are any.
    pub streams: Vec<(usize, Option<Stream>)>,
}

/// The map of unchanged runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unchanged {
    /// Elements in those runs.
    pub(crate) elements: usize,
    pub(crate) map: Cluster,
}

/// Consecutive dependencies of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) first: usize,
    pub(crate) count: usize,
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
    fn parse(c: &mut Cursor<'_>, len: usize, dependencies: &[Dependency]) -> Result<Self> {
        let width = parse_width(c, len)?;
        let n = len / width;
        let code = c.u8()?;
        let predictor = Predictor::from_code(code).ok_or_else(|| Error::unknown_code("predictor", code))?;
        let code = c.u8()?;
        let conversion = Conversion::from_code(code).ok_or_else(|| Error::unknown_code("conversion", code))?;
        let source = conversion.source_width(width).ok_or_else(|| {
            Error::damaged(format!("a column's conversion {code} does not give elements of {width} bytes"))
        })?;
        let base = parse_named(c, n, source, dependencies)?;
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
        let unchanged = match c.u8()? {
            0 => None,
            1 => {
                let elements = c.size(n, "a column's number of elements in unchanged runs")?;
                Some(Unchanged { elements, map: Cluster::parse(c, 1)? })
            }
            kind => return Err(Error::unknown_code("kind of unchanged runs", kind)),
        };
        let mut left = n - unchanged.as_ref().map_or(0, |u| u.elements);
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
        Ok(Self { width, predictor, conversion, base, contexts, unchanged, streams })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.width.trailing_zeros() as u8, self.predictor as u8, self.conversion as u8]);
        put(out, self.base.first as u64);
        put(out, self.base.count as u64);
        let boundaries = self.contexts.as_ref().map_or(&[][..], |c| &c.boundaries);
        out.push(boundaries.len() as u8);
        out.extend_from_slice(boundaries);
        match &self.unchanged {
            None => out.push(0),
            Some(u) => {
                out.push(1);
                put(out, u.elements as u64);
                u.map.put(out, 1);
            }
        }
        for (count, stream) in &self.streams {
            put(out, *count as u64);
            if let Some(s) = stream {
                s.put(out);
            }
        }
    }
}

/// Dependencies that hold `n` elements of `width` bytes together.
fn parse_named(c: &mut Cursor<'_>, n: usize, width: usize, dependencies: &[Dependency]) -> Result<Named> {
    let first = c.size(dependencies.len(), "a column's first dependency")?;
    let count = c.size(dependencies.len() - first, "a column's number of dependencies")?;
    let bytes: u64 = dependencies[first..first + count].iter().map(|d| d.len).sum();
    if count == 0 || bytes != (n * width) as u64 {
        return Err(Error::damaged(format!(
            "a column of {n} elements has {count} dependencies of {bytes} bytes in all, not of {}",
            n * width
        )));
    }
    Ok(Named { first, count })
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
        // A dependency takes three bytes at least: the head's own length bounds the allocation.
        let n = c.size(MAX_DEPENDENCIES.min(c.remaining() / 3), "a block's number of dependencies")?;
        let mut left = MAX_DEPENDENCY_BYTES;
        let dependencies = (0..n).map(|_| Dependency::parse(&mut c, &mut left)).collect::<Result<Vec<_>>>()?;
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
        let mut len_of = [0usize; MAX_COLUMNS];
        let mut extents = Vec::new();
        if n_columns == 1 {
            extents.push((0, raw_len));
            len_of[0] = raw_len;
        } else {
            // An extent takes two bytes at least: the head's own length bounds the allocation.
            let n = c.size(MAX_EXTENTS.min(c.remaining() / 2), "a block's number of extents")?;
            extents.reserve_exact(n);
            let mut left = raw_len;
            for _ in 0..n {
                let column = c.u8()?;
                let len = c.size(left, "an extent's length")?;
                if usize::from(column) >= n_columns || len == 0 {
                    return Err(Error::damaged(format!(
                        "an extent of {len} bytes belongs to column {column} of {n_columns}"
                    )));
                }
                left -= len;
                len_of[usize::from(column)] += len;
                extents.push((column, len));
            }
            if left != 0 || len_of[..n_columns].contains(&0) {
                return Err(Error::damaged(format!(
                    "the extents of a block of {raw_len} bytes give its columns {:?}",
                    &len_of[..n_columns]
                )));
            }
        }
        let mut columns = Vec::with_capacity(n_columns);
        for &len in &len_of[..n_columns] {
            let method = match c.u8()? {
                0 => Method::Stored,
                1 => Method::Zstd { frame_len: c.size(2 * MAX_RAW, "a frame's length")? },
                2 => {
                    let width = parse_width(&mut c, len)?;
                    Method::Plain(Stream::parse(&mut c, width)?)
                }
                3 => Method::Predicted(Box::new(Predicted::parse(&mut c, len, &dependencies)?)),
                4 => Method::TensorList {
                    list_len: c.size(len, "the length of a tensor list")?,
                    frame_len: c.size(2 * MAX_RAW, "a frame's length")?,
                },
                code => return Err(Error::unknown_code("method", code)),
            };
            columns.push(Column { len, method });
        }
        if lanes.is_none() && columns.iter().any(|p| p.method.has_symbols()) {
            return Err(Error::damaged("a block has clusters with symbols but no lane sets"));
        }
        let digest = c.array()?;
        c.finish()?;
        Ok(Self { raw_len, dependencies, lanes, extents, columns, digest })
    }

    /// Its bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        put(out, self.raw_len as u64);
        put(out, self.dependencies.len() as u64);
        self.dependencies.iter().for_each(|d| d.put(out));
        out.push(if self.lanes.is_some() { SETS as u8 } else { 0 });
        // Fixed width: an encoder knows the length of a head before it knows these.
        if let Some(LaneCounts { words: [first, second], literals }) = self.lanes {
            [first, second, literals].into_iter().for_each(|n| out.extend_from_slice(&(n as u32).to_le_bytes()));
        }
        out.push(self.columns.len() as u8);
        if self.columns.len() > 1 {
            put(out, self.extents.len() as u64);
            for &(column, len) in &self.extents {
                out.push(column);
                put(out, len as u64);
            }
        }
        self.columns.iter().for_each(|p| p.put(out));
        out.extend_from_slice(&self.digest);
    }
}
