//! The interface of all codecs.

use lmc::{Error, ErrorKind, Result};

/// Something that compresses memory to memory.
pub(crate) trait Codec {
    /// Leaves the compressed data in `packed`, which comes as [`room_for`] or more bytes of anything, so that no codec
    /// has to allocate or clear memory.
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()>;
    /// Fills `out`, which has the length of the data that was compressed.
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()>;
}

/// Memory for the output of any codec for `len` bytes; written to, so that its pages exist.
pub(crate) fn room_for(len: usize) -> Vec<u8> {
    vec![1; len + len / 4 + (1 << 20)]
}

/// The error of a codec.
pub(crate) fn failed(codec: &str, e: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("{codec} failed: {e}"))
}
