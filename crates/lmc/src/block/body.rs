//! What the body of a block is made of.

use crate::entropy::lanes::{LaneReader, LiteralReader};
use crate::entropy::{LANES, SETS};
use crate::error::{Error, Result};
use crate::format::block_head::{BlockHead, LaneCounts};

/// Bytes of a lane set's states.
const STATES: usize = 4 * LANES;

/// What the clusters of a block share.
pub(super) struct Body<'a> {
    pub(super) lanes: [LaneReader<'a>; SETS],
    pub(super) literals: LiteralReader<'a>,
    bulk: &'a [u8],
}

impl<'a> Body<'a> {
    pub(super) fn new(head: &BlockHead, body: &'a [u8]) -> Result<Self> {
        let Some(LaneCounts { words, literals }) = head.lanes else {
            let lanes = [LaneReader::idle(), LaneReader::idle()];
            return Ok(Self { lanes, literals: LiteralReader::new(&[], 0), bulk: body });
        };
        let [first, second] = words.map(|w| 2 * w);
        let tail = first + second + literals + STATES * SETS;
        let Some(bulk_len) = body.len().checked_sub(tail) else {
            return Err(Error::damaged("a block's body is shorter than its head says"));
        };
        let (bulk, rest) = body.split_at(bulk_len);
        let (s0, s1) = rest[first + second + literals..].split_at(STATES);
        let lanes = [LaneReader::new(s0, rest, words[0])?, LaneReader::new(s1, &rest[first..], words[1])?];
        Ok(Self { lanes, literals: LiteralReader::new(&rest[first + second..], literals), bulk })
    }

    /// The next bytes that the lanes do not code.
    pub(super) fn take_bulk(&mut self, n: usize) -> Result<&'a [u8]> {
        let (a, b) = self
            .bulk
            .split_at_checked(n)
            .ok_or_else(|| Error::damaged("a block's body is shorter than its head says"))?;
        self.bulk = b;
        Ok(a)
    }

    pub(super) fn finish(self) -> Result<()> {
        if !self.bulk.is_empty() {
            return Err(Error::damaged("a block's body is longer than its head says"));
        }
        self.lanes.iter().try_for_each(LaneReader::finish)?;
        self.literals.finish()
    }
}
