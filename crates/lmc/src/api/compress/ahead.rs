//! The read-ahead buffer of a stream that is compressed.

use std::io::{self, Read};

use super::jobs::Job;
use crate::file::cut::Cutter;
use crate::file::hashing::StreamHasher;
use lmc_layout::Prefix;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::{ReadAt, append, scratch};

/// Most bytes of memory that a nearly empty buffer keeps: a header may have been much larger.
const KEEP: usize = 1 << 25;

/// Bytes of a stream that are not compressed yet.
#[derive(Default)]
pub(crate) struct Ahead {
    bytes: Vec<u8>,
    /// Consumed bytes at the start of `bytes`.
    used: usize,
    /// Offset of the next byte in the stream.
    offset: u64,
}

impl Ahead {
    /// Bytes in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.used
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// The buffer to append to.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        // Amortised: at most one byte is moved per consumed byte.
        if self.used >= self.len() {
            self.bytes.drain(..self.used);
            self.used = 0;
            if self.bytes.len() < KEEP {
                self.bytes.shrink_to(KEEP);
            }
        }
        &mut self.bytes
    }

    /// Plans the next block, and moves its bytes to `job`; false at the end. The buffer holds at least [`Cutter::lookahead`] bytes, or all
    /// up to the end of the stream.
    pub(crate) fn next_block(&mut self, cutter: &mut Cutter<'_>, job: &mut Job) -> Result<bool> {
        let bytes = &self.bytes[self.used..];
        if bytes.is_empty() {
            return Ok(false);
        }
        let window = Window { offset: self.offset, bytes };
        job.len = cutter.next_block(&window, bytes.len() as u64, &mut job.extents)?;
        scratch(&mut job.raw, job.len).copy_from_slice(&bytes[..job.len]);
        self.used += job.len;
        self.offset += job.len as u64;
        Ok(true)
    }
}

/// A range of a stream.
struct Window<'a> {
    offset: u64,
    bytes: &'a [u8],
}

impl ReadAt for Window<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let within = offset.checked_sub(self.offset).ok_or(io::ErrorKind::InvalidInput)?;
        self.bytes.read_exact_at(buf, within)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.offset + self.bytes.len() as u64)
    }
}

/// A stream with its read-ahead buffer.
pub(super) struct Stream<'a> {
    src: &'a mut dyn Read,
    ahead: Ahead,
    /// Hashes all bytes that are read.
    hasher: Option<StreamHasher>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(src: &'a mut dyn Read, hasher: Option<StreamHasher>) -> Self {
        Self { src, ahead: Ahead::default(), hasher }
    }

    /// Reads ahead, then [`Ahead::next_block`].
    pub(super) fn next_block(&mut self, cutter: &mut Cutter<'_>, job: &mut Job) -> Result<bool> {
        self.fill(cutter.lookahead() as usize)?;
        self.ahead.next_block(cutter, job)
    }

    /// Reads until the buffer holds `n` bytes, or fewer at the end of the stream.
    fn fill(&mut self, n: usize) -> Result<()> {
        if let Some(more) = n.checked_sub(self.ahead.len()).filter(|&more| more > 0) {
            let read = append(self.src, self.ahead.room(), more).map_err(|e| Error::io("cannot read the input", e))?;
            if let Some(hasher) = &self.hasher {
                let bytes = self.ahead.bytes();
                hasher.update(&bytes[bytes.len() - read..]);
            }
        }
        Ok(())
    }
}

impl Prefix for Stream<'_> {
    fn get(&mut self, n: usize) -> Result<&[u8]> {
        self.fill(n)?;
        Ok(&self.ahead.bytes()[..n.min(self.ahead.len())])
    }
}
