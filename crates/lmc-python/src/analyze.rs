//! Studies of checkpoints.

use std::path::{Path, PathBuf};

use lmc_cli::Study;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::errors::{Failure, Result, warn};
use crate::numbers::{self, MaxWork};
use crate::options::{Threads, compress_options};
use crate::source::as_path;
use crate::store::Store;
use crate::text::{text, texts};
use crate::work::Signals;

/// Studies how checkpoints compress, and what changes from one to the next; returns what `lmc analyze --json` prints, as a dict.
///
/// `checkpoints` is the path of a checkpoint (a file, an index of several files, or a directory), a list of such paths in the order of
/// their steps, or one store: its path, its `s3://` URL, or a `lmc.Store`, of which every `every`th snapshot counts, and the last one.
/// `distances`, `engines`, `exact` and `level` are the options of the command, which `lmc analyze --help` describes, and `max_work` is that of
/// `lmc.decompress`. Warnings of the command are given as `UserWarning`. Nothing is written but temporary files, of a store.
///
/// Raises `lmc.IOError` when a file cannot be read or changes meanwhile, `lmc.DamagedError` when one is damaged,
/// `lmc.StoreError` and others of a store, and `lmc.UsageError` when there are no tensors or no snapshots, for deltas without their bases,
/// for a store that is an archive, which is to be copied first, or for unknown engines.
#[pyfunction]
#[pyo3(signature = (
    checkpoints, *, every=1, distances=None, engines=Vec::new(), exact=false, level="default", threads=None, max_work=None,
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn analyze<'py>(
    py: Python<'py>,
    checkpoints: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = numbers::every)] every: u32,
    distances: Option<Distances>,
    #[pyo3(from_py_with = texts)] engines: Vec<String>,
    exact: bool,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
    max_work: Option<MaxWork>,
) -> Result<Bound<'py, PyAny>> {
    let codec = compress_options(level, None, threads)?.with_max_work(max_work.map(|n| n.0));
    if every == 0 {
        return Err(Failure::usage("every=0: must be from 1 to 4294967295"));
    }
    let paths = paths(checkpoints)?;
    paths.iter().try_for_each(|p| readable(p))?;
    let distances = distances.map(|d| d.0);
    let (text, warnings) = Signals::watch(py, u64::MAX, |signals| {
        let study = Study { paths, every, distances, engines, exact, codec, stop: signals.stop() };
        study.json().map_err(failure)
    })?;
    warn(py, &warnings)?;
    Ok(py.import("json")?.call_method1("loads", (text,))?)
}

/// The argument `distances`.
pub(crate) struct Distances(Vec<u64>);

impl FromPyObject<'_, '_> for Distances {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        numbers::distances(&object).map(Self)
    }
}

/// One path, several, or a store's.
fn paths(given: &Bound<'_, PyAny>) -> Result<Vec<PathBuf>> {
    if let Ok(store) = given.cast::<Store>() {
        return Ok(vec![store.get().place()]);
    }
    if let Some(path) = as_path(given)? {
        return Ok(vec![path]);
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let all = given.try_iter()?.map(|path| crate::source::path(&path?, "each of checkpoints"));
        let all = all.collect::<Result<Vec<_>>>()?;
        return if all.is_empty() { Err(Failure::usage("there are no checkpoints to study")) } else { Ok(all) };
    }
    let class = given.get_type().name()?;
    let why = format!("checkpoints must be a path, a list of paths or a Store, not {class}");
    Err(PyTypeError::new_err(why).into())
}

/// Fails with the operating system's own error if a path is not there.
fn readable(path: &Path) -> Result<()> {
    if lmc_store::Location::is_url(path)? {
        return Ok(());
    }
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(e) => Err(Failure::Path("cannot open".to_owned(), path.to_owned(), e)),
    }
}

/// The error of the command as an exception.
fn failure(why: lmc_cli::Failure) -> Failure {
    let text = why.to_string();
    let class = match why {
        lmc_cli::Failure::Usage(_) => "UsageError",
        lmc_cli::Failure::Codec(kind, _) => crate::errors::class_of_codec(kind),
        lmc_cli::Failure::Store(kind, _) => crate::errors::class_of_store(kind),
        _ => "IOError",
    };
    Failure::Other(class, text)
}
