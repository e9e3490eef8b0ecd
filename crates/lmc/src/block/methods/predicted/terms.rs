//! Terms of rows: what is subtracted from the keys of a row's elements (`docs/format.md` §3.7).

use crate::block::stream::Stream;
use lmc_kernels::predict::optimizer::Rows;
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// A term for each row that a column has elements of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The rows.
    pub rows: Rows,
    /// Their terms: elements of one byte.
    pub stream: Stream,
}

impl Terms {
    /// Most elements of a row.
    const MAX_ROW: u64 = 1 << 48;

    pub(super) fn parse(c: &mut Cursor<'_>) -> Result<Self> {
        let rows = parse_rows(c, Self::MAX_ROW, "terms of rows")?;
        Ok(Self { rows, stream: Stream::parse(c, 1)? })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_rows(self.rows, out);
        self.stream.put(out);
    }
}

/// Rows of at most this many elements.
pub(super) fn parse_rows(c: &mut Cursor<'_>, most: u64, of: &str) -> Result<Rows> {
    let (len, position) = (c.varint()?, c.varint()?);
    if len == 0 || len > most || position >= len {
        return Err(Error::damaged(format!(
            "a column with {of} has rows of {len} elements, and begins at element {position} of one; rows have 1 to {most}"
        )));
    }
    Ok(Rows { len, position })
}

pub(super) fn put_rows(rows: Rows, out: &mut Vec<u8>) {
    put(out, rows.len);
    put(out, rows.position);
}
