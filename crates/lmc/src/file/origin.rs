//! Sources of the raw bytes that blocks depend on: bases, and the file itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::block::Origin;
use crate::block::encode::RawBlock;
use crate::format::bases::BaseInfo;
use crate::refs::base::{Base, not_given};
use crate::refs::budget::Budget;
use crate::refs::reread::Reread;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::{ReadAt, WriteAt, read_at};

/// Resolves references to bases, in the file's order, and to the file itself.
pub(crate) struct ReferenceResolver<'a> {
    bases: Cow<'a, [Base<'a>]>,
    /// The bases that the file names; `bases` is empty if they were not given.
    wanted: &'a [BaseInfo],
    own: &'a dyn SelfSource,
    /// Limit of the work for a decoded block; none for encoded blocks.
    budget: Option<Budget<'a>>,
}

impl<'a> ReferenceResolver<'a> {
    pub(crate) fn new(bases: impl Into<Cow<'a, [Base<'a>]>>, wanted: &'a [BaseInfo], own: &'a dyn SelfSource) -> Self {
        Self { bases: bases.into(), wanted, own, budget: None }
    }

    /// The resolver for one block.
    pub(crate) fn within<'s>(&'s self, budget: Budget<'s>) -> ReferenceResolver<'s> {
        ReferenceResolver {
            bases: Cow::Borrowed(&self.bases[..]),
            wanted: self.wanted,
            own: self.own,
            budget: Some(budget),
        }
    }

    fn base(&self, source: u32) -> Option<&Base<'a>> {
        self.bases.get((source as usize).checked_sub(1)?)
    }
}

impl Origin for ReferenceResolver<'_> {
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        match (source, self.base(source)) {
            (0, _) => self.own.read(offset, buf),
            (_, Some(base)) => match self.budget {
                None => base.read_hashed(offset, buf),
                budget => base.read_within(offset, buf, budget),
            },
            (i, None) => Err(not_given(&self.wanted[i as usize - 1])),
        }
    }

    fn peek(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.own.peek(offset, buf)
    }

    fn slice(&self, source: u32, offset: u64, len: usize) -> Option<&[u8]> {
        if source == 0 { self.own.slice(offset, len) } else { self.base(source)?.slice(offset, len) }
    }

    fn reads_pieces(&self, source: u32) -> bool {
        source != 0 && self.base(source).is_some_and(|base| !base.is_compressed())
    }
}

/// Raw bytes of the file that is being decoded, before the block that requests them.
pub(crate) trait SelfSource: Sync {
    /// Fills `buf` with the raw bytes from `offset` on; waits for them if necessary.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Fills `buf` with the bytes from `offset` on as they are now, also if they are not stored yet.
    fn peek(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(offset, buf)
    }

    /// The bytes, if they are in memory.
    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        _ = (offset, len);
        None
    }
}

/// For files whose header excludes ranges of the file itself.
pub(crate) struct NoSelf;

impl SelfSource for NoSelf {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::damaged(
            "a range is of the file itself, but bit 1 of the features (of the header, or of the index) is not set",
        ))
    }
}

/// The raw bytes of a file that is being encoded.
pub(crate) enum Raw<'a> {
    /// Immutable bytes.
    Slice(&'a [u8]),
    /// Bytes that may change: a block depends on the stored bytes of others, not on the present ones.
    File { src: &'a dyn ReadAt, stored: Stored },
    /// Nothing is stored: only sizes are measured.
    Measured(&'a dyn ReadAt),
}

/// Digests of the stored blocks of a file.
#[derive(Default)]
pub(crate) struct Stored {
    mark: Watermark,
    leaves: Reread,
}

/// A block that is being read. Blocks that depend on it wait until its digests are known.
pub(crate) struct Reading<'a> {
    turn: Ticket<'a>,
    start: u64,
    leaves: &'a Reread,
}

impl<'a> Raw<'a> {
    /// The bytes of a source.
    pub(crate) fn new(src: &'a dyn ReadAt) -> Self {
        src.as_slice().map_or_else(|| Self::File { src, stored: Stored::default() }, Self::Slice)
    }

    /// Bytes that are only measured.
    pub(crate) fn measured(src: &'a dyn ReadAt) -> Self {
        src.as_slice().map_or(Self::Measured(src), Self::Slice)
    }

    /// Fills `buf` with the present bytes.
    pub(crate) fn read_now(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self {
            Raw::Slice(bytes) => read_at(bytes, "the input", buf, offset),
            Raw::File { src, .. } | Raw::Measured(src) => read_at(*src, "the input", buf, offset),
        }
    }

    /// The block that starts at raw byte `start` comes next. Blocks are begun in order.
    pub(crate) fn begin(&self, start: u64) -> Option<Reading<'_>> {
        match self {
            Raw::Slice(_) | Raw::Measured(_) => None,
            Raw::File { stored: Stored { mark, leaves }, .. } => {
                Some(Reading { turn: mark.begin(start), start, leaves })
            }
        }
    }
}

impl Reading<'_> {
    /// Records the bytes that were read, and will be stored.
    pub(crate) fn done(self, block: &RawBlock<'_>) {
        self.leaves.note(self.start, block.leaves());
        self.turn.done(self.start + block.len() as u64);
    }
}

impl SelfSource for Raw<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self {
            Raw::Slice(_) | Raw::Measured(_) => self.read_now(offset, buf),
            Raw::File { stored: Stored { mark, leaves }, .. } => {
                mark.wait(offset + buf.len() as u64)?;
                leaves.read(offset, buf, |at, to| self.read_now(at, to))
            }
        }
    }

    fn peek(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_now(offset, buf)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        match self {
            Raw::Slice(bytes) => bytes.get(offset as usize..)?.get(..len),
            Raw::File { .. } | Raw::Measured(_) => None,
        }
    }
}

