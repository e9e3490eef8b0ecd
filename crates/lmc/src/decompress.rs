//! Decompression to slices, streams and files.

mod blocks;

use std::borrow::Cow;
use std::io::{Read, Write};

use crate::Summary;
use crate::access::{Access, Cache};
use crate::base::{Base, resolve};
use crate::block::decode::BlockDecoder;
use crate::budget::Detour;
use crate::container::open::{self, Opened};
use crate::container::stream::{Next, Records};
use crate::error::{Error, Result};
use crate::format::bases::BaseInfo;
use crate::format::block_head::BlockHead;
use crate::format::checksum::ContentHash;
use crate::format::record::HEADER_LEN;
use crate::io::{ReadAt, WriteAt, zeroed};
use crate::isa::Isa;
use crate::options::{DecodeLimits, DecompressOptions};
use crate::origin::{Finished, NotOwn, Own, Sourced, Watermark, Written};
use crate::pool::Workers;
use crate::work::Work;

use blocks::check_hash;
pub(crate) use blocks::{Decoded, Progress, checked_block, decode, decode_checked, finish};

/// Restores a file in memory.
///
/// A small file can restore to terabytes: set [`DecodeLimits::max_raw_size`](crate::DecodeLimits::max_raw_size) for
/// files of unknown origin.
///
/// # Errors
/// `Damaged` or `Unsupported` for what is not a whole `.lmc` file that this version can read, `Limit` when it is
/// larger than the limits or than memory, `Base` when it is a delta: [`decompress_delta`] restores those.
pub fn decompress(file: &[u8], o: &DecompressOptions) -> Result<Vec<u8>> {
    decompress_delta(file, &[], o)
}

/// Restores a delta in memory, or any other file if there are no bases.
///
/// # Errors
/// Those of [`decompress`] and [`Decompressor::decompress_delta_into`].
pub fn decompress_delta(file: &[u8], bases: &[Base<'_>], o: &DecompressOptions) -> Result<Vec<u8>> {
    let mut d = Decompressor::new(o)?;
    let opened = Opened::open_whole(&file, &o.limits)?;
    let bases = resolve(&opened.sources.bases, bases, &d.workers)?;
    let mut out = zeroed(opened.index.raw_size)?;
    d.decompress_opened(&file, &opened, bases, &mut out)?;
    Ok(out)
}

/// Restores files, one after the other, with one pool of threads and one set of buffers.
///
/// A file is restored only if every block, the index, the trailer and the hash of the whole are what they should be.
/// After an error, whatever was written is of no use.
///
/// A delta needs the bases that it was made from, in any order; they are known by their hashes, which are computed
/// unless [`Base::with_hash`] has them, before anything is written. A base that the file was not made from is an error, unless it is [optional](Base::optional).
pub struct Decompressor {
    o: DecompressOptions,
    workers: Workers<BlockDecoder>,
    jobs: Vec<Job>,
}

/// A block under way.
#[derive(Default)]
struct Job {
    block: usize,
    record: Vec<u8>,
    record_offset: u64,
    raw_offset: u64,
    head: Option<BlockHead>,
    raw: Vec<u8>,
    done: Option<Result<Decoded>>,
}

/// A block under way between slices.
#[derive(Default)]
struct SliceJob<'a> {
    block: usize,
    /// Of a source that is no slice.
    record: Vec<u8>,
    out: &'a mut [u8],
    done: Option<Result<Decoded>>,
}

/// Buffers that a block larger than ours has made larger than this are given back.
const KEEP: usize = 9 << 20;

