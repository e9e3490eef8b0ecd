//! Options from Python.

use lmc::{CompressOptions, DecodeLimits, DecompressOptions, Dtype, Level};

use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::numbers::{MaxSize, MaxWork, number_within};

/// Bytes of work per thread, at least: about a block, the unit of work.
const BYTES_PER_THREAD: u64 = 1 << 20;
/// More threads are never useful, and are taken for a mistake.
const MAX_THREADS: i64 = 1024;

/// The argument `threads`.
#[derive(Clone, Copy)]
pub(crate) struct Threads(i64);

/// Its permitted values, for messages.
fn range_of_threads() -> String {
    format!("from 0 (as many as there are cores) to {MAX_THREADS}")
}

impl FromPyObject<'_, '_> for Threads {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        number_within(&object, "threads", &range_of_threads()).map(Self)
    }
}

/// `None` and 0 mean as many as the process may run on.
pub(crate) fn threads(threads: Option<Threads>) -> Result<usize> {
    match threads.map_or(0, |n| n.0) {
        n @ 0..=MAX_THREADS => Ok(n as usize),
        n => Err(Failure::usage(format!("threads={n}: must be {}", range_of_threads()))),
    }
}

/// Limits threads to the available work: starting one takes longer than compressing a small file.
pub(crate) fn threads_for(threads: usize, bytes: u64) -> usize {
    let most = usize::try_from(bytes / BYTES_PER_THREAD).unwrap_or(usize::MAX).max(1);
    match threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()).min(most),
        n => n.min(most),
    }
}

pub(crate) fn dtype(name: &str) -> Result<Dtype> {
    name.to_ascii_uppercase().parse().map_err(|_| none_of("dtype", name, Dtype::ALL.iter().map(Dtype::name)))
}

pub(crate) fn level(name: &str) -> Result<Level> {
    name.parse().map_err(|_| none_of("level", name, Level::ALL.iter().map(|level| level.name())))
}

/// The error of a name that is none of the possible ones.
fn none_of(argument: &str, name: &str, possible: impl Iterator<Item = &'static str>) -> Failure {
    let possible = possible.collect::<Vec<_>>().join(", ");
    Failure::usage(format!("{argument}={name:?}: must be one of {possible}"))
}

pub(crate) fn compress_options(level: &str, dtype: Option<&str>, threads: Option<Threads>) -> Result<CompressOptions> {
    let o = CompressOptions::default().with_level(self::level(level)?);
    let o = o.with_dtype(dtype.map(self::dtype).transpose()?);
    Ok(o.with_threads(self::threads(threads)?))
}

pub(crate) fn decompress_options(
    threads: Option<Threads>,
    max_size: Option<MaxSize>,
    max_work: Option<MaxWork>,
) -> Result<DecompressOptions> {
    let limits = DecodeLimits::default().with_max_work(max_work.map(|n| n.0));
    let limits = limits.with_max_raw_size(max_size.map_or(u64::MAX, |n| n.0));
    Ok(DecompressOptions::default().with_threads(self::threads(threads)?).with_limits(limits))
}
