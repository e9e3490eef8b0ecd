//! Options of compression and decompression.

use crate::settings::level::Level;
use crate::settings::limits::DecodeLimits;
use lmc_kernels::isa::Isa;
use lmc_layout::dtype::Dtype;

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
    /// Threads to use; 0 for as many as the machine has. The output does not depend on it.
    pub threads: usize,
    /// Dtype of data in no known format. Without it the element width is detected.
    pub dtype: Option<Dtype>,
    /// Instruction set; by default that of [`Isa::detect`]. The output does not depend on it.
    pub(crate) isa: Option<Isa>,
    /// Predict no tensor from an earlier one of the same file, as of a stream.
    pub(crate) independent: bool,
    /// Most bytes that one call decodes for compressed bases; by default 96 times their raw sizes plus 4 GiB, as for
    /// [`DecodeLimits::max_work`].
    pub max_work: Option<u64>,
    /// Whether the file gets the SHA-256 of its raw bytes and of those of its bases, which are compared when it is restored.
    pub digest: bool,
}

impl CompressOptions {
    /// Sets [`level`](Self::level).
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
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

    /// Sets the instruction set, for benchmarks and tests: no API.
    #[doc(hidden)]
    #[must_use]
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa: Some(isa), ..self }
    }

    /// Predicts no tensor from an earlier one of the same file, for studies and tests: no API.
    #[doc(hidden)]
    #[must_use]
    pub fn with_independent(self, independent: bool) -> Self {
        Self { independent, ..self }
    }

    /// Whether no tensor is predicted from an earlier one of the same file: no API.
    #[doc(hidden)]
    pub fn is_independent(&self) -> bool {
        self.independent
    }

    /// Sets [`digest`](Self::digest).
    #[must_use]
    pub fn with_digest(self, digest: bool) -> Self {
        Self { digest, ..self }
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
    /// Instruction set; by default that of [`Isa::detect`].
    pub(crate) isa: Option<Isa>,
    /// Limits of memory and work.
    pub limits: DecodeLimits,
}

impl DecompressOptions {
    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Sets the instruction set, for benchmarks and tests: no API.
    #[doc(hidden)]
    #[must_use]
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa: Some(isa), ..self }
    }

    /// Sets [`limits`](Self::limits).
    #[must_use]
    pub fn with_limits(self, limits: DecodeLimits) -> Self {
        Self { limits, ..self }
    }
}
