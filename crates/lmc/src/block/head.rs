//! The head of a block, which describes its body (`docs/format.md` §3).

use super::methods::{Column, Method};
use super::ranges::Ranges;
use super::stream::body::LaneCounts;
use crate::format::bases::SourceRange;
use crate::format::checksum::Digest;
use crate::format::extents::Extents;
use crate::format::header::Features;
use crate::format::limits::{MAX_COLUMNS, MAX_RANGE_BYTES, MAX_RAW};
use lmc_kernels::entropy::SETS;
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// One block's head, parsed and checked as far as it can be without the body.
#[derive(Clone, Debug, PartialEq)]
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
        for &len in &extents.lens()[..n_columns] {
            columns.push(Column { len, method: Method::parse(&mut c, len, &mut ranges)? });
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
        let of_ranges = Features {
            ranges: !self.ranges.is_empty(),
            own: self.ranges.iter().any(|d| d.source == 0),
            ..Features::default()
        };
        self.columns.iter().fold(of_ranges, |features, c| features | c.method.features())
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
        self.columns.iter().for_each(|p| p.method.put(&self.ranges, out));
        out.extend_from_slice(&self.digest);
        if let Some(check) = self.body_check {
            out.extend_from_slice(&check.to_le_bytes());
        }
    }
}
