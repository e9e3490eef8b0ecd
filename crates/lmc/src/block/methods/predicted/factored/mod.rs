//! Operands that are sums of terms of rows and columns (`docs/format.md` §3.9), as second moments nearly are.

mod find;
mod plan;

pub(in crate::block) use find::{Found, find};

use super::terms::{parse_rows, put_rows};
use crate::block::stream::Stream;
use crate::block::stream::body::Body;
use crate::block::stream::decode::StreamDecoder;
use lmc_kernels::predict::optimizer::{Rows, rows_and_columns};
use lmc_kernels::varint::Cursor;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

/// Sums of a term of the row and one of the column, times a power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factored {
    /// log2 of that power.
    pub shift: u8,
    /// The rows of the matrix.
    pub rows: Rows,
    /// The terms of rows: elements of one byte.
    pub of_rows: Stream,
    /// The terms of columns: elements of one byte.
    pub of_columns: Stream,
}

impl Factored {
    /// Most elements of a row.
    const MAX_ROW: u64 = 1 << 20;

    pub(super) fn parse(c: &mut Cursor<'_>, width: usize) -> Result<Self> {
        let shift = c.u8()?;
        if !matches!(width, 2 | 4) || usize::from(shift) >= 8 * width {
            return Err(Error::damaged(format!(
                "a column of {width}-byte elements has terms of rows and columns that are shifted by {shift}"
            )));
        }
        let rows = parse_rows(c, Self::MAX_ROW, "terms of rows and columns")?;
        Ok(Self { shift, rows, of_rows: Stream::parse(c, 1)?, of_columns: Stream::parse(c, 1)? })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.shift);
        put_rows(self.rows, out);
        self.streams().for_each(|stream| stream.put(out));
    }

    /// Its streams, in order.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        [&self.of_rows, &self.of_columns].into_iter()
    }

    /// Replaces `out` by the predictions, of `width` bytes each; `buf` is working memory.
    pub(super) fn predict(
        &self,
        width: usize,
        streams: &mut StreamDecoder,
        body: &mut Body<'_>,
        buf: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let n = out.len() / width;
        let count = self.rows.count(n);
        let columns = self.rows.len.min(n as u64) as usize;
        let (of_rows, of_columns) = scratch(buf, count + columns).split_at_mut(count);
        streams.decode(&self.of_rows, body, of_rows)?;
        streams.decode(&self.of_columns, body, of_columns)?;
        rows_and_columns(width, self.shift.into(), self.rows, of_rows, of_columns, out);
        Ok(())
    }
}
