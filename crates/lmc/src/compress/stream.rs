//! Streams that are compressed: what was read ahead, and where it is.

use std::io::{self, Read};

use crate::error::{Error, Result};
use crate::io::{ReadAt, append, read_full, scratch};
use crate::layout::Prefix;

/// Buffers may grow to this much beyond a block before they are given back.
const KEEP: usize = 1 << 23;

/// A stretch of a stream.
pub(super) struct Window<'a> {
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
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

/// A stream, and what was read ahead of the next block.
pub(super) struct Stream<'a> {
    src: &'a mut dyn Read,
    ahead: Vec<u8>,
    /// Bytes at the start of `ahead` that are used up.
    pos: usize,
}

impl<'a> Stream<'a> {
    pub(super) fn new(src: &'a mut dyn Read) -> Self {
        Self { src, ahead: Vec::new(), pos: 0 }
    }

    /// Puts the next `n` bytes, or fewer at the end of the stream, into `buf`, which becomes no shorter: zeros for the next
    /// call would take longer than a small file.
    pub(super) fn fill<'b>(&mut self, buf: &'b mut Vec<u8>, n: usize) -> Result<&'b [u8]> {
        let buf = scratch(buf, n);
        let ahead = &self.ahead[self.pos..];
        let have = ahead.len().min(n);
        buf[..have].copy_from_slice(&ahead[..have]);
        self.pos += have;
        if self.pos == self.ahead.len() && self.pos > KEEP {
            self.ahead = Vec::new();
            self.pos = 0;
        }
        let got = read_full(self.src, &mut buf[have..n]).map_err(|e| Error::io("cannot read the input", e))?;
        Ok(&buf[..have + got])
    }

    /// Puts back the last bytes that [`Self::fill`] gave.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        if self.pos == self.ahead.len() {
            self.ahead.clear();
            self.ahead.extend_from_slice(bytes);
            self.pos = 0;
        } else {
            // They came from `ahead`, and are still there.
            self.pos -= bytes.len();
        }
    }
}

impl Prefix for Stream<'_> {
    fn get(&mut self, n: usize) -> Result<&[u8]> {
        if let Some(more) = n.checked_sub(self.ahead.len()) {
            append(self.src, &mut self.ahead, more).map_err(|e| Error::io("cannot read the input", e))?;
        }
        Ok(&self.ahead[..n.min(self.ahead.len())])
    }
}
