//! Compression of slices, streams and files: one planner, one writer, three sources.

mod stream;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::Summary;
use crate::base::Base;
use crate::begun::Begun;
use crate::block::encode::{BlockEncoder, BlockSummary, RawBlock};
use crate::block::output::Output;
use crate::block::{Origin, Piece};
use crate::container::writer::Writer;
use crate::cut::Cutter;
use crate::error::{Error, Result};
use crate::io::{ReadAt, scratch};
use crate::isa::Isa;
use crate::layout::{self, Layout, Start};
use crate::options::CompressOptions;
use crate::origin::Raw;
use crate::pool::Workers;
use crate::segment::Segment;
use crate::turns::Turns;

use crate::work::Work;

use stream::{Stream, Window};

/// Compresses a file in memory.
///
/// # Errors
/// `Usage` when the options do not fit this machine.
pub fn compress(raw: &[u8], o: &CompressOptions) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    Compressor::new(o)?.compress_into(raw, &mut out)?;
    Ok(out)
}

/// Compresses a file in memory as a delta: what it has in common with its bases is not stored again.
///
/// # Errors
/// Those of [`Compressor::compress_delta_into`].
pub fn compress_delta(raw: &[u8], bases: &[Base<'_>], o: &CompressOptions) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    Compressor::new(o)?.compress_delta_into(raw, bases, &mut out)?;
    Ok(out)
}

/// The most bytes that compressing so many gives, names of tensors and bases aside: what [`Compressor::compress_delta_from_to`] has to have
/// in order to work in place.
pub fn compress_bound(raw_size: u64) -> u64 {
    raw_size.saturating_add(raw_size / 512 + (1 << 16))
}

/// Compresses files, one after the other, with one pool of threads and one set of buffers.
///
/// All ways to compress give the same bytes for the same raw file and bases, whatever the number of threads; but what comes as a stream is
/// compressed as with [`CompressOptions::independent`], since its earlier bytes are gone.
///
/// A *delta* is a file that is predicted from others, its *bases*: earlier snapshots of the same model. Tensors are matched
/// by name, shape and dtype, then by content, so that renamed, converted and resized ones find their like; of several
/// bases (the shards of a checkpoint) the first one counts. The file names the bases that it needs by their content hashes, and it
/// takes them to restore it. One that has nothing in common with any base is no delta, and needs none.
pub struct Compressor {
    o: CompressOptions,
    workers: Workers<BlockEncoder>,
    jobs: Vec<Job>,
}

/// A block under way.
#[derive(Default)]
struct Job {
    pieces: Vec<Piece>,
    offset: u64,
    len: usize,
    /// The block's raw bytes, and those after it that were read to plan it, unless they are in the caller's slice. What
    /// follows them is of no meaning.
    raw: Vec<u8>,
    /// The block's record. What follows it is of no meaning.
    record: Vec<u8>,
    record_len: usize,
    done: Option<Result<BlockSummary>>,
}

impl Compressor {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Usage` when the options do not fit this machine, `Io` when it cannot start threads.
    pub fn new(o: &CompressOptions) -> Result<Self> {
        let isa = o.isa.map_or_else(Isa::detect, Ok)?;
        let level = o.level;
        let workers = Workers::new(o.threads, move || BlockEncoder::new(isa, level))?;
        Ok(Self { o: *o, workers, jobs: Vec::new() })
    }

    /// Compresses `raw` into `out`, which holds nothing else afterwards. A vector that is used again saves time: neither its memory nor
    /// its contents need to be made anew.
    ///
    /// # Errors
    /// `Limit` when the index would be too large for the format (many terabytes).
    pub fn compress_into(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Summary> {
        self.compress_delta_into(raw, &[], out)
    }

    /// [`Self::compress_into`] for a delta.
    ///
    /// # Errors
    /// Those of [`Self::compress_into`], and `Io` or `Base` when a base cannot be read.
    pub fn compress_delta_into(&mut self, raw: &[u8], bases: &[Base<'_>], out: &mut Vec<u8>) -> Result<Summary> {
        let layout = layout::detect(&mut &*raw, self.o.dtype)?;
        self.compress_layout_into(&raw, raw.len() as u64, layout, bases, Output::new(out))
    }

    /// [`Self::compress_delta_into`] for a file that is read at any offset: what of it is in memory ([`ReadAt::slice_at`]) is taken from
    /// there, and the rest is read by the thread that compresses it. The contents of `out`, zeros for example, serve as initialised memory.
    ///
    /// # Errors
    /// Those of [`Self::compress_delta_into`], and `Io` when reading fails, also when the file became shorter meanwhile.
    pub fn compress_delta_from_into(
        &mut self,
        src: &dyn ReadAt,
        bases: &[Base<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Summary> {
        let size = size_of_input(src)?;
        let layout = layout::detect(&mut Start::new(src, size, "the input"), self.o.dtype)?;
        self.compress_layout_into(src, size, layout, bases, Output::new(out))
    }

    /// [`Self::compress_delta_from_into`] for memory of the caller's, at the front of which the file is. [`compress_bound`] says how much is enough;
    /// where there is less, it is compressed elsewhere, and copied if there is room for it.
    ///
    /// # Errors
    /// Those of [`Self::compress_delta_from_into`], and `Limit` when there is no room for the file.
    pub fn compress_delta_from_to(&mut self, src: &dyn ReadAt, bases: &[Base<'_>], out: &mut [u8]) -> Result<Summary> {
        let room = out.len() as u64;
        let size = size_of_input(src)?;
        let layout = layout::detect(&mut Start::new(src, size, "the input"), self.o.dtype)?;
        let done = self.compress_layout_into(src, size, layout, bases, Output::to_slice(out))?;
        if done.compressed_size > room {
            let needed = done.compressed_size;
            return Err(Error::limit(format!("the output has room for {room} bytes, and the file has {needed}")));
        }
        Ok(done)
    }

    /// [`Self::compress_delta_into`] for bytes whose segments the caller knows: parts of files, tensors in memory. The segments
    /// cover `raw` in order; bases that are parts, too, are made with [`Base::of_segments`].
    ///
    /// # Errors
    /// Those of [`Self::compress_delta_into`], and `Usage` when the segments do not cover `raw`.
    pub fn compress_segments_into(
        &mut self,
        raw: &[u8],
        segments: &[Segment],
        bases: &[Base<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Summary> {
        let size = raw.len() as u64;
        self.compress_layout_into(&raw, size, Layout::of_segments(segments, size)?, bases, Output::new(out))
    }

    fn compress_layout_into(
        &mut self,
        src: &dyn ReadAt,
        size: u64,
        layout: Layout,
        bases: &[Base<'_>],
        mut out: Output<'_>,
    ) -> Result<Summary> {
        let own = Raw::new(src);
        let bases = self.for_call(bases);
        let Begun { mut cutter, layout, mut writer, start, origin } = self.begin(layout, Some(&own), &bases)?;
        out.extend(&start);
        let source = Source::File(src, &own);
        let mut written = Ok(());
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
        if self.workers.is_single() {
            // Blocks go straight into `out`.
            let Job { pieces, raw, .. } = &mut self.jobs[0];
            let mut next = 0;
            self.workers.with(|encoder| {
                while next < size && written.is_ok() {
                    written = (|| {
                        let len = cutter.next_block(src, size - next, pieces)?;
                        let block = source.load(next, len, raw, pieces)?;
                        writer.block(&encoder.encode(&block, &origin, &mut out)?);
                        next += len as u64;
                        Ok(())
                    })();
                }
            });
        } else {
            written = self.compress_blocks((src, &source), size, &mut cutter, &origin, &mut writer, &mut out);
        }
        let end = written.and_then(|()| writer.finish(&layout));
        if let Ok((end, _)) = &end {
            out.extend(end);
        }
        out.finish();
        Ok(end?.1)
    }

    /// Compresses the blocks of a file by all threads at once. Workers put their records into `out` themselves: a single thread that copies would
    /// be most of the time of two that compress.
    fn compress_blocks(
        &mut self,
        (src, source): (&dyn ReadAt, &Source<'_>),
        size: u64,
        cutter: &mut Cutter<'_>,
        origin: &dyn Origin,
        writer: &mut Writer,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut blocks = Vec::new();
        let (mut next, mut bound) = (0, 0);
        while next < size {
            let mut pieces = Vec::new();
            let len = cutter.next_block(src, size - next, &mut pieces)?;
            bound += BlockEncoder::bound(&pieces);
            blocks.push((next, len, pieces));
            next += len as u64;
        }
        let start = out.len();
        let tickets = AtomicUsize::new(0);
        let failed = Mutex::new(None::<(usize, Error)>);
        let turns = Turns::new((&mut *writer, out.grow(bound), 0usize), std::mem::take(&mut self.jobs));
        self.workers.each(|encoder| {
            let _watch = turns.watch();
            loop {
                let mut job = turns.free();
                let ticket = tickets.fetch_add(1, Ordering::Relaxed);
                let Some((offset, len, pieces)) = blocks.get(ticket) else { break turns.give_back(job) };
                let mut record = Output::new(&mut job.record);
                let block = source.load(*offset, *len, &mut job.raw, pieces);
                let done = block.and_then(|block| encoder.encode(&block, origin, &mut record));
                job.record_len = record.len();
                job.done = match done {
                    Ok(summary) => Some(Ok(summary)),
                    Err(e) => {
                        // What was begun before is finished: the earliest error is the one that counts.
                        tickets.fetch_max(blocks.len(), Ordering::Relaxed);
                        let mut failed = failed.lock().expect("no panic while it is held");
                        if failed.as_ref().is_none_or(|f| ticket < f.0) {
                            *failed = Some((ticket, e));
                        }
                        job.record_len = 0;
                        None
                    }
                };
                let due = turns.done(ticket, job, |(writer, rest, written), job| {
                    if let Some(Ok(summary)) = &job.done {
                        writer.block(summary);
                    }
                    *written += job.record_len;
                    rest.split_off_mut(..job.record_len).expect("no record is above its bound")
                });
                for (job, place) in due {
                    place.copy_from_slice(&job.record[..job.record_len]);
                    turns.give_back(job);
                }
            }
        });
        let ((_, _, written), jobs) = turns.into_inner();
        self.jobs = jobs;
        out.truncate(start + written);
        match failed.into_inner().expect("no panic while it is held") {
            None => Ok(()),
            Some((_, e)) => Err(e),
        }
    }

    pub(crate) fn begin<'m>(
        &self,
        layout: Layout,
        own: Option<&'m Raw<'m>>,
        bases: &'m [Base<'m>],
    ) -> Result<Begun<'m>> {
        Begun::new(&self.o, layout, own, bases, |b| b.info(&self.workers))
    }

    /// Bases that may be decoded as much as one call allows.
    pub(crate) fn for_call<'a>(&self, bases: &[Base<'a>]) -> Vec<Base<'a>> {
        let asked = bases.iter().fold(0u64, |n, b| n.saturating_add(b.raw_size()));
        let work = Arc::new(Work::new(self.o.max_work, asked));
        bases.iter().map(|b| b.for_call(&work)).collect()
    }

    pub(crate) fn options(&self) -> &CompressOptions {
        &self.o
    }

    pub(crate) fn workers(&self) -> &Workers<BlockEncoder> {
        &self.workers
    }

    /// Compresses a stream of unknown length to a stream, in bounded memory. `progress` is called with the number of
    /// raw bytes done so far.
    ///
    /// # Errors
    /// `Io` when reading or writing fails. What was written by then is not a valid file.
    pub fn compress_stream(
        &mut self,
        src: &mut dyn Read,
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        self.compress_delta_stream(src, &[], dst, progress)
    }

    /// [`Self::compress_stream`] for a delta.
    ///
    /// # Errors
    /// Those of [`Self::compress_stream`], and `Io` or `Base` when a base cannot be read.
    pub fn compress_delta_stream(
        &mut self,
        src: &mut dyn Read,
        bases: &[Base<'_>],
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let mut source = Stream::new(src);
        let layout = layout::detect(&mut source, self.o.dtype)?;
        let bases = self.for_call(bases);
        let Begun { mut cutter, layout, mut writer, start, origin } = self.begin(layout, None, &bases)?;
        write(dst, &start)?;
        let mut next = 0;
        self.run(
            &Source::Buffered,
            &origin,
            &mut writer,
            |job| {
                let ahead = source.fill(&mut job.raw, cutter.lookahead() as usize)?;
                job.len = 0;
                if !ahead.is_empty() {
                    let window = Window { offset: next, bytes: ahead };
                    job.len = cutter.next_block(&window, ahead.len() as u64, &mut job.pieces)?;
                    next += job.len as u64;
                    source.put_back(&ahead[job.len..]);
                }
                Ok(job.len > 0)
            },
            |record| write(dst, record),
            progress,
        )?;
        finish(writer, &layout, dst)
    }

    /// Compresses a file that is read at any offset, by all threads at once. `progress` is called with the number of
    /// raw bytes done so far.
    ///
    /// # Errors
    /// `Io` when reading or writing fails, also when the source became shorter meanwhile. What was written by then is
    /// not a valid file.
    pub fn compress_from(
        &mut self,
        src: &dyn ReadAt,
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        self.compress_delta_from(src, &[], dst, progress)
    }

    /// [`Self::compress_from`] for a delta.
    ///
    /// # Errors
    /// Those of [`Self::compress_from`], and `Io` or `Base` when a base cannot be read.
    pub fn compress_delta_from(
        &mut self,
        src: &dyn ReadAt,
        bases: &[Base<'_>],
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let size = size_of_input(src)?;
        let layout = layout::detect(&mut Start::new(src, size, "the input"), self.o.dtype)?;
        let own = Raw::new(src);
        let bases = self.for_call(bases);
        let Begun { mut cutter, layout, mut writer, start, origin } = self.begin(layout, Some(&own), &bases)?;
        write(dst, &start)?;
        let mut next = 0;
        self.run(
            &Source::File(src, &own),
            &origin,
            &mut writer,
            |job| {
                if next == size {
                    return Ok(false);
                }
                job.len = cutter.next_block(src, size - next, &mut job.pieces)?;
                job.offset = next;
                next += job.len as u64;
                Ok(true)
            },
            |record| write(dst, record),
            progress,
        )?;
        finish(writer, &layout, dst)
    }

    /// Plans blocks with `plan` (false at the end), loads and encodes them in parallel, and emits them in order.
    fn run(
        &mut self,
        source: &Source<'_>,
        origin: &dyn Origin,
        writer: &mut Writer,
        mut plan: impl FnMut(&mut Job) -> Result<bool>,
        mut emit: impl FnMut(&[u8]) -> Result<()>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.jobs.resize_with(self.workers.in_flight(), Job::default);
        self.workers.ordered(
            &mut self.jobs,
            |job| Ok(plan(job)?.then_some(2 * job.len)),
            |encoder, job| {
                let mut record = Output::new(&mut job.record);
                let block = source.load(job.offset, job.len, &mut job.raw, &job.pieces);
                job.done = Some(block.and_then(|block| encoder.encode(&block, origin, &mut record)));
                job.record_len = record.len();
            },
            |job| {
                writer.block(&job.done.take().expect("the worker is done")?);
                emit(&job.record[..job.record_len])?;
                progress(writer.raw());
                Ok(())
            },
        )
    }
}

/// Where workers find the raw bytes of a block.
enum Source<'a> {
    File(&'a dyn ReadAt, &'a Raw<'a>),
    /// In the job's own buffer, read by the calling thread.
    Buffered,
}

impl Source<'_> {
    fn load<'j>(&'j self, offset: u64, len: usize, buf: &'j mut Vec<u8>, pieces: &'j [Piece]) -> Result<RawBlock<'j>> {
        match self {
            Source::File(src, own) => {
                let reading = own.begin(offset);
                let block = match src.slice_at(offset, len) {
                    Some(block) => RawBlock::new(block, pieces),
                    None => RawBlock::read(*src, offset, scratch(buf, len), pieces)?,
                };
                reading.into_iter().for_each(|r| r.done(&block));
                Ok(block)
            }
            Source::Buffered => Ok(RawBlock::new(&buf[..len], pieces)),
        }
    }
}

fn size_of_input(src: &dyn ReadAt) -> Result<u64> {
    src.size().map_err(|e| Error::io("cannot tell the size of the input", e))
}

fn finish(writer: Writer, layout: &Layout, dst: &mut dyn Write) -> Result<Summary> {
    let (end, summary) = writer.finish(layout)?;
    write(dst, &end)?;
    dst.flush().map_err(|e| Error::io("cannot write the output", e))?;
    Ok(summary)
}

fn write(dst: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    dst.write_all(bytes).map_err(|e| Error::io("cannot write the output", e))
}
