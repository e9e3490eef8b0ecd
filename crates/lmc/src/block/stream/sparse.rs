//! Sparse streams: most elements are 0, the others are listed.

use crate::settings::level::Level;
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::zeros_in;

/// A column is sparse if at most 1/32 of its elements changed: with more, lanes are faster than hybrid integer codes, and no larger.
const SPARSE: usize = 32;
/// Most elements of a list, which takes some forty bytes of working memory for each. More than half of any block of 1 MiB.
const MOST_SPARSE: usize = 1 << 20;

/// The most elements, of `n` without prediction, that may be nonzero in a sparse stream. Lists are smaller than clusters up to a half,
/// but their time grows with their length.
pub(in crate::block) fn most_sparse(n: usize, level: Level) -> usize {
    let most = match level {
        Level::Fast => n / 8,
        Level::Default => n / 3,
        Level::Max => n / 2,
    };
    most.min(MOST_SPARSE)
}

/// Runs sampled for zeros.
const RUNS: usize = 32;

/// Whether at least half of the elements of a sample of runs are zero.
pub(in crate::block) fn is_mostly_zero(width: usize, elements: &[u8]) -> bool {
    let runs = elements.len().div_ceil(RUN * width);
    let sampled = elements.chunks(RUN * width).step_by(runs.div_ceil(RUNS).max(1));
    let (zeros, seen) =
        sampled.fold((0, 0), |(zeros, seen), run| (zeros + zeros_in(width, run), seen + run.len() / width));
    2 * zeros >= seen
}

/// The most changes among `n` elements of a sparse column.
pub(in crate::block) fn few_of(n: usize) -> usize {
    n / SPARSE
}
