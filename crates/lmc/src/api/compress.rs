//! Compression. There are two drivers: [`direct`] compresses positional sources to memory, where its workers write the blocks themselves;
//! [`ordered`] does everything else.

mod ahead;
mod direct;
mod jobs;
mod ordered;
pub(crate) mod with_and_without_bases;

use std::io::Write;
use std::sync::Arc;

use crate::Summary;
use crate::api::sink::{InOrder, Sink, To};
use crate::api::source::{Input, Source};
use crate::block::encode::BlockEncoder;
use crate::block::output::Output;
use crate::file::hashing::{StreamHasher, beside};
use crate::file::origin::Raw;
use crate::file::session::EncodeSession;
use crate::refs::base::Base;
use crate::refs::work::Work;
use crate::refs::workers::workers;
use crate::settings::options::CompressOptions;
use lmc_kernels::isa::Isa;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::ReadAt;
use lmc_layout::segment::Segment;
use lmc_layout::{Layout, Start};
use lmc_pool::Workers;

pub(crate) use ahead::Ahead;
use ahead::Stream;
use jobs::Encoders;
pub(crate) use jobs::Loader;
pub(crate) use ordered::write;

/// Compresses a file in memory.
///
/// ```
/// let raw = vec![7; 1000];
/// let file = lmc::compress(&raw, &lmc::CompressOptions::default())?;
/// assert!(file.len() < raw.len());
/// # Ok::<(), lmc::Error>(())
/// ```
///
/// # Errors
/// `Usage` when the options do not fit this machine.
pub fn compress(raw: &[u8], o: &CompressOptions) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    Compressor::new(o)?.compress(raw, &[], &mut out)?;
    Ok(out)
}

/// Upper bound of the size of `raw_size` compressed bytes, without names of bases and of [segments](Source::segments) that the caller gives:
/// the room that [`Compressor::compress`] needs in a slice.
pub fn compress_bound(raw_size: u64) -> u64 {
    raw_size.saturating_add(raw_size / 512 + (1 << 16))
}

/// Compresses files with one pool of threads and one set of buffers.
///
/// The output depends on the raw file and the bases only, not on kinds of source and sink or the number of threads; except that no tensor of
/// a stream is predicted from an earlier one, whose bytes are gone, and that its tensors are found only if its beginning describes them.
///
/// A *delta* is a file that is predicted from others, its *bases*: earlier snapshots of the same model. Tensors are matched
/// by name, shape and dtype, then by content, so that renamed, converted and resized ones are matched; of several matches in
/// several bases (the shards of a checkpoint) the first one is used. The file names the bases that it needs by their content hashes, and
/// they are needed to restore it. A file that has nothing in common with any base is no delta, and needs none.
pub struct Compressor {
    o: CompressOptions,
    encoders: Encoders,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("options", &self.o).finish_non_exhaustive()
    }
}

impl Compressor {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Usage` when the options do not fit this machine.
    pub fn new(o: &CompressOptions) -> Result<Self> {
        let isa = o.isa.map_or_else(Isa::detect, Ok)?;
        let level = o.level;
        let workers = workers(o.threads, move || BlockEncoder::new(isa, level));
        Ok(Self { o: *o, encoders: Encoders::new(workers) })
    }

    /// Compresses `src` to `dst`, as a delta if there are bases.
    ///
    /// Memory besides source and sink is bounded. Parts of the source that are in memory ([`ReadAt::slice_at`]) are not copied; a stream is
    /// read ahead by a few MiB.
    ///
    /// ```
    /// use lmc::{Base, CompressOptions, Compressor};
    /// let old: Vec<u8> = (0..100_000u32).flat_map(|i| (i as f32).sqrt().to_le_bytes()).collect();
    /// let new: Vec<u8> = (0..100_000u32).flat_map(|i| (i as f32 * 1.00001).sqrt().to_le_bytes()).collect();
    /// let mut compressor = Compressor::new(&CompressOptions::default())?;
    /// let mut delta = Vec::new();
    /// let done = compressor.compress(&new, &[Base::new(&old[..])?], &mut delta)?;
    /// assert_eq!((done.raw_size, done.compressed_size), (new.len() as u64, delta.len() as u64));
    /// # Ok::<(), lmc::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Io` when reading or writing fails, also when the source became shorter meanwhile. The output is then not a valid file.
    /// * `Io` or `Base` when a base cannot be read.
    /// * `Limit` when the index would be too large for the format (many terabytes), or the file does not fit a slice.
    /// * `Usage` when [segments](Source::segments) do not cover the source, or when one is invalid.
    pub fn compress<'s, 'd>(
        &mut self,
        src: impl Into<Source<'s>>,
        bases: &[Base<'_>],
        dst: impl Into<Sink<'d>>,
    ) -> Result<Summary> {
        let src = src.into();
        match dst.into().0 {
            To::Vec(bytes) => self.compress_to_memory(src, bases, Output::new(bytes)),
            To::Slice(bytes) => {
                let room = bytes.len() as u64;
                let done = self.compress_to_memory(src, bases, Output::to_slice(bytes))?;
                if done.compressed_size > room {
                    let needed = done.compressed_size;
                    let e = format!("the output has room for {room} bytes, and the file has {needed}");
                    return Err(Error::limit(e));
                }
                Ok(done)
            }
            To::Stream(stream) => self.compress_in_order(src, bases, stream),
            To::At(file) => {
                let done = self.compress_in_order(src, bases, &mut InOrder::new(file))?;
                file.write_all_at(&done.header(), 0).map_err(Error::cannot_write)?;
                Ok(done)
            }
        }
    }

    fn compress_to_memory(&mut self, src: Source<'_>, bases: &[Base<'_>], mut out: Output<'_>) -> Result<Summary> {
        // The calling thread reports progress; the direct driver does not use it.
        let done = match (src.input.positional(), &src.progress) {
            (Some(raw), None) => {
                let (size, layout) = self.layout(raw, src.segments)?;
                let (own, bases) = (Raw::new(raw), self.for_call(bases));
                let mut session = self.begin(layout, Some(&own), &bases)?;
                beside(self.o.digest, raw, size, |digest| {
                    session.writer.set_own_digest(digest);
                    self.encoders.direct((raw, &own), size, session, &mut out)
                })
            }
            _ => self.compress_in_order(src, bases, &mut out),
        };
        if let Ok(summary) = &done {
            out.replace(0, &summary.header());
        }
        out.finish();
        done
    }

