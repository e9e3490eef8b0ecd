//! Lossless compression of language model checkpoints.
//!
//! A `.lmc` file holds the bytes of another file, in blocks that are checked and can be decoded alone. Files of
//! safetensors, PyTorch, NumPy, GGUF and ONNX are recognised: each tensor is coded by its type, and can be read without the
//! rest. Any other file is compressed too, and every file is restored byte for byte.
//!
//! ```
//! use lmc::{CompressOptions, DecompressOptions};
//! let raw: Vec<u8> = (0..100_000u32).flat_map(|i| (i as f32).sqrt().to_le_bytes()).collect();
//! let file = lmc::compress(&raw, &CompressOptions::default())?;
//! assert_eq!(lmc::decompress(&file, &DecompressOptions::default())?, raw);
//! # Ok::<(), lmc::Error>(())
//! ```
//!
//! * [`compress`] and [`decompress`] go from memory to memory.
//! * [`Compressor`] and [`Decompressor`] go from any [`Source`] to any [`Sink`] (memory, streams, files that are read and written at any
//!   offset), as deltas if there are [bases](Base), and keep their threads and buffers from call to call.
//! * [`Encoder`] is a [`Write`](std::io::Write) that compresses, and [`Decoder`] a [`Read`](std::io::Read) that restores.
//! * [`changed_elements`] gives those that a delta changes, without decoding the others, and [`changed_count`] their number.
//! * [`Reader`] reads tensors, rows of tensors and byte ranges of a file.
//! * [`layout`] says where tensors are: all that a file declares, those of a checkpoint of several files, and the headers of
//!   safetensors files.
//!
//! The fastest instruction set of the machine is used, or the one that the environment variable `LMC_ISA` names:
//! `portable`, `neon`, `avx2` or `avx512`.
//!
//! The output does not depend on the number of threads, the instruction set, the source or the sink, with two exceptions. A
//! stream is read once: its tensors are not predicted from each other, and files that are described at their end (`.pt`,
//! `.npz`) or elsewhere (ONNX) are plain bytes. A source with a [path](ReadAt::path) may take names from a file beside it.
//! The format is described in `docs/format.md`.
//!
//! Compressed files may come from anywhere: a damaged or hostile one gives an [`Error`], and [`DecodeLimits`] bounds
//! what it may cost.

#![forbid(unsafe_code)]

mod api;
mod block;
mod file;
mod format;
#[doc(hidden)]
pub mod internals;
pub mod layout;
mod refs;
mod settings;

pub use api::changes::{ChangedElements, changed_count, changed_elements};
pub use api::compress::{Compressor, compress, compress_bound};
pub use api::decoder::Decoder;
pub use api::decompress::{Decompressor, decompress};
pub use api::encoder::Encoder;
pub use api::estimate::{Estimate, estimate};
pub use api::reader::Reader;
pub use api::resolve::{ResolveError, resolve_bases};
pub use api::sink::Sink;
pub use api::source::Source;
pub use file::open::BlockInfo;
pub use format::bases::BaseInfo;
pub use format::digests::{DigestAlgorithm, RawDigest};
#[doc(hidden)]
pub use format::header::{GZIP, ZSTD};
pub use format::header::{MAGIC, VERSION as FORMAT_VERSION};
pub use lmc_layout::dtype::Dtype;
pub use lmc_layout::error::{Error, ErrorKind, Result};
pub use lmc_layout::io::{ReadAt, WriteAt};
pub use lmc_layout::segment::Segment;
pub use refs::base::Base;
pub use settings::level::Level;
pub use settings::limits::DecodeLimits;
pub use settings::options::{CompressOptions, DecompressOptions};

/// Sizes and hash of a compressed or restored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Size of the raw file in bytes.
    pub raw_size: u64,
    /// Size of the compressed file in bytes.
    pub compressed_size: u64,
    /// Hash of the raw file: equal for equal files, whatever options they were compressed with.
    ///
    /// It detects accidents, and does not resist an attacker.
    pub content_hash: [u8; 16],
    /// Number of blocks.
    pub blocks: u64,
    /// Tensors of a file that was compressed which are not in its index, where their names or shapes have no room: they are restored with the
    /// file, and cannot be read alone.
    pub unlisted_tensors: u64,
    /// The features that the header needs.
    header: format::header::Features,
}

impl Summary {
    /// The header that the compressed file needs: its first 16 bytes. A file that was written as a stream may have one with more features
    /// than its blocks need; whoever can still write its beginning replaces it by this one. Other [sinks](Sink) have it already.
    pub fn header(&self) -> [u8; 16] {
        format::header::encode(self.header)
    }
}
