//! Destinations of compressors and decompressors.

use std::io::{self, Write};

use lmc_layout::error::{Error, Result};
use lmc_layout::io::WriteAt;

/// Destination of [`Compressor::compress`](crate::Compressor::compress) and [`Decompressor::decompress`](crate::Decompressor::decompress):
/// a vector, a slice, a stream, or a file that is written at any offset.
///
/// * `&mut Vec<u8>`: its old contents are replaced. Reusing a vector saves time: its memory is neither allocated nor initialised again.
/// * `&mut [u8]`: a compressed file is put to the front; [`compress_bound`](crate::compress_bound) says how much room is enough. A file
///   that is restored needs exactly its raw size.
/// * `&mut dyn Write`, or any other [`Write`] with [`Sink::writer`].
/// * a reference to a [`WriteAt`]: a file that is restored from memory or from a file that is read at any offset is written by all
///   threads at once; anything else from front to back.
///
/// ```no_run
/// use std::fs::File;
/// use lmc::{DecompressOptions, Decompressor, Sink};
/// let mut decompressor = Decompressor::new(&DecompressOptions::default())?;
/// let packed = File::open("model.safetensors.lmc").unwrap();
/// decompressor.decompress(&packed, &[], &File::create("model.safetensors").unwrap())?;
/// decompressor.decompress(&packed, &[], Sink::writer(&mut std::io::stdout()))?;
/// # Ok::<(), lmc::Error>(())
/// ```
pub struct Sink<'a>(pub(crate) To<'a>);

pub(crate) enum To<'a> {
    Vec(&'a mut Vec<u8>),
    Slice(&'a mut [u8]),
    Stream(&'a mut dyn Write),
    At(&'a dyn WriteAt),
}

impl To<'_> {
    /// Puts bytes of a raw file that begin `at`; all before them are written.
    pub(crate) fn put(&mut self, raw: &[u8], at: u64) -> Result<()> {
        match self {
            To::Stream(stream) => stream.write_all(raw).map_err(Error::cannot_write)?,
            To::At(file) => file.write_all_at(raw, at).map_err(Error::cannot_write)?,
            To::Vec(bytes) => {
                let none =
                    |_| Error::limit(format!("there is no memory for more than {at} bytes; restore to a file instead"));
                bytes.try_reserve(raw.len()).map_err(none)?;
                bytes.extend_from_slice(raw);
            }
            To::Slice(bytes) => {
                let room = bytes.len();
                let place = bytes.get_mut(at as usize..).and_then(|rest| rest.get_mut(..raw.len()));
                let none = || {
                    Error::usage(format!(
                        "the file restores to more bytes than the {room} that the output has room for"
                    ))
                };
                place.ok_or_else(none)?.copy_from_slice(raw);
            }
        }
        Ok(())
    }
}

impl<'a> Sink<'a> {
    /// A stream.
    pub fn writer<W: Write>(stream: &'a mut W) -> Self {
        Self(To::Stream(stream))
    }
}

impl<'a> From<&'a mut Vec<u8>> for Sink<'a> {
    fn from(bytes: &'a mut Vec<u8>) -> Self {
        Self(To::Vec(bytes))
    }
}

impl<'a> From<&'a mut [u8]> for Sink<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self(To::Slice(bytes))
    }
}

impl<'a, const N: usize> From<&'a mut [u8; N]> for Sink<'a> {
    fn from(bytes: &'a mut [u8; N]) -> Self {
        Self(To::Slice(bytes))
    }
}

impl<'a, 'b: 'a> From<&'a mut (dyn Write + 'b)> for Sink<'a> {
    fn from(stream: &'a mut (dyn Write + 'b)) -> Self {
        Self(To::Stream(stream))
    }
}

impl<'a, W: WriteAt> From<&'a W> for Sink<'a> {
    fn from(file: &'a W) -> Self {
        Self(To::At(file))
    }
}

impl<'a, 'b: 'a> From<&'a (dyn WriteAt + 'b)> for Sink<'a> {
    fn from(file: &'a (dyn WriteAt + 'b)) -> Self {
        Self(To::At(file))
    }
}

/// A file that is written from front to back.
pub(crate) struct InOrder<'a> {
    file: &'a dyn WriteAt,
    at: u64,
}

impl<'a> InOrder<'a> {
    pub(crate) fn new(file: &'a dyn WriteAt) -> Self {
        Self { file, at: 0 }
    }
}

impl Write for InOrder<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
