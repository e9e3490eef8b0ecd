//! Inputs of compressors and decompressors.

use std::io::Read;

use lmc_layout::io::ReadAt;
use lmc_layout::segment::Segment;

/// Input of [`Compressor::compress`](crate::Compressor::compress) and [`Decompressor::decompress`](crate::Decompressor::decompress):
/// memory, a file that is read at any offset, or a stream.
///
/// Every one of them is made with `From`: a shared reference is memory or a [`ReadAt`], a mutable one is a [`Read`].
///
/// ```
/// # let raw = vec![1u8; 1000];
/// use lmc::{CompressOptions, Compressor, Sink, Source};
/// let mut compressor = Compressor::new(&CompressOptions::default())?;
/// let (mut one, mut two) = (Vec::new(), Vec::new());
/// compressor.compress(&raw, &[], &mut one)?;
/// // A stream is read once, front to back.
/// compressor.compress(Source::reader(&mut &raw[..]), &[], Sink::writer(&mut two))?;
/// // But for the header, which is written before it is known what blocks need.
/// assert_eq!(one[16..], two[16..]);
/// # Ok::<(), lmc::Error>(())
/// ```
pub struct Source<'a> {
    pub(crate) input: Input<'a>,
    pub(crate) segments: Option<&'a [Segment]>,
    pub(crate) progress: Option<&'a mut dyn FnMut(u64)>,
}

pub(crate) enum Input<'a> {
    Slice(&'a [u8]),
    At(&'a dyn ReadAt),
    Stream(&'a mut dyn Read),
}

impl Input<'_> {
    /// The bytes, unless they are a stream.
    pub(crate) fn positional(&self) -> Option<&dyn ReadAt> {
        match self {
            Input::Slice(bytes) => Some(bytes),
            Input::At(file) => Some(*file),
            Input::Stream(_) => None,
        }
    }
}

impl<'a> Source<'a> {
    /// A stream. `&mut stream` converts, too; this is explicit where the stream is a slice.
    pub fn reader<R: Read>(stream: &'a mut R) -> Self {
        Self::new(Input::Stream(stream))
    }

    /// Bytes to compress whose segments the caller knows: parts of files, tensors in memory. The segments cover the bytes in order; bases
    /// that are parts, too, are made with [`Base::of_segments`](crate::Base::of_segments). A decompressor makes no use of them.
    pub fn segments(raw: &'a [u8], segments: &'a [Segment]) -> Self {
        Self { segments: Some(segments), ..Self::new(Input::Slice(raw)) }
    }

    /// Calls `progress`, on the calling thread, with the number of raw bytes done so far, again and again.
    #[must_use]
    pub fn with_progress<'b>(self, progress: &'b mut dyn FnMut(u64)) -> Source<'b>
    where
        'a: 'b,
    {
        // A stream's lifetime shrinks by coercion alone.
        let input = match self.input {
            Input::Stream(stream) => Input::Stream(&mut *stream),
            Input::Slice(bytes) => Input::Slice(bytes),
            Input::At(file) => Input::At(file),
        };
        Source { input, segments: self.segments, progress: Some(progress) }
    }

    fn new(input: Input<'a>) -> Self {
        Self { input, segments: None, progress: None }
    }
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::new(Input::Slice(bytes))
    }
}

impl<'a, R: ReadAt> From<&'a R> for Source<'a> {
    fn from(file: &'a R) -> Self {
        Self::new(Input::At(file))
    }
}

impl<'a, 'b: 'a> From<&'a (dyn ReadAt + 'b)> for Source<'a> {
    fn from(file: &'a (dyn ReadAt + 'b)) -> Self {
        Self::new(Input::At(file))
    }
}

impl<'a, R: Read> From<&'a mut R> for Source<'a> {
    fn from(stream: &'a mut R) -> Self {
        Self::new(Input::Stream(stream))
    }
}

impl<'a, 'b: 'a> From<&'a mut (dyn Read + 'b)> for Source<'a> {
    fn from(stream: &'a mut (dyn Read + 'b)) -> Self {
        Self::new(Input::Stream(stream))
    }
}