/// The decoded bytes of a file, from its beginning on without a gap.
///
/// Blocks are begun in order: all blocks before a waiting one are done or at work, so there is no deadlock.
#[derive(Default)]
pub(crate) struct Watermark {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// All bytes before this one are decoded.
    upto: u64,
    /// Decoded ranges beyond that: start and end.
    ahead: BTreeMap<u64, u64>,
    /// The first byte that will not be decoded.
    failed: Option<u64>,
}

impl State {
    /// Removes the range that starts at `upto`; returns its end.
    fn take_next(&mut self) -> Option<u64> {
        self.ahead.remove(&self.upto)
    }
}

impl Watermark {
    /// A block that starts at raw byte `start` is begun. Until [`Ticket::done`] it counts as failed if it is dropped.
    pub(crate) fn begin(&self, start: u64) -> Ticket<'_> {
        Ticket { mark: self, start, end: None }
    }

    /// Waits until all bytes before `end` are decoded.
    pub(crate) fn wait(&self, end: u64) -> Result<()> {
        let there = |s: &mut State| s.upto >= end || s.failed.is_some_and(|at| at < end);
        let s = self.moved.wait_while(self.lock(), |s| !there(s)).expect("no panic while it is held");
        // The failed block comes before the waiting one, so its own error is reported.
        if s.upto >= end { Ok(()) } else { Err(Error::damaged("a block that this one depends on is damaged")) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }
}

/// A block under way.
pub(crate) struct Ticket<'a> {
    mark: &'a Watermark,
    start: u64,
    end: Option<u64>,
}

impl Ticket<'_> {
    /// The block, which ends at `end`, is decoded, and other blocks can read its bytes.
    pub(crate) fn done(mut self, end: u64) {
        self.end = Some(end);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut s = self.mark.lock();
        match self.end {
            Some(end) => {
                s.ahead.insert(self.start, end);
                while let Some(end) = s.take_next() {
                    s.upto = end;
                }
            }
            None => s.failed = Some(s.failed.map_or(self.start, |f| f.min(self.start))),
        }
        drop(s);
        self.mark.moved.notify_all();
    }
}

/// The blocks of a slice that are decoded.
#[derive(Default)]
pub(crate) struct Finished<'a> {
    pub(crate) mark: Watermark,
    blocks: Mutex<BTreeMap<u64, &'a [u8]>>,
}

impl<'a> Finished<'a> {
    /// Publishes the final bytes of a block, from raw byte `start` on.
    pub(crate) fn publish(&self, start: u64, bytes: &'a [u8]) {
        self.blocks.lock().expect("no panic while it is held").insert(start, bytes);
    }

    /// The bytes from `offset` on, to the end of their block.
    fn from(&self, offset: u64) -> &'a [u8] {
        let blocks = self.blocks.lock().expect("no panic while it is held");
        let (start, bytes) = blocks.range(..=offset).next_back().expect("the blocks before are published");
        &bytes[(offset - start) as usize..]
    }
}

impl SelfSource for Finished<'_> {
    fn read(&self, mut offset: u64, mut buf: &mut [u8]) -> Result<()> {
        self.mark.wait(offset + buf.len() as u64)?;
        while !buf.is_empty() {
            let from = self.from(offset);
            let n = from.len().min(buf.len());
            let (to, rest) = buf.split_at_mut(n);
            to.copy_from_slice(&from[..n]);
            (offset, buf) = (offset + n as u64, rest);
        }
        Ok(())
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.mark.wait(offset + len as u64).ok()?;
        self.from(offset).get(..len)
    }
}

/// Blocks that are written to a sink and read back from it; `again` decodes them once more where that is not supported.
pub(crate) struct Written<'a> {
    pub(crate) mark: &'a Watermark,
    pub(crate) to: &'a dyn WriteAt,
    pub(crate) again: &'a dyn SelfSource,
}

impl SelfSource for Written<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.mark.wait(offset + buf.len() as u64)?;
        match self.to.read_back(buf, offset) {
            Err(e) if e.kind() == std::io::ErrorKind::Unsupported => self.again.read(offset, buf),
            r => r.map_err(|e| Error::io("cannot read back the output", e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_comes_or_fails() {
        let mark = Watermark::default();
        mark.wait(0).unwrap();
        mark.begin(10).done(20);
        mark.begin(0).done(10);
        mark.wait(20).unwrap();
        drop(mark.begin(30));
        mark.wait(31).unwrap_err();
        mark.begin(20).done(30);
        mark.wait(30).unwrap();
        mark.begin(30).done(40);
        mark.wait(40).unwrap();
    }

    #[test]
    fn waiting_ends_when_another_thread_is_done() {
        for fails in [false, true] {
            let mark = Watermark::default();
            std::thread::scope(|s| {
                let waiting = s.spawn(|| mark.wait(30).is_ok());
                mark.begin(10).done(30);
                let turn = mark.begin(0);
                if fails {
                    drop(turn);
                } else {
                    turn.done(10);
                }
                assert_eq!(waiting.join().unwrap(), !fails);
            });
        }
    }

    #[test]
    fn slices_cross_blocks_by_copy() {
        let f = Finished::default();
        for (start, bytes) in [(3, &[3u8, 4][..]), (0, &[0, 1, 2]), (5, &[5])] {
            f.publish(start, bytes);
            f.mark.begin(start).done(start + bytes.len() as u64);
        }
        assert_eq!(f.slice(1, 2), Some(&[1, 2][..]));
        assert_eq!(f.slice(3, 2), Some(&[3, 4][..]));
        assert_eq!(f.slice(2, 2), None);
        let mut all = [0; 6];
        f.read(0, &mut all).unwrap();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }
}
