//! Columns whose elements are a stream (`docs/format.md` §3.3).

pub(in crate::block) mod decode;
mod palette;
pub(in crate::block) mod plan;

use super::width::parse_width;
use crate::block::stream::Stream;
use lmc_kernels::varint::Cursor;
use lmc_layout::error::Result;

/// The stream of a column of `len` bytes.
pub(super) fn parse(c: &mut Cursor<'_>, len: usize) -> Result<Stream> {
    let width = parse_width(c, len)?;
    Stream::parse_plain(c, width)
}

/// Appends the description of a column.
pub(super) fn put(stream: &Stream, out: &mut Vec<u8>) {
    out.push(stream.width.trailing_zeros() as u8);
    stream.put(out);
}
