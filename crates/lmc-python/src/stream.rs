//! Compression and restoring between files and file objects.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use lmc::{CompressOptions, DecompressOptions, Sink};
use lmc_cli::{Guard, Role};
use pyo3::exceptions::{PyBlockingIOError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::base::bases_of;
use crate::bases::Bases;
use crate::codec::raw_size;
use crate::errors::{Failure, Result, warn};
use crate::numbers::{MaxSize, MaxWork, number};
use crate::options::{Threads, compress_options, decompress_options};
use crate::records::{Record, summary};
use crate::source::{Source, as_path, file_of, path, read_bytes};
use crate::target::Target;
use crate::text::{optional_text, text};
use crate::work::{Signals, detached};

/// Compresses the file at the path `src` to one at `dst`; returns a `Summary`.
///
/// `dst` appears under its name only when it is complete and on disk; an existing file is replaced unless `overwrite` is false. Mode and
/// times are those of `src`. After an error there is no new file, nor after an interrupt, unless that comes when the file just gets its name.
/// The options are those of `lmc.compress`. A file that is no model in spite of its name, or ends early, is compressed as it is, with a
/// `UserWarning`.
///
/// Raises `lmc.IOError` (an `OSError`; for a missing file a `FileNotFoundError`, too) when a file cannot be read or written, or
/// changes meanwhile, `lmc.ExistsError` when `dst` exists and may not be overwritten, `lmc.UsageError` when it is `src`.
#[pyfunction]
#[pyo3(signature = (src, dst, *, dtype=None, base=None, level="default", threads=None, overwrite=true, digest=false))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn compress_file<'py>(
    py: Python<'py>,
    src: &Bound<'py, PyAny>,
    dst: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = optional_text)] dtype: Option<&str>,
    base: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
    overwrite: bool,
    digest: bool,
) -> Result<Record<'py>> {
    let o = compress_options(level, dtype, threads)?.with_digest(digest);
    let (source, dst, bases) = (Source::open(path(src, "src")?)?, path(dst, "dst")?, bases_of(base)?);
    summary(py, compress_path(py, &o, &source, &dst, &bases, overwrite)?)
}

/// Warns of a file that is not whole, or not the model that its name promises.
fn warn_of_no_model(py: Python<'_>, source: &Source) -> Result<()> {
    let note = detached(py, || source.no_model())?;
    Ok(warn(py, &note.map(|what| format!("{what}; it is compressed as it is")).into_iter().collect::<Vec<_>>())?)
}

fn compress_path(
    py: Python<'_>,
    o: &CompressOptions,
    source: &Source,
    dst: &Path,
    bases: &Bases,
    overwrite: bool,
) -> Result<lmc::Summary> {
    let done = Signals::watch(py, u64::MAX, |signals| {
        let mut target = Target::create(dst, overwrite, true, bases.guard(Some(source)), signals)?;
        let (linked, mut codec) = (bases.link(o.threads)?, lmc::Compressor::new(o)?);
        let done = codec.compress(&signals.interrupting(source), &linked, Sink::writer(&mut target));
        source.check_unchanged()?;
        bases.check_unchanged()?;
        let done = done?;
        target.replace_header(&done)?;
        target.finish(source.metadata())?;
        Ok(done)
    })?;
    warn_of_no_model(py, source)?;
    Ok(done)
}

/// Restores the `.lmc` file at the path `src` to one at `dst`; returns a `Summary`.
///
/// `dst` is written as `lmc.compress_file` does, `base`, `max_size` and `max_work` are those of `lmc.decompress`. Raises what both do.
#[pyfunction]
#[pyo3(signature = (src, dst, *, base=None, threads=None, max_size=None, max_work=None, overwrite=true))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn decompress_file<'py>(
    py: Python<'py>,
    src: &Bound<'py, PyAny>,
    dst: &Bound<'py, PyAny>,
    base: Option<&Bound<'_, PyAny>>,
    threads: Option<Threads>,
    max_size: Option<MaxSize>,
    max_work: Option<MaxWork>,
    overwrite: bool,
) -> Result<Record<'py>> {
    let o = decompress_options(threads, max_size, max_work)?;
    let (source, dst, bases) = (Source::open(path(src, "src")?)?, path(dst, "dst")?, bases_of(base)?);
    summary(py, decompress_path(py, &o, &source, &dst, &bases, overwrite)?)
}

