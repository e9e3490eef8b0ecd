//! The threads of a compressor or decompressor.

use lmc_pool::Workers;

use crate::error::{Error, Result};

/// `threads` = 0 for as many as the machine has; `make` makes the working memory of one.
pub(crate) fn workers<S: Send>(threads: usize, make: impl Fn() -> S + Send + Sync + 'static) -> Result<Workers<S>> {
    Workers::new(threads, Box::new(make) as _).map_err(|e| Error::io("cannot start threads", e))
}
