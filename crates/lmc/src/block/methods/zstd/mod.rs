//! Columns in a zstd frame (`docs/format.md` §3.3).

pub(in crate::block) mod decode;
pub(in crate::block) mod plan;

use super::width::parse_width;
use crate::block::ranges::{NamedRanges, Ranges};
use crate::format::bases::SourceRange;
use crate::format::limits::{MAX_PREFIX, MAX_RAW};
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// A frame of zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zstd {
    /// Bytes of an element, if the frame holds byte planes of elements; otherwise 1.
    pub width: usize,
    /// The ranges that matches may reach, before the column.
    pub prefix: NamedRanges,
    /// Its length in bytes.
    pub frame_len: usize,
}

impl Zstd {
    /// The frame of a column of `len` bytes.
    pub(super) fn parse(c: &mut Cursor<'_>, len: usize, ranges: &mut Ranges) -> Result<Self> {
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
        Ok(Self { width, prefix, frame_len: c.size(2 * MAX_RAW, "a frame's length")? })
    }

    /// Appends its description. `ranges` are those of its block.
    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        out.push(self.width.trailing_zeros() as u8);
        self.prefix.put(ranges, out);
        put(out, self.frame_len as u64);
    }
}