fn decompress_path(
    py: Python<'_>,
    o: &DecompressOptions,
    source: &Source,
    dst: &Path,
    bases: &Bases,
    overwrite: bool,
) -> Result<lmc::Summary> {
    Signals::watch(py, u64::MAX, |signals| {
        let size = raw_size(source, o).map_err(|e| e.in_file(source.path()))?;
        let mut target = Target::create(dst, overwrite, true, bases.guard(Some(source)), signals)?;
        let (linked, mut codec) = (bases.link(o.threads)?, lmc::Decompressor::new(o)?);
        let source_of = signals.interrupting(source);
        let done = match target.set_size(size)? {
            true => codec.decompress(&source_of, &linked, &target),
            false => codec.decompress(&source_of, &linked, lmc::Sink::writer(&mut target)),
        };
        source.check_unchanged()?;
        bases.check_unchanged()?;
        let done = done.map_err(|e| about(source, e))?;
        target.finish(source.metadata())?;
        Ok(done)
    })
}

/// An error in restoring `source`. An I/O error may be about any of the files, and names none.
fn about(source: &Source, e: lmc::Error) -> Failure {
    if e.kind() == lmc::ErrorKind::Io { e.into() } else { Failure::from(e).in_file(source.path()) }
}

/// One end of a stream.
enum End {
    Path(PathBuf),
    Object(Py<PyAny>),
}

impl End {
    fn get(object: &Bound<'_, PyAny>, name: &str, method: &str) -> Result<Self> {
        if let Some(path) = as_path(object)? {
            return Ok(Self::Path(path));
        }
        if object.hasattr(method)? {
            return Ok(Self::Object(object.clone().unbind()));
        }
        let class = object.get_type().name()?;
        let why = format!("{name} must be a path or a binary file object with {method}(), not {class}");
        Err(PyTypeError::new_err(why).into())
    }

    /// Fails if it is an open file to be written that is also the source or a base. A path is checked when the file is created.
    fn check(&self, py: Python<'_>, source: &Self, bases: &Bases) -> Result<()> {
        if let Self::Object(object) = self
            && let Some((path, id)) = file_of(object.bind(py))
        {
            let guard = bases.guard(None);
            match source {
                // Whoever opens it says what is wrong with it.
                Self::Path(src) => _ = std::fs::metadata(src).map(|m| guard.keep(Role::Input, src, &m)),
                Self::Object(src) => keep_open(&guard, src.bind(py)),
            }
            guard.check_known(&path, id).map_err(|why| Failure::usage(why.to_string()))?;
        }
        Ok(())
    }
}

/// Compresses `src` to `dst`, in bounded memory; returns a `Summary`. Each is a path or a binary file object, with `read(size)` or
/// `write(bytes)`.
///
/// The options are those of `lmc.compress`. Exceptions of file objects are passed on, and raw ones that are not ready raise
/// `BlockingIOError`.
#[pyfunction]
#[pyo3(signature = (src, dst, *, dtype=None, base=None, level="default", threads=None, digest=false))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn compress_stream<'py>(
    py: Python<'py>,
    src: &Bound<'py, PyAny>,
    dst: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = optional_text)] dtype: Option<&str>,
    base: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
    digest: bool,
) -> Result<Record<'py>> {
    let o = compress_options(level, dtype, threads)?.with_digest(digest);
    let (src, dst, bases) = (End::get(src, "src", "read")?, End::get(dst, "dst", "write")?, bases_of(base)?);
    let codec = |bases: &Bases| Ok::<_, Failure>((bases.link(o.threads)?, lmc::Compressor::new(&o)?));
    dst.check(py, &src, &bases)?;
    let done = match (src, dst) {
        (End::Path(src), End::Path(dst)) => compress_path(py, &o, &Source::open(src)?, &dst, &bases, true),
        (End::Path(src), End::Object(object)) => {
            let source = Source::open(src)?;
            let done = detached(py, || {
                let (linked, mut codec) = codec(&bases)?;
                let done = codec.compress(&source, &linked, Sink::writer(&mut Writer { object }));
                source.check_unchanged()?;
                bases.check_unchanged()?;
                Ok(done?)
            })?;
            warn_of_no_model(py, &source)?;
            Ok(done)
        }
        (End::Object(object), End::Path(dst)) => into_path(py, &dst, &object.clone_ref(py), &bases, |target| {
            let (linked, mut codec) = codec(&bases)?;
            let done = codec.compress(&mut Stream { object }, &linked, target);
            bases.check_unchanged()?;
            Ok(done?)
        }),
        (End::Object(src), End::Object(dst)) => detached(py, || {
            let (linked, mut codec) = codec(&bases)?;
            let (mut src, mut dst) = (Stream { object: src }, Writer { object: dst });
            let done = codec.compress(&mut src, &linked, Sink::writer(&mut dst));
            bases.check_unchanged()?;
            Ok(done?)
        }),
    };
    summary(py, done?)
}

