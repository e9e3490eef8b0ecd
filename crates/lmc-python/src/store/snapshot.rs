//! `lmc.store.SnapshotReader`: an open snapshot.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lmc_cli::{allow_open, create_directories};
use lmc_store::TensorBuffer;
use lmc_store::files::check_targets;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::records::{Snapshot, file_info};
use super::shared::Shared;
use crate::buffer::{FreshBytes, Writable, check_disjoint};
use crate::errors::{Failure, Result};
use crate::file::Wanted;
use crate::info::Tensor;
use crate::numbers::{Offset, Start, Stop};
use crate::process::PerProcess;
use crate::records::Record;
use crate::source::path;
use crate::target::{Target, finish_all};
use crate::text::text;
use crate::work::{Signals, detached};

/// The most bytes that are in memory of a file that is written from front to end.
const PIECE: usize = 64 << 20;

/// An open snapshot, for random access. Threads may share it; a forked child reopens it.
#[pyclass(frozen, module = "lmc.store")]
pub(crate) struct SnapshotReader {
    shared: Arc<Shared>,
    snapshot: lmc_store::Snapshot,
    threads: usize,
    open: PerProcess<lmc_store::SnapshotReader>,
}

fn open(
    py: Python<'_>,
    shared: &Shared,
    snapshot: &lmc_store::Snapshot,
    threads: usize,
) -> Result<lmc_store::SnapshotReader> {
    let store = shared.get(py)?;
    detached(py, || Ok(store.open_snapshot(snapshot)?.with_threads(threads)))
}

/// Reads `len` bytes without the GIL, until a signal comes.
fn watch(
    py: Python<'_>,
    reader: &lmc_store::SnapshotReader,
    len: usize,
    read: impl FnOnce(&lmc_store::SnapshotReader) -> lmc_store::Result<()> + Send,
) -> Result<()> {
    Signals::watch(py, len as u64, |signals| Ok(read(&reader.cancelled_by(signals.stop()))?))
}

impl SnapshotReader {
    pub(super) fn new(
        py: Python<'_>,
        shared: Arc<Shared>,
        snapshot: lmc_store::Snapshot,
        threads: usize,
    ) -> Result<Self> {
        let open = PerProcess::new("snapshot", open(py, &shared, &snapshot, threads)?);
        Ok(Self { shared, snapshot, threads, open })
    }

    pub(super) fn step(&self) -> lmc_store::Step {
        self.snapshot.step
    }

    fn get(&self, py: Python<'_>) -> Result<Arc<lmc_store::SnapshotReader>> {
        self.open.get(|_| open(py, &self.shared, &self.snapshot, self.threads))
    }

    /// Reads tensors, or rows of them, into buffers.
    fn fill(&self, py: Python<'_>, reader: &lmc_store::SnapshotReader, wanted: Vec<Wanted>) -> Result<usize> {
        let (mut named, mut outs) = (Vec::new(), Vec::new());
        for Wanted { name, rows, out } in wanted {
            named.push((name, rows));
            outs.push(out);
        }
        check_disjoint(&outs)?;
        let len = outs.iter().map(Writable::len).sum();
        watch(py, reader, len, |reader| {
            let buffers = named.iter().zip(&mut outs).map(|((name, rows), out)| TensorBuffer {
                name,
                rows: rows.map(|(start, stop)| start..stop),
                out: out.as_mut_slice(),
            });
            reader.read_tensors(buffers)
        })?;
        Ok(len)
    }

    /// Reads a tensor, or rows of it, into a new `bytes` object.
    fn bytes(&self, py: Python<'_>, name: &str, rows: Option<Range<u64>>) -> Result<Py<PyBytes>> {
        let reader = self.get(py)?;
        let (_, s) = reader.tensor(name)?;
        let len = match &rows {
            None => s.len,
            Some(rows) => {
                // If the rows do not exist nothing is allocated, and the reader reports the error.
                s.bytes_of_rows(rows).map_or(0, |bytes| bytes.end - bytes.start)
            }
        };
        let mut bytes = FreshBytes::new(py, len)?;
        let out = bytes.as_mut_slice();
        watch(py, &reader, out.len(), |reader| reader.read_tensors([TensorBuffer { name, rows, out }]))?;
        Ok(bytes.finish())
    }

    /// Restores a file that does not have its name yet.
    fn restored<'s>(
        &self,
        reader: &lmc_store::SnapshotReader,
        name: &str,
        dst: &Path,
        overwrite: bool,
        signals: &'s Signals,
    ) -> Result<Target<'s>> {
        let len = reader.file(name)?.len;
        let mut target = Target::create(dst, overwrite, false, self.shared.guard(), signals)?;
        if target.set_size(len)? {
            reader.restore_file(name, &target, &mut signals.progress())?;
            return Ok(target);
        }
        let (mut piece, reader) = (vec![], reader.cancelled_by(signals.stop()));
        for at in (0..len).step_by(PIECE) {
            piece.resize(PIECE.min(usize::try_from(len - at).unwrap_or(PIECE)), 0);
            reader.read_range(name, at, &mut piece)?;
            let written = target.write_all(&piece);
            written.map_err(|e| Failure::Path("cannot write".to_owned(), dst.to_owned(), e))?;
        }
        Ok(target)
    }

    pub(super) fn restore_all(
        &self,
        py: Python<'_>,
        directory: &Path,
        names: Option<Vec<String>>,
        overwrite: bool,
    ) -> Result<Vec<PathBuf>> {
        let reader = self.get(py)?;
        let create = |directory: &Path| {
            create_directories(directory)
                .map_err(|e| Failure::Path("cannot create the directory".to_owned(), directory.to_owned(), e))
        };
        Signals::watch(py, u64::MAX, |signals| {
            // If anything requested is missing, nothing is written.
            let files = match &names {
                None => reader.files().iter().collect(),
                Some(names) => reader.files_of(names)?,
            };
            let paths: Vec<PathBuf> = files.iter().map(|f| directory.join(&f.name)).collect();
            let guard = self.shared.guard();
            let allowed = paths.iter().try_for_each(|path| guard.check_replace(path));
            allowed.map_err(|refusal| Failure::usage(refusal.to_string()))?;
            check_targets(directory, files.iter().copied())?;
            create(directory)?;
            // Files of two snapshots beside each other would be loaded together: those that are there stay until all new ones are on disk.
            let together = overwrite && paths.iter().any(|path| path.symlink_metadata().is_ok());
            if together {
                allow_open(files.len(), "replaced", "restore into an empty directory")
                    .map_err(|why| Failure::Other("LimitError", why.to_string()))?;
            }
            let mut restored = Vec::new();
            for (file, path) in files.iter().zip(&paths) {
                // Checked again: restoring the previous files took time.
                check_targets(directory, [*file])?;
                create(path.parent().unwrap_or(directory))?;
                let target = self.restored(&reader, &file.name, path, overwrite, signals)?;
                if together {
                    restored.push(target);
                } else {
                    target.finish(None)?;
                }
            }
            check_targets(directory, files.iter().copied())?;
            finish_all(restored)?;
            Ok(paths)
        })
    }
}

