//! Decompression. There are two drivers: [`indexed`] for files that can be read at any offset, and are restored to memory or to a file that
//! is written at any offset; [`streaming`] for everything else, front to back.

mod buffers;
mod indexed;
mod streaming;

use std::io::{self, Read};

use crate::Summary;
use crate::api::sink::{Sink, To};
use crate::api::source::{Input, Source};
use crate::block::decode::BlockDecoder;
use crate::file::hashing::{Comparison, compare_bases};
use crate::file::open::Opened;
use crate::format::digests::RawDigest;
use crate::refs::base::{Base, presumed, resolve};
use crate::refs::workers;
use crate::settings::limits::DecodeLimits;
use crate::settings::options::DecompressOptions;
use lmc_kernels::isa::Isa;
use lmc_layout::error::{Error, ErrorKind, Result};
use lmc_layout::io::{ReadAt, zeroed};
use lmc_pool::Workers;

pub(crate) use buffers::Buffers;
use indexed::{Place, Whole};
pub(crate) use streaming::Front;

/// Restores a file in memory.
///
/// A small file can restore to terabytes: set [`DecodeLimits::max_raw_size`](crate::DecodeLimits::max_raw_size) for
/// files of unknown origin.
///
/// ```
/// let file = lmc::compress(&[7; 1000], &lmc::CompressOptions::default())?;
/// assert_eq!(lmc::decompress(&file, &lmc::DecompressOptions::default())?, [7; 1000]);
/// # Ok::<(), lmc::Error>(())
/// ```
///
/// # Errors
/// * `Damaged` or `Unsupported` if `file` is not a whole `.lmc` file that this version can read.
/// * `Limit` when it is larger than the limits or than memory.
/// * `Base` when it is a delta: [`Decompressor::decompress`] restores those.
/// * `Usage` when the options do not fit this machine.
pub fn decompress(file: &[u8], o: &DecompressOptions) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    Decompressor::new(o)?.decompress(file, &[], &mut out)?;
    Ok(out)
}

/// Resizes a vector to `len` bytes with arbitrary contents; allocates only if its capacity is too small.
fn resize(bytes: &mut Vec<u8>, len: u64) -> Result<&mut [u8]> {
    if bytes.capacity() as u64 >= len {
        bytes.resize(len as usize, 0);
    } else {
        *bytes = Vec::new();
        *bytes = zeroed(len)?;
    }
    Ok(bytes)
}

/// Restores files with one pool of threads and one set of buffers.
///
/// Restoring checks every block, the index, the trailer and the content hash. After an error the output is invalid.
///
/// A delta needs the bases that it was made from, in any order. They are identified by their hashes. These are computed before anything is
/// written, unless [`Base::with_hash`] sets them, or the bases are not in immutable memory, and one of each size is given: then they are hashed
/// while they are read, and compared at the end. A base that the file was not made from is an error, unless it is
/// [optional](Base::optional).
pub struct Decompressor {
    o: DecompressOptions,
    workers: Workers<BlockDecoder>,
    buffers: Vec<Buffers>,
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor").field("options", &self.o).finish_non_exhaustive()
    }
}

