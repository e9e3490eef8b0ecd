//! Options of compression and limits of decompression.

use crate::dtype::Dtype;
use crate::format::version::FormatVersion;
use crate::isa::Isa;
use crate::parse_error::ParseNameError;

/// Compression level: the work of the encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Huffman codes.
    Fast,
    /// rANS, more clusters.
    #[default]
    Default,
    /// rANS with finer tables and longer symbols.
    Max,
}

impl Level {
    /// Every level, fastest first.
    pub const ALL: &[Level] = &[Level::Fast, Level::Default, Level::Max];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Fast => "fast",
            Level::Default => "default",
            Level::Max => "max",
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Level {
    type Err = ParseNameError;

    fn from_str(s: &str) -> Result<Self, ParseNameError> {
        let found = Level::ALL.iter().copied().find(|l| l.name() == s);
        found.ok_or_else(|| ParseNameError::new("level", s, Level::ALL.iter().map(|l| l.name())))
    }
}

/// How to compress.
///
/// ```
/// use lmc::{CompressOptions, Dtype, Level};
/// let o = CompressOptions::default().with_level(Level::Max).with_threads(4).with_dtype(Dtype::Bf16);
/// assert_eq!((o.level, o.threads, o.dtype), (Level::Max, 4, Some(Dtype::Bf16)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompressOptions {
    /// Compression level.
    pub level: Level,
    /// Version of the file format. A later one than the default may need a newer lmc to be read.
    pub format: FormatVersion,
    /// Threads to use; 0 for as many as the machine has. The output does not depend on it.
    pub threads: usize,
    /// Dtype of data in no known format. Without it the element width is detected.
    pub dtype: Option<Dtype>,
    /// Instruction set; by default the fastest. The output does not depend on it.
    pub isa: Option<Isa>,
    /// Predict no tensor from an earlier one of the same file. Otherwise equal tensors, and 16-bit weights beside the 32-bit ones that they
    /// are rounded from, cost next to nothing; reading such a tensor alone then takes reading the other one, too.
    pub independent: bool,
    /// Most bytes that one call decodes for compressed bases; by default 96 times their raw sizes plus 4 GiB, as for
    /// [`DecodeLimits::max_work`].
    pub max_work: Option<u64>,
}

impl CompressOptions {
    /// Sets [`level`](Self::level).
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Sets [`format`](Self::format).
    #[must_use]
    pub fn with_format(self, format: FormatVersion) -> Self {
        Self { format, ..self }
    }

    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Sets [`dtype`](Self::dtype); `None` for the default.
    #[must_use]
    pub fn with_dtype(self, dtype: impl Into<Option<Dtype>>) -> Self {
        Self { dtype: dtype.into(), ..self }
    }

    /// Sets [`isa`](Self::isa); `None` for the default.
    #[must_use]
    pub fn with_isa(self, isa: impl Into<Option<Isa>>) -> Self {
        Self { isa: isa.into(), ..self }
    }

    /// Sets [`independent`](Self::independent).
    #[must_use]
    pub fn with_independent(self, independent: bool) -> Self {
        Self { independent, ..self }
    }

    /// Sets [`max_work`](Self::max_work); `None` for the default.
    #[must_use]
    pub fn with_max_work(self, max_work: impl Into<Option<u64>>) -> Self {
        Self { max_work: max_work.into(), ..self }
    }
}

/// How to decompress.
///
/// ```
/// use lmc::{DecodeLimits, DecompressOptions};
/// let limits = DecodeLimits::default().with_max_raw_size(1 << 30);
/// let o = DecompressOptions::default().with_threads(2).with_limits(limits);
/// assert_eq!((o.threads, o.limits.max_raw_size), (2, 1 << 30));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecompressOptions {
    /// Threads to use; 0 for as many as the machine has.
    pub threads: usize,
    /// Instruction set; by default the fastest.
    pub isa: Option<Isa>,
    /// Limits of memory and work.
    pub limits: DecodeLimits,
}

impl DecompressOptions {
    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Sets [`isa`](Self::isa); `None` for the default.
    #[must_use]
    pub fn with_isa(self, isa: impl Into<Option<Isa>>) -> Self {
        Self { isa: isa.into(), ..self }
    }

    /// Sets [`limits`](Self::limits).
    #[must_use]
    pub fn with_limits(self, limits: DecodeLimits) -> Self {
        Self { limits, ..self }
    }
}

/// Limits of the cost of decoding, for any file.
///
/// Memory does not depend on the size of a file: besides the output and the index it is a few MiB per thread for files that this library
/// wrote. A block of the largest size that the format allows takes 184 MiB of working memory per thread; reading such a block alone, with
/// its ranges, takes up to 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeLimits {
    /// Largest raw size that is restored, in bytes.
    pub max_raw_size: u64,
    /// Most memory of a file's index, in bytes. The default, 256 MiB, is enough for files of several
    /// terabytes and for a million tensors.
    pub max_index_size: usize,
    /// Most bytes that one call decodes: the requested ones, and those of blocks that they depend on, in the file and in its bases. By
    /// default 96 per requested byte plus 4 GiB. The last delta of a chain of n deltas needs about n + 1 times its size.
    pub max_work: Option<u64>,
}

impl DecodeLimits {
    /// Sets [`max_raw_size`](Self::max_raw_size).
    #[must_use]
    pub fn with_max_raw_size(self, max_raw_size: u64) -> Self {
        Self { max_raw_size, ..self }
    }

    /// Sets [`max_index_size`](Self::max_index_size).
    #[must_use]
    pub fn with_max_index_size(self, max_index_size: usize) -> Self {
        Self { max_index_size, ..self }
    }

    /// Sets [`max_work`](Self::max_work); `None` for the default.
    #[must_use]
    pub fn with_max_work(self, max_work: impl Into<Option<u64>>) -> Self {
        Self { max_work: max_work.into(), ..self }
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { max_raw_size: u64::MAX, max_index_size: 1 << 28, max_work: None }
    }
}