#[pymethods]
impl SnapshotReader {
    #[getter]
    fn snapshot(&self) -> Snapshot {
        Snapshot(self.snapshot.clone())
    }

    /// The files, in the order in which they were saved.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> Result<Vec<Record<'py>>> {
        self.get(py)?.files().iter().map(|f| file_info(py, f)).collect()
    }

    /// Names of the tensors of all files, in order.
    fn keys(&self, py: Python<'_>) -> Result<Vec<String>> {
        let reader = self.get(py)?;
        let segments = reader.files().iter().flat_map(|f| &f.segments);
        Ok(segments.filter_map(|s| s.name.as_deref()).map(str::to_owned).collect())
    }

    fn __contains__(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<bool> {
        Ok(self.get(py)?.tensor(name).is_ok())
    }

    /// A tensor by its name; the first one if there are several.
    fn tensor(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<Tensor> {
        let reader = self.get(py)?;
        let (_, segment) = reader.tensor(name)?;
        Ok(Tensor::of(py, segment).expect("a named segment is a tensor"))
    }

    /// Reads a tensor.
    fn read(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<Py<PyBytes>> {
        self.bytes(py, name, None)
    }

    /// Reads rows of a tensor.
    fn read_rows(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        start: Start,
        stop: Stop,
    ) -> Result<Py<PyBytes>> {
        self.bytes(py, name, Some(start.0..stop.0))
    }

    /// Reads a tensor into a buffer.
    fn read_into(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        out: &Bound<'_, PyAny>,
    ) -> Result<usize> {
        let reader = self.get(py)?;
        self.fill(py, &reader, vec![Wanted { name: name.to_owned(), rows: None, out: Writable::get(out)? }])
    }

    /// Reads many tensors, or rows of them, into buffers, in parallel.
    fn read_many_into(&self, py: Python<'_>, wanted: &Bound<'_, PyAny>) -> Result<usize> {
        let reader = self.get(py)?;
        self.fill(py, &reader, Wanted::all(wanted)?)
    }

    /// Reads a file.
    fn read_file(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<Py<PyBytes>> {
        let reader = self.get(py)?;
        let mut bytes = FreshBytes::new(py, reader.file(name)?.len)?;
        let out = bytes.as_mut_slice();
        watch(py, &reader, out.len(), |reader| reader.read_range(name, 0, out))?;
        Ok(bytes.finish())
    }

    /// Fills a buffer with bytes of a file.
    fn read_range_into(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        offset: Offset,
        out: &Bound<'_, PyAny>,
    ) -> Result<usize> {
        let reader = self.get(py)?;
        let mut out = Writable::get(out)?;
        watch(py, &reader, out.len(), |reader| reader.read_range(name, offset.0, out.as_mut_slice()))?;
        Ok(out.len())
    }

    /// Fills buffers with bytes of files, in parallel. Each of `wanted` is `(name, offset, out)`; buffers must not share memory.
    fn read_ranges_into(&self, py: Python<'_>, wanted: &Bound<'_, PyAny>) -> Result<usize> {
        let reader = self.get(py)?;
        let (mut places, mut outs) = (Vec::new(), Vec::new());
        for one in wanted.try_iter()? {
            let (name, Offset(offset), out): (Bound<'_, PyAny>, Offset, Bound<'_, PyAny>) = one?.extract()?;
            places.push((text(&name)?.to_owned(), offset));
            outs.push(Writable::get(&out)?);
        }
        check_disjoint(&outs)?;
        let len = outs.iter().map(Writable::len).sum();
        watch(py, &reader, len, |reader| {
            let wanted = places.iter().zip(&mut outs);
            reader.read_ranges(wanted.map(|((name, offset), out)| (&name[..], *offset, out.as_mut_slice())))
        })?;
        Ok(len)
    }

    /// Restores a file to a path.
    #[pyo3(signature = (name, dst, *, overwrite=true))]
    fn restore(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        dst: &Bound<'_, PyAny>,
        overwrite: bool,
    ) -> Result<()> {
        let (reader, dst) = (self.get(py)?, path(dst, "dst")?);
        Signals::watch(py, u64::MAX, |signals| self.restored(&reader, name, &dst, overwrite, signals)?.finish(None))
    }

    fn __repr__(&self) -> String {
        format!("<lmc.store.SnapshotReader of step {}>", self.snapshot.step)
    }
}