    fn compress_in_order(&mut self, src: Source<'_>, bases: &[Base<'_>], dst: &mut dyn Write) -> Result<Summary> {
        let Source { input, segments, progress } = src;
        let mut silent = |_| ();
        let progress = progress.unwrap_or(&mut silent);
        let bases = self.for_call(bases);
        let src = match input {
            Input::Stream(stream) => {
                let hasher = self.o.digest.then(StreamHasher::default);
                let mut stream = Stream::new(stream, hasher.clone());
                let layout = lmc_layout::detect(&mut stream, self.o.dtype)?;
                let mut session = self.begin(layout, None, &bases)?;
                session.writer.set_own_digest(hasher.map(|h| h.digest()));
                let encoders = &mut self.encoders;
                return encoders.ordered(&Loader::Buffered, session, |c, job| stream.next_block(c, job), dst, progress);
            }
            Input::Slice(ref bytes) => bytes as &dyn ReadAt,
            Input::At(file) => file,
        };
        let (size, layout) = self.layout(src, segments)?;
        let own = Raw::new(src);
        let mut session = self.begin(layout, Some(&own), &bases)?;
        let mut at = 0;
        let loader = Loader::File(src, &own);
        beside(self.o.digest, src, size, |digest| {
            session.writer.set_own_digest(digest);
            self.encoders.ordered(&loader, session, |c, job| job.plan(src, size, &mut at, c), dst, progress)
        })
    }

    /// Size and layout of a source; `given`: its segments, if the caller knows them.
    fn layout(&self, src: &dyn ReadAt, given: Option<&[Segment]>) -> Result<(u64, Layout)> {
        let size = src.size().map_err(|e| Error::io("cannot get the size of the input", e))?;
        let layout = match given {
            Some(segments) => Layout::of_segments(segments, size)?,
            None => lmc_layout::detect(&mut Start::new(src, size, "the input"), self.o.dtype)?,
        };
        Ok((size, layout))
    }

    pub(crate) fn begin<'m>(
        &self,
        layout: Layout,
        own: Option<&'m Raw<'m>>,
        bases: &'m [Base<'m>],
    ) -> Result<EncodeSession<'m>> {
        EncodeSession::new(&self.o, layout, own, bases, |b| b.info(self.workers()))
    }

    /// The bases for one call, with its limit of work.
    pub(crate) fn for_call<'a>(&self, bases: &[Base<'a>]) -> Vec<Base<'a>> {
        let asked = bases.iter().fold(0u64, |n, b| n.saturating_add(b.raw_size()));
        let work = Arc::new(Work::new(self.o.max_work, asked));
        bases.iter().map(|b| b.for_call(&work)).collect()
    }

    pub(crate) fn options(&self) -> &CompressOptions {
        &self.o
    }

    pub(crate) fn workers(&self) -> &Workers<BlockEncoder> {
        &self.encoders.workers
    }

    pub(crate) fn encoders(&mut self) -> &mut Encoders {
        &mut self.encoders
    }
}
