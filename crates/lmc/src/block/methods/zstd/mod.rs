//! Columns in a zstd frame (`docs/format.md` §3.3).

pub(in crate::block) mod decode;
pub(in crate::block) mod plan;

use super::width::parse_width;
use crate::format::limits::MAX_RAW;
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::Result;

/// A frame of zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zstd {
    /// Bytes of an element, if the frame holds byte planes of elements; otherwise 1.
    pub width: usize,
    /// Its length in bytes.
    pub frame_len: usize,
}

impl Zstd {
    /// The frame of a column of `len` bytes.
    pub(super) fn parse(c: &mut Cursor<'_>, len: usize) -> Result<Self> {
        let width = parse_width(c, len)?;
        Ok(Self { width, frame_len: c.size(2 * MAX_RAW, "a frame's length")? })
    }

    /// Appends its description.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.width.trailing_zeros() as u8);
        put(out, self.frame_len as u64);
    }
}
