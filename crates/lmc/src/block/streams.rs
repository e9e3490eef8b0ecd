//! What the body of a block is made of.

use crate::entropy::lanes::{LaneReader, LiteralReader};
use crate::error::{Error, Result};
use crate::format::block_head::BlockHead;

/// Bytes of a lane set's states.
const STATES: usize = 4 * crate::entropy::LANES;

/// What the groups of a block share.
pub(super) struct Streams<'a> {
    pub(super) lanes: Vec<LaneReader<'a>>,
    pub(super) literals: LiteralReader<'a>,
    bulk: &'a [u8],
}

impl<'a> Streams<'a> {
    pub(super) fn new(head: &BlockHead, body: &'a [u8]) -> Result<Self> {
        let words: usize = head.words.iter().map(|w| 2 * w).sum();
        let tail = words + head.literals + STATES * head.words.len();
        let Some(bulk_len) = body.len().checked_sub(tail) else {
            return Err(Error::damaged("a block's body is shorter than its head says"));
        };
        let (bulk, rest) = body.split_at(bulk_len);
        let states = &rest[words + head.literals..];
        let mut at = 0;
        let mut lanes = Vec::with_capacity(2);
        for (&n, states) in head.words.iter().zip(states.chunks_exact(STATES)) {
            lanes.push(LaneReader::new(states, &rest[at..], n)?);
            at += 2 * n;
        }
        Ok(Self { lanes, literals: LiteralReader::new(&rest[at..], head.literals), bulk })
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
