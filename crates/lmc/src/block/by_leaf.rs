//! Sparse deltas of whole blocks, restored one leaf after the other: each stays in the second-level cache from reading its predictions
//! to replacing the changed elements, hashing it and writing it.

use super::Origin;
use crate::format::bases::SourceRange;
use crate::format::checksum::{Digest, LEAF, digest};
use lmc_layout::error::Result;
use lmc_layout::io::scratch;

/// Writes bytes of a block to their place in it.
pub(crate) type Write<'a> = &'a mut dyn FnMut(&[u8], usize) -> Result<()>;

/// Where the bytes of a block go.
pub(crate) enum BlockOutput<'a> {
    Memory(&'a mut [u8]),
    /// In order, each byte once. Sparse blocks are written before they are checked, all others after.
    Written {
        buf: &'a mut Vec<u8>,
        write: Write<'a>,
    },
}

/// Leaves of a block, from the predictions of all its bytes.
pub(super) struct Leaves<'a, 'o> {
    out: BlockOutput<'o>,
    /// Bytes of the block.
    len: usize,
    /// The leaf under way.
    start: usize,
    end: usize,
    /// The end of the bytes that were read: that of the leaf, or beyond.
    read: usize,
    origin: &'a dyn Origin,
    /// Ranges of the predictions that were not read yet.
    left: Vec<SourceRange>,
    digests: Vec<Digest>,
}

impl<'a, 'o> Leaves<'a, 'o> {
    /// Reads the first leaf. The predictions of `list` have `len` bytes.
    pub(super) fn new(
        list: &[SourceRange],
        origin: &'a dyn Origin,
        len: usize,
        mut out: BlockOutput<'o>,
    ) -> Result<Self> {
        match &mut out {
            BlockOutput::Memory(bytes) => assert_eq!(bytes.len(), len, "room for the block"),
            // A leaf, and what was read to the end of a leaf of the base.
            BlockOutput::Written { buf, .. } => _ = scratch(buf, len.min(2 * LEAF)),
        }
        let left = list.iter().rev().copied().collect();
        let digests = Vec::with_capacity(len.div_ceil(LEAF));
        let mut leaves = Self { out, len, start: 0, end: 0, read: 0, origin, left, digests };
        leaves.read_leaf()?;
        Ok(leaves)
    }

    /// Bytes of the block.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The place in the block of the leaf under way; empty behind the last one.
    pub(super) fn place(&self) -> std::ops::Range<usize> {
        self.start..self.end
    }

    /// The leaf under way.
    pub(super) fn leaf(&mut self) -> &mut [u8] {
        let len = self.end - self.start;
        &mut self.window()[..len]
    }

    /// Hashes and writes the leaf under way, and reads the next one.
    pub(super) fn next(&mut self) -> Result<()> {
        let leaf = self.leaf();
        let done = leaf.len();
        let digest = digest(leaf);
        self.digests.push(digest);
        if let BlockOutput::Written { buf, write } = &mut self.out {
            write(&buf[..done], self.start)?;
            buf.copy_within(done..self.read - self.start, 0);
        }
        self.start = self.end;
        self.read_leaf()
    }

    /// Completes the leaves that are left; returns the digests of all.
    pub(super) fn finish(mut self) -> Result<Vec<Digest>> {
        while self.start < self.len {
            self.next()?;
        }
        Ok(self.digests)
    }

    /// Reads predictions up to the end of the leaf from `start` on, and of those in a base up to the end of its leaf, which it may hash.
    fn read_leaf(&mut self) -> Result<()> {
        self.end = self.len.min(self.start + LEAF);
        while self.read < self.end {
            let range = self.left.last_mut().expect("predictions of all bytes");
            let to_leaf = LEAF as u64 - range.offset % LEAF as u64;
            let SourceRange { source, offset, .. } = *range;
            let len = range.len.min(to_leaf) as usize;
            range.offset += len as u64;
            range.len -= len as u64;
            if range.len == 0 {
                self.left.pop();
            }
            let (at, origin) = (self.read - self.start, self.origin);
            let to = &mut self.window()[at..][..len];
            match origin.slice(source, offset, len) {
                Some(bytes) => to.copy_from_slice(bytes),
                None => origin.read(source, offset, to)?,
            }
            self.read += len;
        }
        Ok(())
    }

    /// Bytes from the leaf under way on.
    fn window(&mut self) -> &mut [u8] {
        match &mut self.out {
            BlockOutput::Memory(bytes) => &mut bytes[self.start..],
            BlockOutput::Written { buf, .. } => buf,
        }
    }
}
