//! A [`Write`] that compresses.

use std::io::{self, Write};

use crate::Summary;
use crate::api::compress::{Ahead, Compressor, Loader, write};
use crate::file::hashing::StreamHasher;
use crate::file::session::EncodeSession;
use crate::settings::options::CompressOptions;
use lmc_layout::Prefix;
use lmc_layout::error::{Error, Result};

/// Bytes collected before blocks are encoded, per job, so that all threads have work.
const BATCH: usize = 2 << 20;

/// Compresses the bytes written to it, and writes the file to another stream.
///
/// The file is that of [`Compressor::compress`] for a stream without bases, however the bytes are split into writes. Memory is bounded: a
/// few MiB of read-ahead, and a few MiB per thread.
///
/// [`Encoder::finish`] writes the rest and the end of the file: without it, as after an error, the output is not a valid file.
/// Dropping an encoder writes nothing.
///
/// ```
/// use std::io::Write;
/// use lmc::{CompressOptions, DecompressOptions, Encoder};
/// let mut encoder = Encoder::new(Vec::new(), &CompressOptions::default())?;
/// for part in [&b"some bytes"[..], b" and", b" some more"] {
///     encoder.write_all(part)?;
/// }
/// let (file, summary) = encoder.finish()?;
/// assert_eq!(summary.compressed_size, file.len() as u64);
/// assert_eq!(lmc::decompress(&file, &DecompressOptions::default())?, b"some bytes and some more");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Encoder<W: Write> {
    inner: W,
    compressor: Compressor,
    ahead: Ahead,
    state: State,
    /// Hashes all bytes, if a digest is wanted.
    hasher: Option<StreamHasher>,
}

enum State {
    /// The layout is detected once this many bytes, or all, are in the buffer.
    Beginning(usize),
    Blocks(Box<EncodeSession<'static>>),
    Failed,
}

impl<W: Write> Encoder<W> {
    /// Starts the threads. Nothing is written yet.
    ///
    /// # Errors
    /// `Usage` when the options do not fit this machine.
    pub fn new(inner: W, o: &CompressOptions) -> Result<Self> {
        let compressor = Compressor::new(o)?;
        let hasher = o.digest.then(StreamHasher::default);
        Ok(Self { inner, compressor, ahead: Ahead::default(), state: State::Beginning(1), hasher })
    }

    /// The stream that the file is written to.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// Compresses the rest, and writes the end of the file; returns the flushed stream, and sizes and hash.
    ///
    /// # Errors
    /// `Io` when writing fails, `Limit` when the index would be too large for the format (many terabytes), `Usage` when an earlier call
    /// failed.
    pub fn finish(mut self) -> Result<(W, Summary)> {
        self.advance(true)?;
        let State::Blocks(session) = self.state else { return Err(failed_before()) };
        let encoders = self.compressor.encoders();
        let summary = encoders.finish(session.writer, &session.layout, &mut self.inner)?;
        Ok((self.inner, summary))
    }

    /// Bytes in the buffer from which on blocks are encoded.
    fn due(&self) -> usize {
        match &self.state {
            State::Beginning(bytes) => *bytes,
            State::Blocks(session) => {
                let more = self.compressor.workers().in_flight() - 1;
                session.cutter.lookahead() as usize + more * BATCH
            }
            State::Failed => 0,
        }
    }

    /// Compresses as many blocks as can be planned with the bytes in the buffer; all, if no more bytes follow. After an error the encoder
    /// fails for good.
    fn advance(&mut self, ended: bool) -> Result<()> {
        let state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Beginning(_) => self.begin(ended)?,
            state => state,
        };
        self.state = match state {
            State::Blocks(session) => State::Blocks(self.blocks(session, ended)?),
            State::Beginning(_) => state,
            State::Failed => return Err(failed_before()),
        };
        Ok(())
    }

    /// Begins the file, if there are enough bytes to detect its layout.
    fn begin(&mut self, ended: bool) -> Result<State> {
        let mut beginning = Beginning { bytes: self.ahead.bytes(), ended, wanted: None };
        let layout = lmc_layout::detect(&mut beginning, self.compressor.options().dtype)?;
        if let Some(wanted) = beginning.wanted {
            return Ok(State::Beginning(wanted));
        }
        let mut session = self.compressor.begin(layout, None, &[])?;
        session.writer.set_own_digest(self.hasher.as_ref().map(StreamHasher::digest));
        write(&mut self.inner, &session.start)?;
        Ok(State::Blocks(Box::new(session)))
    }

    fn blocks(&mut self, mut session: Box<EncodeSession<'static>>, ended: bool) -> Result<Box<EncodeSession<'static>>> {
        let EncodeSession { cutter, writer, origin, .. } = &mut *session;
        let ahead = &mut self.ahead;
        self.compressor.encoders().blocks(
            &Loader::Buffered,
            origin,
            |job| {
                let enough = ended || ahead.len() >= cutter.lookahead() as usize;
                Ok(enough && ahead.next_block(cutter, job)?)
            },
            |block, record| {
                writer.block(block);
                write(&mut self.inner, record)
            },
        )?;
        Ok(session)
    }
}

impl<W: Write> Write for Encoder<W> {
    /// Takes bytes, and compresses blocks when it is time.
    ///
    /// # Errors
    /// Those of writing; the source of any other is an [`Error`](crate::Error) of this crate.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.state, State::Failed) {
            return Err(failed_before().into());
        }
        // The buffer holds fewer bytes than it waits for: there is room for at least one.
        let n = bytes.len().min(self.due().max(BATCH) - self.ahead.len());
        self.ahead.room().extend_from_slice(&bytes[..n]);
        if let Some(hasher) = &self.hasher {
            hasher.update(&bytes[..n]);
        }
        if self.ahead.len() >= self.due() {
            self.advance(false)?;
        }
        Ok(n)
    }

    /// Flushes the stream that the file is written to. Bytes that are not in a block yet stay buffered: flushing does not end a block.
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The beginning of a file, as far as it was written.
struct Beginning<'a> {
    bytes: &'a [u8],
    /// No more bytes follow.
    ended: bool,
    /// Requested bytes that may still arrive.
    wanted: Option<usize>,
}

impl Prefix for Beginning<'_> {
    fn get(&mut self, n: usize) -> Result<&[u8]> {
        if n > self.bytes.len() && !self.ended {
            self.wanted.get_or_insert(n);
        }
        Ok(&self.bytes[..n.min(self.bytes.len())])
    }
}

fn failed_before() -> Error {
    Error::usage("an earlier write failed: the file cannot be completed")
}

impl<W: Write + std::fmt::Debug> std::fmt::Debug for Encoder<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("inner", &self.inner).finish_non_exhaustive()
    }
}