impl Decompressor {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Usage` when the options do not fit this machine, `Io` when it cannot start threads.
    pub fn new(o: &DecompressOptions) -> Result<Self> {
        let isa = o.isa.map_or_else(Isa::detect, Ok)?;
        let workers = Workers::new(o.threads, move || BlockDecoder::new(isa))?;
        Ok(Self { o: *o, workers, jobs: Vec::new() })
    }

    /// Raw size of a file in bytes, from its trailer and index.
    ///
    /// # Errors
    /// Those of [`decompress`], as far as they concern header, index and trailer.
    pub fn raw_size(file: &[u8]) -> Result<u64> {
        Ok(Opened::open(&file, &DecodeLimits::default())?.index.raw_size)
    }

    /// Restores `file` into `out`, which must have exactly its raw size; blocks go straight there, in parallel.
    ///
    /// # Errors
    /// Those of [`decompress`], and `Usage` when `out` has another length.
    pub fn decompress_into(&mut self, file: &[u8], out: &mut [u8]) -> Result<Summary> {
        self.decompress_delta_into(file, &[], out)
    }

    /// [`Self::decompress_into`] for a delta.
    ///
    /// # Errors
    /// Those of [`Self::decompress_into`]; `Base` when a base is missing, is another file or is not needed; `Io` or `Base` when one
    /// cannot be read.
    pub fn decompress_delta_into(&mut self, file: &[u8], bases: &[Base<'_>], out: &mut [u8]) -> Result<Summary> {
        self.decompress_delta_from(&file, bases, out)
    }

    /// [`Self::decompress_delta_into`] from a file that is read at any offset: what of it is in memory ([`ReadAt::slice_at`]) is taken from
    /// there, and the rest is read by the thread that decodes it.
    ///
    /// # Errors
    /// Those of [`Self::decompress_delta_into`], and `Io` when reading fails.
    pub fn decompress_delta_from(&mut self, src: &dyn ReadAt, bases: &[Base<'_>], out: &mut [u8]) -> Result<Summary> {
        let opened = Opened::open_whole(src, &self.o.limits)?;
        let bases = resolve(&opened.sources.bases, bases, &self.workers)?;
        self.decompress_opened(src, &opened, bases, out)
    }

    fn decompress_opened(
        &mut self,
        src: &dyn ReadAt,
        opened: &Opened,
        bases: Vec<Base<'_>>,
        out: &mut [u8],
    ) -> Result<Summary> {
        let raw_size = opened.index.raw_size;
        if out.len() as u64 != raw_size {
            return Err(Error::usage(format!(
                "the file restores to {raw_size} bytes, and the output has room for {}",
                out.len()
            )));
        }
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
        let kept = self.jobs.iter_mut().map(|job| std::mem::take(&mut job.record));
        let mut jobs: Vec<_> = kept.map(|record| SliceJob { record, ..SliceJob::default() }).collect();
        let finished = opened.sources.features.own.then(Finished::default);
        let origin = sourced(bases, &opened.sources.bases, finished.as_ref());
        let mut progress = Progress::new(&opened.sources);
        let work = Work::new(self.o.limits.max_work, raw_size);
        let (mut next, mut rest) = (0, out);
        self.workers.ordered(
            &mut jobs,
            |job| {
                if next == opened.blocks() {
                    return Ok(None);
                }
                let b = opened.block(next);
                job.block = next;
                job.out = rest.split_off_mut(..b.raw_len as usize).expect("raw lengths add up to the raw size");
                next += 1;
                Ok(Some(0))
            },
            |decoder, job| {
                let b = opened.block(job.block);
                let (start, len) = (b.record_offset, b.record_len as usize);
                let read = match src.slice_at(start, len) {
                    Some(record) => Ok(record),
                    None => {
                        job.record.resize(len, 0);
                        open::read(src, &mut job.record, start).map(|()| &job.record[..])
                    }
                };
                let turn = finished.as_ref().map(|f| f.mark.begin(b.raw_offset));
                let detour = Detour::new();
                let origin = origin.within(detour.budget(&work));
                let done = read
                    .and_then(|r| work.spend(b.raw_len).map(|()| r))
                    .and_then(|r| decode(decoder, r, &opened.sources, b.raw_offset, &origin, job.out));
                if let (Some(f), Some(turn), Ok(_)) = (&finished, turn, &done) {
                    let out: &mut [u8] = std::mem::take(&mut job.out);
                    f.publish(b.raw_offset, out);
                    turn.done(b.raw_offset + b.raw_len);
                }
                job.done = Some(done);
            },
            |job| {
                let b = opened.block(job.block);
                let done = job.done.take().expect("the worker is done");
                done.and_then(|d| progress.push(&d, b.raw_len)).map_err(|e| opened.locate(e, job.block))
            },
        )?;
        for (kept, job) in self.jobs.iter_mut().zip(jobs) {
            kept.record = job.record;
            kept.trim();
        }
        finish(opened, &progress.hash)
    }

    /// Restores a stream to a stream, front to back, in bounded memory, with nothing but its blocks; then checks
    /// index and trailer, and that nothing follows. `progress` is called with the number of raw bytes done so far.
    ///
    /// # Errors
    /// Those of [`decompress`], and `Io` when reading or writing fails. Blocks before an error have been written.
    pub fn decompress_stream(
        &mut self,
        src: &mut dyn Read,
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        self.decompress_delta_stream(src, &[], dst, progress)
    }

    /// [`Self::decompress_stream`] for a delta. If blocks depend on earlier ones of the same file, those are kept in a temporary
    /// file meanwhile, which has no name.
    ///
    /// # Errors
    /// Those of [`Self::decompress_stream`] and [`Self::decompress_delta_into`].
    pub fn decompress_delta_stream(
        &mut self,
        src: &mut dyn Read,
        bases: &[Base<'_>],
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let mut records = Records::open(src, self.o.limits)?;
        let sources = records.sources().clone();
        let bases = resolve(&sources.bases, bases, &self.workers)?;
        let spill = if sources.features.own { Some(tempfile::tempfile().map_err(cannot_spill)?) } else { None };
        let mark = Watermark::default();
        let written = spill.as_ref().map(|f| Written { mark: &mark, to: f, again: &NotOwn });
        let origin = sourced(bases, &sources.bases, written.as_ref());
        let work = Work::new(self.o.limits.max_work, 0);
        let mut hash = ContentHash::default();
        let mut raw = 0;
        let mut end = None;
        let mut raw_offset = 0;
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
        self.workers.ordered(
            &mut self.jobs,
            |job| {
                job.block = records.blocks();
                match records.next(&mut job.record)? {
                    Next::Block(head) => {
                        job.record_offset = records.offset() - job.record.len() as u64;
                        let weight = job.record.len() + head.raw_len;
                        job.raw_offset = raw_offset;
                        raw_offset += head.raw_len as u64;
                        work.ask(head.raw_len as u64);
                        job.head = Some(head);
                        Ok(Some(weight))
                    }
                    Next::End(index) => {
                        end = Some(index);
                        Ok(None)
                    }
                }
            },
            |decoder, job| {
                let head = job.head.take().expect("a block was read");
                job.raw.resize(head.raw_len, 0);
                let body = &job.record[job.record.len() - body_len(&job.record)..];
                let turn = written.as_ref().map(|_| mark.begin(job.raw_offset));
                let detour = Detour::new();
                let origin = origin.within(detour.budget(&work));
                let spent = work.spend(job.raw.len() as u64);
                let mut done = spent.and_then(|()| decode_checked(decoder, head, body, &origin, &mut job.raw));
                if let (Some(spill), Some(turn), Ok(_)) = (&spill, turn, &done) {
                    match spill.write_all_at(&job.raw, job.raw_offset) {
                        Ok(()) => turn.done(job.raw_offset + job.raw.len() as u64),
                        Err(e) => done = Err(cannot_spill(e)),
                    }
                }
                job.done = Some(done);
            },
            |job| {
                let done = job.done.take().expect("the worker is done");
                let done = done.map_err(|e| e.in_block(job.block as u64).at_offset(job.record_offset))?;
                done.leaves.iter().for_each(|l| hash.push(l));
                dst.write_all(&job.raw).map_err(cannot_write)?;
                raw += job.raw.len() as u64;
                job.trim();
                progress(raw);
                Ok(())
            },
        )?;
        let index = end.expect("the pipeline ends with the index");
        check_hash(&hash, &index.content_hash)?;
        dst.flush().map_err(cannot_write)?;
        Ok(Summary {
            raw_size: raw,
            compressed_size: records.offset(),
            content_hash: index.content_hash,
            blocks: records.blocks() as u64,
        })
    }

    /// Restores a file that is read at any offset to one that is written at any offset, by all threads at once, in
    /// bounded memory. `progress` is called with the number of raw bytes done so far.
    ///
    /// # Errors
    /// Those of [`decompress`], and `Io` when reading or writing fails.
    pub fn decompress_to(
        &mut self,
        src: &dyn ReadAt,
        dst: &dyn WriteAt,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        self.decompress_delta_to(src, &[], dst, progress)
    }

    /// [`Self::decompress_to`] for a delta. If blocks depend on earlier ones of the same file, those are read back from `dst`, or
    /// decoded once more where [`WriteAt::read_back`] is not supported.
    ///
    /// # Errors
    /// Those of [`Self::decompress_to`] and [`Self::decompress_delta_into`].
    pub fn decompress_delta_to(
        &mut self,
        src: &dyn ReadAt,
        bases: &[Base<'_>],
        dst: &dyn WriteAt,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let opened = Opened::open_whole(src, &self.o.limits)?;
        let bases = resolve(&opened.sources.bases, bases, &self.workers)?;
        let cache = Cache::default();
        let again = Access { src, opened: &opened, bases: &bases, workers: &self.workers, cache: &cache };
        let mark = Watermark::default();
        let work = Work::new(self.o.limits.max_work, opened.index.raw_size);
        let mut done = Progress::new(&opened.sources);
        let mut next = 0;
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
        self.workers.ordered(
            &mut self.jobs,
            |job| {
                if next == opened.blocks() {
                    return Ok(None);
                }
                job.block = next;
                next += 1;
                let b = opened.block(job.block);
                Ok(Some((b.record_len + b.raw_len) as usize))
            },
            |decoder, job| {
                let b = opened.block(job.block);
                let turn = opened.sources.features.own.then(|| mark.begin(b.raw_offset));
                let detour = Detour::new();
                let again = again.earlier(detour.budget(&work));
                let written = turn.as_ref().map(|_| Written { mark: &mark, to: dst, again: &again });
                let origin = sourced(&bases[..], &opened.sources.bases, written.as_ref());
                let origin = origin.within(detour.budget(&work));
                job.record.resize(b.record_len as usize, 0);
                job.raw.resize(b.raw_len as usize, 0);
                let done = work
                    .spend(b.raw_len)
                    .and_then(|()| open::read(src, &mut job.record, b.record_offset))
                    .and_then(|()| decode(decoder, &job.record, &opened.sources, b.raw_offset, &origin, &mut job.raw))
                    .map_err(|e| opened.locate(e, job.block));
                job.done = Some(done.and_then(|done| {
                    dst.write_all_at(&job.raw, b.raw_offset).map_err(cannot_write)?;
                    turn.into_iter().for_each(|t| t.done(b.raw_offset + b.raw_len));
                    Ok(done)
                }));
            },
            |job| {
                let b = opened.block(job.block);
                let decoded = job.done.take().expect("the worker is done")?;
                done.push(&decoded, b.raw_len).map_err(|e| opened.locate(e, job.block))?;
                job.trim();
                progress(b.raw_offset + b.raw_len);
                Ok(())
            },
        )?;
        finish(&opened, &done.hash)
    }
}

impl Job {
    fn trim(&mut self) {
        for buf in [&mut self.record, &mut self.raw] {
            if buf.capacity() > KEEP {
                *buf = Vec::new();
            }
        }
    }
}

/// Where the blocks of a file find what they depend on; `own`: where blocks may depend on others.
fn sourced<'a, O: Own>(
    bases: impl Into<Cow<'a, [Base<'a>]>>,
    wanted: &'a [BaseInfo],
    own: Option<&'a O>,
) -> Sourced<'a> {
    Sourced::new(bases, wanted, own.map_or(&NotOwn, |own| own as &dyn Own))
}

/// Length of the body of a block's record that is known to be well-formed.
fn body_len(record: &[u8]) -> usize {
    let head_len = u32::from_le_bytes(record[4..8].try_into().expect("4 bytes")) as usize;
    record.len() - HEADER_LEN - head_len
}

fn cannot_spill(e: std::io::Error) -> Error {
    Error::io("cannot keep what later blocks depend on in a temporary file", e)
}

fn cannot_write(e: std::io::Error) -> Error {
    Error::io("cannot write the output", e)
}

#[cfg(test)]
mod tests;
