//! The body of a block, split into bulk bytes, lanes and literals.

use lmc_kernels::entropy::lanes::{LaneReader, LiteralReader};
use lmc_kernels::entropy::{LANES, SETS};
use lmc_layout::error::{Error, Result};

/// Lengths of the words and literals that the lanes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCounts {
    /// Words of each lane set.
    pub words: [usize; SETS],
    /// Symbols that were too rare for a table.
    pub literals: usize,
}

/// Bytes of a lane set's states.
const STATES: usize = 4 * LANES;

/// Readers that the clusters of a block share.
pub(in crate::block) struct Body<'a> {
    pub(in crate::block) lanes: [LaneReader<'a>; SETS],
    pub(in crate::block) literals: LiteralReader<'a>,
    bulk: &'a [u8],
}

impl<'a> Body<'a> {
    pub(in crate::block) fn new(lanes: Option<LaneCounts>, body: &'a [u8]) -> Result<Self> {
        let Some(LaneCounts { words, literals }) = lanes else {
            let lanes = [LaneReader::idle(), LaneReader::idle()];
            return Ok(Self { lanes, literals: LiteralReader::new(&[], 0), bulk: body });
        };
        let [first, second] = words.map(|w| 2 * w);
        let tail = first + second + literals + STATES * SETS;
        let Some(bulk_len) = body.len().checked_sub(tail) else {
            return Err(Error::damaged(format!(
                "a block's body has {} bytes, fewer than the {tail} of its lanes and literals",
                body.len()
            )));
        };
        let (bulk, rest) = body.split_at(bulk_len);
        let (s0, s1) = rest[first + second + literals..].split_at(STATES);
        let lanes = [LaneReader::new(s0, rest, words[0])?, LaneReader::new(s1, &rest[first..], words[1])?];
        Ok(Self { lanes, literals: LiteralReader::new(&rest[first + second..], literals), bulk })
    }

    /// The next `n` bulk bytes.
    pub(in crate::block) fn take_bulk(&mut self, n: usize) -> Result<&'a [u8]> {
        let (a, b) = self.bulk.split_at_checked(n).ok_or_else(|| {
            Error::damaged(format!(
                "a block's body is too short: {n} more bytes are needed, {} are left",
                self.bulk.len()
            ))
        })?;
        self.bulk = b;
        Ok(a)
    }

    pub(in crate::block) fn finish(self) -> Result<()> {
        if !self.bulk.is_empty() {
            return Err(Error::damaged(format!("a block's body has {} bytes left over", self.bulk.len())));
        }
        self.lanes.iter().try_for_each(LaneReader::finish)?;
        self.literals.finish()
    }
}
