//! Limits of decompression.

/// Limits of the cost of decoding, for any file.
///
/// Memory does not depend on the size of a file: besides the output and the index it is a few MiB per thread for files that this library
/// wrote. A block of the largest size that the format allows takes 184 MiB of working memory per thread; reading such a block alone, with
/// those of the file that it depends on, takes 1 GiB more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeLimits {
    /// Largest raw size that is restored, in bytes.
    pub max_raw_size: u64,
    /// Most memory of a file's index, in bytes. The default, 1.5 GiB, is enough for every index that the format allows; one of files of
    /// several terabytes and of a million tensors takes less than 256 MiB.
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
        Self { max_raw_size: u64::MAX, max_index_size: 3 << 29, max_work: None }
    }
}