/// Restores `src` to `dst`, in bounded memory; returns a `Summary`. Each is a path or a binary file object, with `read(size)` or
/// `write(bytes)`.
///
/// After an error, discard whatever was written to a file object. The options are those of `lmc.decompress`. Exceptions of file objects are
/// passed on, and raw ones that are not ready raise `BlockingIOError`.
#[pyfunction]
#[pyo3(signature = (src, dst, *, base=None, threads=None, max_size=None, max_work=None))]
pub(crate) fn decompress_stream<'py>(
    py: Python<'py>,
    src: &Bound<'py, PyAny>,
    dst: &Bound<'py, PyAny>,
    base: Option<&Bound<'_, PyAny>>,
    threads: Option<Threads>,
    max_size: Option<MaxSize>,
    max_work: Option<MaxWork>,
) -> Result<Record<'py>> {
    let o = decompress_options(threads, max_size, max_work)?;
    let (src, dst, bases) = (End::get(src, "src", "read")?, End::get(dst, "dst", "write")?, bases_of(base)?);
    let restore = |src: &mut dyn Read, dst: &mut dyn Write| -> Result<Result<lmc::Summary, lmc::Error>> {
        let (bases, mut codec) = (bases.link(o.threads)?, lmc::Decompressor::new(&o)?);
        Ok(codec.decompress(src, &bases, dst))
    };
    dst.check(py, &src, &bases)?;
    let done = match (src, dst) {
        (End::Path(src), End::Path(dst)) => decompress_path(py, &o, &Source::open(src)?, &dst, &bases, true),
        (End::Path(src), End::Object(object)) => {
            let source = Source::open(src)?;
            detached(py, || {
                let done = restore(&mut source.stream(), &mut Writer { object });
                source.check_unchanged()?;
                done?.map_err(|e| about(&source, e))
            })
        }
        (End::Object(object), End::Path(dst)) => {
            into_path(py, &dst, &object.clone_ref(py), &bases, |to| Ok(restore(&mut Stream { object }, to)??))
        }
        (End::Object(src), End::Object(dst)) => {
            detached(py, || Ok(restore(&mut Stream { object: src }, &mut Writer { object: dst })??))
        }
    };
    summary(py, done?)
}

/// Registers a file object that is read.
fn keep_open(guard: &Guard, source: &Bound<'_, PyAny>) {
    if let Some((path, id)) = file_of(source) {
        guard.keep_known(Role::Input, &path, id);
    }
}

/// Writes a file from a file object, which is read on the calling thread, the one that handles signals.
fn into_path(
    py: Python<'_>,
    dst: &Path,
    src: &Py<PyAny>,
    bases: &Bases,
    work: impl FnOnce(&mut dyn Write) -> Result<lmc::Summary> + Send,
) -> Result<lmc::Summary> {
    let guard = bases.guard(None);
    keep_open(&guard, src.bind(py));
    Signals::watch(py, 0, |signals| {
        let mut target = Target::create(dst, true, false, guard, signals)?;
        let done = work(&mut target)?;
        target.finish(None)?;
        Ok(done)
    })
}

/// A binary file object that is read.
struct Stream {
    object: Py<PyAny>,
}

/// A binary file object that is written.
struct Writer {
    object: Py<PyAny>,
}

/// Calls Python on the calling thread, which handles signals.
fn attached<T>(call: impl FnOnce(Python<'_>) -> Result<T>) -> io::Result<T> {
    crate::source::attached(|py| {
        py.check_signals()?;
        call(py)
    })
}

/// Fails if a file object had nothing to read or no room to write, which a raw one of Python says by `None`.
fn check_ready(object: &Bound<'_, PyAny>, result: &Bound<'_, PyAny>) -> Result<()> {
    let py = object.py();
    if result.is_none() && object.is_instance(&py.import("io")?.getattr("RawIOBase")?)? {
        let why = "the file object is non-blocking and not ready: let it wait with os.set_blocking(f.fileno(), True)";
        return Err(PyBlockingIOError::new_err((libc::EAGAIN, why)).into());
    }
    Ok(())
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        attached(|py| {
            let object = self.object.bind(py);
            let read = object.call_method1("read", (buf.len(),))?;
            check_ready(object, &read)?;
            let bytes = read_bytes(&read, buf.len())?;
            buf[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}

impl Write for Writer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        attached(|py| {
            let object = self.object.bind(py);
            let written = object.call_method1("write", (PyBytes::new(py, buf),))?;
            check_ready(object, &written)?;
            // Simple file objects return nothing when they have written everything.
            let n = if written.is_none() { buf.len() } else { number(&written, "result of write() of a file object")? };
            if n > buf.len() {
                let why = format!("write() of a file object says that it wrote {n} bytes of {}", buf.len());
                return Err(Failure::Other("IOError", why));
            }
            Ok(n)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        attached(|py| {
            let object = self.object.bind(py);
            if object.hasattr("flush")? {
                object.call_method0("flush")?;
            }
            Ok(())
        })
    }
}
