//! The threads of a compressor, and blocks under way.

use crate::block::Extent;
use crate::block::encode::{BlockEncoder, BlockSummary, RawBlock};
use crate::file::cut::Cutter;
use crate::file::origin::Raw;
use lmc_layout::error::Result;
use lmc_layout::io::{ReadAt, scratch};
use lmc_pool::Workers;

/// Threads, and their reused buffers.
pub(crate) struct Encoders {
    pub(crate) workers: Workers<BlockEncoder>,
    pub(super) jobs: Vec<Job>,
}

impl Encoders {
    pub(super) fn new(workers: Workers<BlockEncoder>) -> Self {
        Self { workers, jobs: Vec::new() }
    }

    /// Creates the jobs that can be under way.
    pub(super) fn prepare(&mut self) {
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
    }
}

/// A block under way.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) extents: Vec<Extent>,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// The block's raw bytes, unless they are in the caller's memory. Bytes after them are arbitrary.
    pub(super) raw: Vec<u8>,
    /// The block's record. Bytes after it are arbitrary.
    pub(super) record: Vec<u8>,
    /// In [`direct`](super::direct), once it is encoded.
    pub(super) done: Option<BlockSummary>,
}

impl Job {
    /// Plans the next block, at byte `at` of a source of `size` bytes; false if there is none.
    pub(super) fn plan(&mut self, src: &dyn ReadAt, size: u64, at: &mut u64, cutter: &mut Cutter<'_>) -> Result<bool> {
        if *at == size {
            return Ok(false);
        }
        self.len = cutter.next_block(src, size - *at, &mut self.extents)?;
        self.offset = *at;
        *at += self.len as u64;
        Ok(true)
    }
}

/// The place of the raw bytes of a block.
pub(crate) enum Loader<'a> {
    File(&'a dyn ReadAt, &'a Raw<'a>),
    /// In the job's own buffer, read by the calling thread.
    Buffered,
}

impl Loader<'_> {
    pub(super) fn load<'j>(
        &'j self,
        offset: u64,
        len: usize,
        buf: &'j mut Vec<u8>,
        extents: &'j [Extent],
    ) -> Result<RawBlock<'j>> {
        match self {
            Loader::File(src, own) => {
                let reading = own.begin(offset);
                let block = match src.slice_at(offset, len) {
                    Some(block) => RawBlock::new(block, extents),
                    None => RawBlock::read(*src, offset, scratch(buf, len), extents)?,
                };
                reading.into_iter().for_each(|r| r.done(&block));
                Ok(block)
            }
            Loader::Buffered => Ok(RawBlock::new(&buf[..len], extents)),
        }
    }
}
