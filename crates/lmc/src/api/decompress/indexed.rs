//! Restores files that are opened from their end: all threads decode blocks in place.

use super::buffers::Buffers;
use crate::Summary;
use crate::block::by_leaf::BlockOutput;
use crate::block::decode::BlockDecoder;
use crate::file::access::{Access, Cache};
use crate::file::blocks::{Decoded, Progress, decode, finish};
use crate::file::open::{self, Opened};
use crate::file::origin::{Finished, NoSelf, ReferenceResolver, SelfSource, Written};
use crate::refs::base::Base;
use crate::refs::budget::BudgetPool;
use crate::refs::work::Work;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::{ReadAt, WriteAt};
use lmc_pool::Workers;

/// The destination of the raw bytes.
pub(super) enum Place<'a> {
    /// A slice of exactly the raw size.
    Slice(&'a mut [u8]),
    At(&'a dyn WriteAt),
}

/// A block under way.
struct Job<'a> {
    block: usize,
    /// The block's bytes in the caller's memory, if that is the destination.
    out: Option<&'a mut [u8]>,
    buffers: Buffers,
}

/// A file that was opened.
pub(super) struct Whole<'a> {
    pub(super) src: &'a dyn ReadAt,
    pub(super) opened: &'a Opened,
    /// In the file's order.
    pub(super) bases: &'a [Base<'a>],
    pub(super) max_work: Option<u64>,
}

impl Whole<'_> {
    pub(super) fn decode(
        &self,
        workers: &Workers<BlockDecoder>,
        buffers: &mut Vec<Buffers>,
        place: Place<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let &Self { src, opened, bases, max_work } = self;
        let sources = &opened.sources;
        let finished = Finished::default();
        let work = Work::new(max_work, opened.index.raw_size);
        let mut so_far = Progress::new(sources);
        let (mut rest, to) = match place {
            Place::Slice(bytes) => (Some(bytes), None),
            Place::At(file) => (None, Some(file)),
        };
        // Blocks that cannot be read back are decoded once more.
        let cache = to.map(|_| Cache::default());
        let access = cache.as_ref().map(|cache| Access { src, opened, bases, workers, cache });
        let mut next = 0;
        let mut jobs = Buffers::take(buffers, workers.in_flight(), |buffers| Job { block: 0, out: None, buffers });
        let done = workers.ordered(
            &mut jobs,
            |job| {
                if next == opened.blocks() {
                    return Ok(None);
                }
                job.block = next;
                next += 1;
                let b = opened.block(job.block);
                let Some(rest) = &mut rest else { return Ok(Some((b.record_len + b.raw_len) as usize)) };
                let out = rest.split_off_mut(..b.raw_len as usize);
                job.out = Some(out.expect("raw lengths add up to the raw size"));
                Ok(Some(0))
            },
            |decoder, job| {
                let Job { block, out, buffers: Buffers { record, raw } } = job;
                let b = opened.block(*block);
                let turn = sources.features.own.then(|| finished.mark.begin(b.raw_offset));
                let pool = BudgetPool::new();
                let budget = pool.budget(&work);
                let again = access.as_ref().map(|access| access.earlier(budget));
                let written = to.zip(again.as_ref()).map(|(to, again)| Written { mark: &finished.mark, to, again });
                let own: &dyn SelfSource = match &written {
                    _ if turn.is_none() => &NoSelf,
                    Some(written) => written,
                    None => &finished,
                };
                let origin = ReferenceResolver::new(bases, &sources.bases, own);
                let origin = origin.within(budget);
                // Errors of writing are not the block's.
                let mut write_failed = false;
                let mut write = |bytes: &[u8], at: usize| {
                    let file = to.expect("memory is not written");
                    let done = file.write_all_at(bytes, b.raw_offset + at as u64);
                    write_failed = done.is_err();
                    done.map_err(Error::cannot_write)
                };
                let output = match out {
                    Some(out) => BlockOutput::Memory(out),
                    None => BlockOutput::Written { buf: raw, write: &mut write },
                };
                let decoded =
                    work.spend(b.raw_len).and_then(|()| open::read_record(src, &b, record)).and_then(|record| {
                        decode(decoder, record, sources, b.raw_offset, &origin, b.raw_len as usize, output)
                    });
                let decoded = decoded.map_err(|e| if write_failed { e } else { opened.locate(e, *block) });
                if let (Some(turn), Ok(_)) = (turn, &decoded) {
                    out.take().into_iter().for_each(|out| finished.publish(b.raw_offset, out));
                    turn.done(b.raw_offset + b.raw_len);
                }
                decoded
            },
            |job, decoded| {
                let b = opened.block(job.block);
                let decoded: Decoded = decoded?;
                so_far.push(&decoded, b.raw_len).map_err(|e| opened.locate(e, job.block))?;
                job.buffers.trim();
                progress(b.raw_offset + b.raw_len);
                Ok(())
            },
        );
        buffers.extend(jobs.into_iter().map(|job| job.buffers));
        done.and_then(|()| finish(opened, &so_far))
    }
}