impl Decompressor {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Usage` when the options do not fit this machine.
    pub fn new(o: &DecompressOptions) -> Result<Self> {
        Ok(Self { o: *o, workers: workers(o)?, buffers: Vec::new() })
    }

    /// Raw size of a file in bytes, from its trailer and index.
    ///
    /// # Errors
    /// Those of [`decompress`], as far as they concern header, index and trailer.
    pub fn raw_size(file: &[u8]) -> Result<u64> {
        Ok(Opened::open(&file, &DecodeLimits::default())?.index.raw_size)
    }

    /// Restores `src`, which needs `bases` if it is a delta, to `dst`.
    ///
    /// From a positional source to memory or to a [`WriteAt`](crate::WriteAt), all threads decode blocks in place. Otherwise the file is
    /// restored front to back, and index and trailer are checked at the end, and that nothing follows. Memory besides source and sink is
    /// bounded.
    ///
    /// Blocks that depend on earlier ones of the same file read these from the slice, or with
    /// [`WriteAt::read_back`](crate::WriteAt::read_back) (or decode them once more, where that is not supported). A file that is restored
    /// front to back is also written to an unnamed temporary file in the system's temporary directory.
    ///
    /// Cryptographic digests in the file ([`CompressOptions::digest`](crate::CompressOptions::digest)) are compared: those of bases always,
    /// that of the raw bytes unless they go from one stream to another, or to a [`WriteAt`](crate::WriteAt), where they are gone when it is
    /// read. A positional source with digests is restored front to back to a [`WriteAt`](crate::WriteAt), too.
    ///
    /// ```
    /// use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor};
    /// # let (old, new) = (vec![1; 1000], vec![1; 1001]);
    /// let bases = [Base::new(&old)?];
    /// let mut delta = Vec::new();
    /// Compressor::new(&CompressOptions::default())?.compress(&new, &bases, &mut delta)?;
    /// let mut restored = Vec::new();
    /// Decompressor::new(&DecompressOptions::default())?.decompress(&delta, &bases, &mut restored)?;
    /// assert_eq!(restored, new);
    /// # Ok::<(), lmc::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Damaged` or `Unsupported` if `src` is not a whole `.lmc` file that this version can read.
    /// * `Limit` when it is larger than the limits or than memory.
    /// * `Base` when a base is missing, is another file or is not needed; `Io` or `Base` when one cannot be read.
    /// * `Io` when reading or writing fails. Blocks before an error have been written.
    /// * `Usage` when a slice does not have the raw size of the file.
    pub fn decompress<'s, 'd>(
        &mut self,
        src: impl Into<Source<'s>>,
        bases: &[Base<'_>],
        dst: impl Into<Sink<'d>>,
    ) -> Result<Summary> {
        let Source { input, progress, .. } = src.into();
        let mut silent = |_| ();
        let progress = progress.unwrap_or(&mut silent);
        let dst = dst.into().0;
        let src = match input {
            Input::Stream(src) => return self.decompress_front(src, None, bases, dst, progress),
            Input::Slice(ref src) => src as &dyn ReadAt,
            Input::At(src) => src,
        };
        let opened = Opened::open_whole(src, &self.o.limits)?;
        let comparison = Comparison::of(&opened.digests, 0);
        match dst {
            To::At(file) if comparison.is_none() => {
                self.decompress_whole(src, &opened, bases, |_| Ok(Place::At(file)), progress)
            }
            // Its bytes are hashed in order.
            To::Stream(_) | To::At(_) => {
                self.decompress_front(&mut FromStart::new(src)?, Some(&opened.digests), bases, dst, progress)
            }
            To::Vec(memory) => {
                let room = &mut *memory;
                let done =
                    self.decompress_whole(src, &opened, bases, |size| resize(room, size).map(Place::Slice), progress)?;
                compare(memory, comparison).map(|()| done)
            }
            To::Slice(memory) => {
                let room = &mut *memory;
                let done =
                    self.decompress_whole(src, &opened, bases, |size| exactly(room, size).map(Place::Slice), progress)?;
                compare(memory, comparison).map(|()| done)
            }
        }
    }

    /// `digests`: those of the file, if they are known.
    fn decompress_front(
        &mut self,
        src: &mut dyn Read,
        digests: Option<&[RawDigest]>,
        bases: &[Base<'_>],
        mut dst: To<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let mut front = Front::open(src, self.o.limits)?;
        front.resolve(bases, &self.workers)?;
        let comparison = digests.and_then(|digests| Comparison::of(digests, 0));
        if let Some(digests) = digests {
            front.compare_bases(digests)?;
        }
        if let To::Vec(bytes) = &mut dst {
            bytes.clear();
        }
        let put = |raw: &[u8], at| dst.put(raw, at);
        let (done, left) = front.decode_all(&self.workers, &mut self.buffers, put, comparison, progress)?;
        match dst {
            To::Slice(bytes) if bytes.len() as u64 > done.raw_size => {
                return Err(wrong_len(done.raw_size, bytes.len()));
            }
            To::Slice(bytes) => compare(bytes, left)?,
            To::Vec(bytes) => compare(bytes, left)?,
            To::Stream(stream) => stream.flush().map_err(Error::cannot_write)?,
            To::At(_) => {}
        }
        Ok(done)
    }

    /// `place` returns the destination of this many raw bytes.
    fn decompress_whole<'o>(
        &mut self,
        src: &dyn ReadAt,
        opened: &Opened,
        bases: &[Base<'_>],
        place: impl FnOnce(u64) -> Result<Place<'o>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let wanted = &opened.sources.bases;
        let presumed = presumed(wanted, bases);
        let resolved;
        let found = match &presumed {
            Some(presumed) => &presumed.found,
            None => {
                resolved = resolve(wanted, bases, &self.workers)?;
                &resolved
            }
        };
        let place = place(opened.index.raw_size)?;
        let max_work = self.o.limits.max_work;
        compare_bases(&opened.digests, found)?;
        let whole = Whole { src, opened, bases: found, max_work };
        let done = whole.decode(&self.workers, &mut self.buffers, place, progress);
        // A wrong base explains damage, but no failure to read or write: after such a failure, the rest of the base is
        // not read.
        let may_be_wrong = |e: &Error| matches!(e.kind(), ErrorKind::Damaged | ErrorKind::Base);
        if let Some(presumed) = presumed
            && done.as_ref().err().is_none_or(may_be_wrong)
        {
            presumed.check(wanted, bases, &self.workers)?;
        }
        done
    }
}

/// The threads of a decompressor.
pub(crate) fn workers(o: &DecompressOptions) -> Result<Workers<BlockDecoder>> {
    let isa = o.isa.map_or_else(Isa::detect, Ok)?;
    Ok(workers::workers(o.threads, move || BlockDecoder::new(isa)))
}

/// A positional source as a stream.
struct FromStart<'a> {
    file: &'a dyn ReadAt,
    at: u64,
    size: u64,
}

impl<'a> FromStart<'a> {
    fn new(file: &'a dyn ReadAt) -> Result<Self> {
        let size = file.size().map_err(|e| Error::io("cannot get the size of the file", e))?;
        Ok(Self { file, at: 0, size })
    }
}

impl Read for FromStart<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (self.size - self.at).min(buf.len() as u64) as usize;
        self.file.read_exact_at(&mut buf[..n], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Compares all raw bytes with the digests of the file.
fn compare(raw: &[u8], comparison: Option<Comparison>) -> Result<()> {
    let Some(mut comparison) = comparison else { return Ok(()) };
    comparison.update(raw);
    comparison.finish("")
}

/// Checks that the memory has `len` bytes.
fn exactly(memory: &mut [u8], len: u64) -> Result<&mut [u8]> {
    if memory.len() as u64 == len { Ok(memory) } else { Err(wrong_len(len, memory.len())) }
}

fn wrong_len(raw_size: u64, room: usize) -> Error {
    Error::usage(format!("the file restores to {raw_size} bytes, and the output has room for {room}"))
}

#[cfg(test)]
mod tests;
