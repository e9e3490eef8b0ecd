//! The threads of a compressor or decompressor.

use lmc_pool::Workers;

/// `threads` = 0 for as many as the machine has; `make` makes the working memory of one.
pub(crate) fn workers<S: Send>(threads: usize, make: impl Fn() -> S + Send + Sync + 'static) -> Workers<S> {
    Workers::new(threads, Box::new(make) as _)
}
