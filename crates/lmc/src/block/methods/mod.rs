//! How a column is coded: a folder for each method, with its description in the head of a block, how it is planned, and
//! how it is decoded.

pub(super) mod plain;
pub(super) mod planned;
pub(crate) mod predicted;
mod width;
pub(crate) mod zstd;

use super::ranges::Ranges;
use super::stream::Stream;
use crate::format::bases::SourceRange;
use crate::format::header::Features;
use lmc_kernels::varint::Cursor;
use lmc_layout::error::{Error, Result};
use predicted::Predicted;
use zstd::Zstd;

/// Elements that one method codes.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Raw bytes: the sum of the column's extents. Not stored.
    pub len: usize,
    /// How they are coded.
    pub method: Method,
}

/// How a column is coded.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// Bytes as they are.
    Stored,
    /// A frame of zstd.
    Zstd(Zstd),
    /// Elements in clusters.
    Plain(Box<Stream>),
    /// Residuals.
    Predicted(Box<Predicted>),
}

impl Method {
    /// The method of a column of `len` bytes.
    pub(super) fn parse(c: &mut Cursor<'_>, len: usize, ranges: &mut Ranges) -> Result<Self> {
        Ok(match c.u8()? {
            0 => Method::Stored,
            1 => Method::Zstd(Zstd::parse(c, len)?),
            2 => Method::Plain(Box::new(plain::parse(c, len)?)),
            3 => Method::Predicted(Box::new(Predicted::parse(c, len, ranges)?)),
            code => return Err(Error::unknown_code("method", code)),
        })
    }

    /// Appends its description. `ranges` are those of its block.
    pub fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        match self {
            Method::Stored => out.push(0),
            Method::Zstd(z) => {
                out.push(1);
                z.put(out);
            }
            Method::Plain(g) => {
                out.push(2);
                plain::put(g, out);
            }
            Method::Predicted(p) => {
                out.push(3);
                p.put(ranges, out);
            }
        }
    }

    /// The streams that the lanes code.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        let plain = if let Method::Plain(g) = self { Some(&**g) } else { None };
        let predicted = if let Method::Predicted(p) = self { Some(&**p) } else { None };
        plain.into_iter().chain(predicted.into_iter().flat_map(Predicted::streams))
    }

    /// The features that a file with this column needs, beside those of its ranges.
    pub(super) fn features(&self) -> Features {
        match self {
            Method::Predicted(p) => p.features(),
            Method::Stored | Method::Zstd(_) | Method::Plain(_) => Features::default(),
        }
    }

    /// Whether any cluster of the column has symbols.
    pub(super) fn has_symbols(&self) -> bool {
        self.streams().any(Stream::has_symbols)
    }
}
