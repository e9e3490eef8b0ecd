//! A [`Read`] that restores a compressed stream.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use crate::Summary;
use crate::api::decompress::{Buffers, Front, workers};
use crate::block::decode::BlockDecoder;
use crate::format::bases::BaseInfo;
use crate::refs::base::Base;
use crate::settings::options::DecompressOptions;
use lmc_layout::error::{Error, Result};
use lmc_pool::Workers;

/// Bytes decoded in one batch, per job, so that all threads have work.
const BATCH: usize = 1 << 20;

/// Reads a compressed file from another stream, front to back, and returns its raw bytes.
///
/// The checks are those of [`Decompressor::decompress`](crate::Decompressor::decompress). A block is returned once it is decoded
/// and its digest checked. The end is reported only after index, trailer and content hash were checked, and nothing follows in the other
/// stream: the bytes before an error are not the whole file.
///
/// Memory is bounded: a few MiB per thread, for files that this library wrote. If blocks depend on earlier ones of the same file, the raw
/// bytes are kept in an unnamed temporary file in the system's temporary directory.
///
/// ```
/// use std::io::Read;
/// use lmc::{CompressOptions, Decoder, DecompressOptions};
/// let file = lmc::compress(b"some bytes", &CompressOptions::default())?;
/// let mut decoder = Decoder::new(&file[..], &DecompressOptions::default())?;
/// let mut raw = Vec::new();
/// decoder.read_to_end(&mut raw)?;
/// assert_eq!(raw, b"some bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Decoder<'b, R: Read> {
    front: Front<'b, R>,
    workers: Workers<BlockDecoder>,
    buffers: Vec<Buffers>,
    state: State,
    /// Decoded blocks, and the number of bytes read of the first one.
    ready: VecDeque<Vec<u8>>,
    pos: usize,
    /// Free buffers.
    free: Vec<Vec<u8>>,
}

enum State {
    /// Bases can still be given.
    Begun,
    Blocks,
    Ended(Summary),
    /// The error, until it is reported.
    Failed(Option<Error>),
}

impl<'b, R: Read> Decoder<'b, R> {
    /// Starts the threads, and reads the records before the blocks.
    ///
    /// # Errors
    /// * `Damaged` or `Unsupported` if the stream does not begin as a `.lmc` file that this version can read, `Limit` when it has too many
    ///   bases.
    /// * `Io` when reading fails, `Usage` when the options do not fit this machine.
    pub fn new(inner: R, o: &DecompressOptions) -> Result<Self> {
        let workers = workers(o)?;
        Ok(Self {
            front: Front::open(inner, o.limits)?,
            workers,
            buffers: Vec::new(),
            state: State::Begun,
            ready: VecDeque::new(),
            pos: 0,
            free: Vec::new(),
        })
    }

    /// Gives a delta its bases, in any order, before anything is read. Their hashes are checked against those that the file names.
    ///
    /// # Errors
    /// `Base` when one is missing, is another file or is not needed; `Io` or `Base` when one cannot be read; `Usage` when bytes were read.
    pub fn with_bases(mut self, bases: Vec<Base<'b>>) -> Result<Self> {
        if !matches!(self.state, State::Begun) {
            return Err(Error::usage("bases are given before anything is read"));
        }
        self.front.resolve(&bases, &self.workers)?;
        self.state = State::Blocks;
        Ok(self)
    }

    /// The bases that a delta needs to be restored; none for any other file.
    pub fn bases(&self) -> &[BaseInfo] {
        self.front.wanted()
    }

    /// Sizes and hash of the file; `None` until all of it is read.
    pub fn summary(&self) -> Option<Summary> {
        let ready: usize = self.ready.iter().map(Vec::len).sum();
        match self.state {
            State::Ended(summary) if ready == self.pos => Some(summary),
            _ => None,
        }
    }

    /// Decodes the next blocks, or checks the end.
    fn advance(&mut self) -> Result<State> {
        if matches!(self.state, State::Begun) {
            self.front.resolve(&[], &self.workers)?;
        }
        let enough = if self.workers.is_single() { 1 } else { self.workers.in_flight() * BATCH };
        let (ready, free) = (&mut self.ready, &mut self.free);
        self.front.decode(&self.workers, &mut self.buffers, enough, |raw| {
            ready.push_back(std::mem::replace(raw, free.pop().unwrap_or_default()));
            Ok(())
        })?;
        if self.front.is_at_end() { self.front.finish().map(State::Ended) } else { Ok(State::Blocks) }
    }
}

impl<R: Read> BufRead for Decoder<'_, R> {
    /// # Errors
    /// An [`Error`](crate::Error) of this crate as its source: those of [`Decompressor::decompress`](crate::Decompressor::decompress).
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.ready.front().is_none_or(|raw| raw.len() <= self.pos) {
            self.free.extend(self.ready.pop_front());
            self.pos = 0;
            if !self.ready.is_empty() {
                continue;
            }
            match &mut self.state {
                State::Ended(_) => return Ok(&[]),
                State::Failed(e) => {
                    let e = e.take().unwrap_or_else(|| Error::usage("an earlier read failed: nothing follows"));
                    return Err(e.into());
                }
                State::Begun | State::Blocks => self.state = self.advance().unwrap_or_else(|e| State::Failed(Some(e))),
            }
        }
        Ok(&self.ready[0][self.pos..])
    }

    fn consume(&mut self, n: usize) {
        self.pos += n;
    }
}

impl<R: Read> Read for Decoder<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let bytes = self.fill_buf()?;
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl<R: Read> std::fmt::Debug for Decoder<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("bases", &self.bases())
            .field("summary", &self.summary())
            .finish_non_exhaustive()
    }
}
