//! Columns whose bytes are earlier bytes of the block (`docs/format.md` §3.3).

pub(in crate::block) mod find;

use crate::format::limits::MAX_RAW;
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// Earlier bytes of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// How many bytes before its own each one is.
    pub distance: usize,
}

impl Copied {
    /// The copies of a column that begins at byte `start` of the block.
    pub(super) fn parse(c: &mut Cursor<'_>, start: usize) -> Result<Self> {
        let distance = c.size(MAX_RAW, "the distance of a column's copies")?;
        if !(1..=start).contains(&distance) {
            return Err(Error::damaged(format!(
                "a column's first byte, at {start} of its block, is a copy of that {distance} bytes before"
            )));
        }
        Ok(Self { distance })
    }

    /// Appends its description.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        put(out, self.distance as u64);
    }
}
