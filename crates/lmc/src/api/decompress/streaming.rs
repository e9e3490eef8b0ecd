//! Restores files front to back from their blocks alone; then checks index and trailer, and that nothing follows.

use std::fs::File;
use std::io::Read;

use super::buffers::Buffers;
use crate::Summary;
use crate::block::by_leaf::BlockOutput;
use crate::block::decode::BlockDecoder;
use crate::block::head::BlockHead;
use crate::file::blocks::{Decoded, check_hash, decode_checked};
use crate::file::hashing::{Comparison, compare_bases};
use crate::file::origin::{NoSelf, ReferenceResolver, SelfSource, Watermark, Written};
use crate::file::stream::{Next, Records};
use crate::format::bases::BaseInfo;
use crate::format::checksum::ContentHash;
use crate::format::digests::RawDigest;
use crate::format::index::Index;
use crate::format::record::HEADER_LEN;
use crate::refs::base::{Base, resolve};
use crate::refs::budget::BudgetPool;
use crate::refs::work::Work;
use crate::settings::limits::DecodeLimits;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::WriteAt;
use lmc_pool::Workers;

/// A file that is restored front to back.
pub(crate) struct Front<'b, R> {
    records: Records<R>,
    /// The bases that the file names, and those given, in the same order.
    wanted: Vec<BaseInfo>,
    bases: Vec<Base<'b>>,
    /// Raw bytes in an unnamed file, if later blocks depend on them.
    spill: Option<File>,
    mark: Watermark,
    work: Work,
    hash: ContentHash,
    /// Raw bytes of the blocks read, and of the blocks decoded.
    read: u64,
    decoded: u64,
    /// After the last block.
    index: Option<Index>,
    /// Whether the bases were compared with the digests of the file.
    compared: bool,
}

/// A block under way.
#[derive(Default)]
struct Job {
    block: usize,
    record_offset: u64,
    raw_offset: u64,
    head: Option<BlockHead>,
    buffers: Buffers,
}

impl<'b, R: Read> Front<'b, R> {
    /// Reads the records before the blocks.
    pub(crate) fn open(src: R, limits: DecodeLimits) -> Result<Self> {
        let records = Records::open(src, limits)?;
        let wanted = records.sources().bases.clone();
        Ok(Self {
            records,
            wanted,
            bases: Vec::new(),
            spill: None,
            mark: Watermark::default(),
            work: Work::new(limits.max_work, 0),
            hash: ContentHash::default(),
            read: 0,
            decoded: 0,
            index: None,
            compared: false,
        })
    }

    /// The bases that the file needs.
    pub(crate) fn wanted(&self) -> &[BaseInfo] {
        &self.wanted
    }

    /// Chooses the bases among those that are given, before the first block.
    pub(crate) fn resolve(&mut self, given: &[Base<'b>], workers: &Workers<BlockDecoder>) -> Result<()> {
        self.bases = resolve(&self.wanted, given, workers)?;
        Ok(())
    }

    /// Compares the bases with the digests of the file, which are known already.
    pub(super) fn compare_bases(&mut self, digests: &[RawDigest]) -> Result<()> {
        self.compared = true;
        compare_bases(digests, &self.bases)
    }

    /// Decodes all blocks. `put` takes the bytes of each in order, and their offset in the raw file. They are compared with the digests of
    /// `comparison`; what this returns must be compared by the caller, who has the bytes.
    pub(super) fn decode_all(
        mut self,
        workers: &Workers<BlockDecoder>,
        buffers: &mut Vec<Buffers>,
        mut put: impl FnMut(&[u8], u64) -> Result<()>,
        mut comparison: Option<Comparison>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Summary, Option<Comparison>)> {
        let mut at = 0;
        self.decode(workers, buffers, usize::MAX, |raw| {
            put(raw, at)?;
            if let Some(comparison) = &mut comparison {
                comparison.update(raw);
            }
            at += raw.len() as u64;
            progress(at);
            Ok(())
        })?;
        let done = self.finish()?;
        let left = match comparison {
            Some(comparison) => comparison.finish("").map(|()| None)?,
            None => Comparison::of(self.records.digests(), 0),
        };
        Ok((done, left))
    }

    /// Decodes blocks until they have `enough` bytes, or up to the end. `put` takes the bytes of each in order, and may replace their
    /// vector.
    pub(crate) fn decode(
        &mut self,
        workers: &Workers<BlockDecoder>,
        buffers: &mut Vec<Buffers>,
        enough: usize,
        mut put: impl FnMut(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let Self { records, wanted, bases, spill, mark, work, hash, read, decoded, index, .. } = self;
        if records.sources().features.own && spill.is_none() {
            *spill = Some(tempfile::tempfile().map_err(cannot_spill)?);
        }
        let (spill, mark, work) = (spill.as_ref(), &*mark, &*work);
        let written = spill.map(|to| Written { mark, to, again: &NoSelf });
        let own = written.as_ref().map_or(&NoSelf as &dyn SelfSource, |written| written);
        let origin = ReferenceResolver::new(&bases[..], wanted, own);
        let mut fed = 0;
        let mut jobs = Buffers::take(buffers, workers.in_flight(), |buffers| Job { buffers, ..Job::default() });
        let done = workers.ordered(
            &mut jobs,
            |job| {
                if fed >= enough || index.is_some() {
                    return Ok(None);
                }
                job.block = records.blocks();
                let record = &mut job.buffers.record;
                match records.next(record)? {
                    Next::Block(head) => {
                        job.record_offset = records.offset() - record.len() as u64;
                        job.raw_offset = *read;
                        *read += head.raw_len as u64;
                        work.ask(head.raw_len as u64);
                        fed += head.raw_len;
                        let weight = record.len() + head.raw_len;
                        job.head = Some(head);
                        Ok(Some(weight))
                    }
                    Next::End(end) => {
                        *index = Some(end);
                        Ok(None)
                    }
                }
            },
            |decoder, job| {
                let head = job.head.take().expect("a block was read");
                let Buffers { record, raw } = &mut job.buffers;
                raw.resize(head.raw_len, 0);
                let body = &record[record.len() - body_len(record)..];
                let turn = spill.map(|_| mark.begin(job.raw_offset));
                let pool = BudgetPool::new();
                let origin = origin.within(pool.budget(work));
                let spent = work.spend(raw.len() as u64);
                let done = spent.and_then(|()| decode_checked(decoder, head, body, &origin, BlockOutput::Memory(raw)));
                if let (Some(spill), Some(turn), Ok(_)) = (spill, turn, &done) {
                    spill.write_all_at(raw, job.raw_offset).map_err(cannot_spill)?;
                    turn.done(job.raw_offset + raw.len() as u64);
                }
                done
            },
            |job, done| {
                let done: Decoded =
                    done.map_err(|e: Error| e.in_block(job.block as u64).at_offset(job.record_offset))?;
                done.leaves.iter().for_each(|l| hash.push(l));
                *decoded += job.buffers.raw.len() as u64;
                put(&mut job.buffers.raw)?;
                job.buffers.trim();
                Ok(())
            },
        );
        buffers.extend(jobs.into_iter().map(|job| job.buffers));
        done
    }

    /// Checks the content hash, after the end was read; returns sizes and hash.
    pub(crate) fn finish(&self) -> Result<Summary> {
        let index = self.index.as_ref().expect("the blocks end with the index");
        check_hash(&self.hash, &index.content_hash)?;
        if !self.compared {
            compare_bases(self.records.digests(), &self.bases)?;
        }
        Ok(Summary {
            raw_size: self.decoded,
            compressed_size: self.records.offset(),
            content_hash: index.content_hash,
            blocks: self.records.blocks() as u64,
            unlisted_tensors: 0,
            header: index.features.with_bases(!self.wanted.is_empty()),
        })
    }

    /// Whether the index was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.index.is_some()
    }
}

/// Length of the body of a well-formed block record.
fn body_len(record: &[u8]) -> usize {
    let head_len = u32::from_le_bytes(record[4..8].try_into().expect("4 bytes")) as usize;
    record.len() - HEADER_LEN - head_len
}

fn cannot_spill(e: std::io::Error) -> Error {
    Error::io("cannot keep raw bytes for later blocks in a temporary file", e)
}
