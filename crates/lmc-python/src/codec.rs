//! Compression and restoring in memory, and objects that keep threads and buffers between calls.

use std::sync::{Mutex, PoisonError};

use lmc::{CompressOptions, DecompressOptions, ReadAt, Reader};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping};

use crate::base::bases_of;
use crate::bases::Bases;
use crate::buffer::{Buffer, FreshBytes, Writable, is_buffer};
use crate::errors::{Failure, Result};
use crate::memory::expect_writes;
use crate::numbers::{MaxSize, MaxWork, Size};
use crate::options::{Threads, compress_options, decompress_options, threads_for};
use crate::process::PerProcess;
use crate::records::{Record, record};
use crate::source::{Source, as_path};
use crate::text::{optional_text, text};
use crate::work::{Signals, detached};

/// The argument `data` of `lmc.compress`, `lmc.decompress` and the like, for which other functions take paths and file objects: errors
/// say so.
fn data_of(data: &Bound<'_, PyAny>, verb: &str) -> Result<Buffer> {
    const EXPECTED: &str = "data must be a C-contiguous bytes-like object";
    if is_buffer(data) {
        return Buffer::get(data, EXPECTED);
    }
    let class = data.get_type().name()?.to_string();
    let instead = match () {
        () if as_path(data)?.is_some() => format!("lmc.{verb}_file takes paths"),
        () if data.hasattr("read")? => format!("lmc.{verb}_stream takes file objects"),
        () if verb == "compress" && (data.hasattr("data_ptr")? || data.cast::<PyMapping>().is_ok()) => {
            "lmc.torch.save_file and lmc.numpy.save_file take tensors by name, and lmc.Store.save a state".to_owned()
        }
        () => return Err(PyTypeError::new_err(format!("{EXPECTED}, not {class}")).into()),
    };
    Err(PyTypeError::new_err(format!("{EXPECTED}, not {class}: {instead}")).into())
}

/// Compresses a file in memory; returns the `.lmc` file.
///
/// `data` is a C-contiguous buffer (bytes, bytearray, memoryview, mmap, an array of any dtype), which is not copied: if its
/// memory goes away meanwhile, as by `resize(refcheck=False)`, the process ends. `dtype` is the element
/// type of data in unknown format, such as "BF16"; without it the element width is detected. `base` (a buffer, a path, an open `lmc.File`,
/// or a list of those) is an earlier version: only the differences are stored. `level` is "fast", "default" or "max". `threads=None`
/// takes one per core; the result does not depend on it. With `digest`, the file has the SHA-256 of the data and of the bases, which are
/// compared when it is restored: without them, a forged base may pass for the right one.
///
/// Raises `TypeError` for an object that is not a buffer; `lmc.UsageError` for a buffer that is not contiguous, and for invalid options;
/// what `lmc.open` raises for bases that cannot be read.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, base=None, level="default", threads=None, digest=false))]
pub(crate) fn compress(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = optional_text)] dtype: Option<&str>,
    base: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
    digest: bool,
) -> Result<Py<PyBytes>> {
    let o = compress_options(level, dtype, threads)?.with_digest(digest);
    let (data, bases) = (data_of(data, "compress")?, bases_of(base)?);
    let o = o.with_threads(threads_for(o.threads, data.len() as u64));
    let mut codec = new_compressor(py, &o)?;
    compress_source(py, &mut codec, &data, &bases, &mut Vec::new())
}

/// Compresses a file in memory to the front of `out`, a writable C-contiguous buffer; returns the number of bytes.
///
/// A buffer of `lmc.compress_bound` bytes is always large enough. A smaller one costs additional memory and time. Until the call returns no
/// other thread may access `out`. After an error its contents are unspecified. The options are those of `lmc.compress`.
///
/// Raises what `lmc.compress` does, `lmc.LimitError` when the file does not fit, and `lmc.UsageError` when `out` is read-only, or shares
/// memory with `data` or a base.
#[pyfunction]
#[pyo3(signature = (data, out, *, dtype=None, base=None, level="default", threads=None))]
pub(crate) fn compress_into(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = optional_text)] dtype: Option<&str>,
    base: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
) -> Result<u64> {
    let o = compress_options(level, dtype, threads)?;
    let (data, out, bases) = (data_of(data, "compress")?, Writable::get(out)?, bases_of(base)?);
    let o = o.with_threads(threads_for(o.threads, data.len() as u64));
    compress_source_into(py, &mut new_compressor(py, &o)?, &data, &bases, out)
}

/// The size of `out` with which `lmc.compress_into` compresses a file of `size` bytes in place.
#[pyfunction]
pub(crate) fn compress_bound(size: Size) -> u64 {
    lmc::compress_bound(size.0)
}

/// Restores a `.lmc` file in memory; returns the bytes that were compressed.
///
/// A delta needs the `base` that it was made from. A small file can restore to terabytes: `max_size` limits the result, in bytes. A forged
/// file can make the decoder work much for little output: `max_work` limits the bytes that a call decodes in all, bases included; by
/// default 96 times the requested size plus 4 GiB.
///
/// Raises `lmc.DamagedError` or `lmc.UnsupportedError` (both an `lmc.FormatError` and a `ValueError`) for data that is not a complete
/// `.lmc` file, `lmc.LimitError` when the result exceeds `max_size` or memory, or the work `max_work`, `lmc.BaseMismatchError` when a base
/// is missing, wrong, or not needed.
#[pyfunction]
#[pyo3(signature = (data, *, base=None, threads=None, max_size=None, max_work=None))]
pub(crate) fn decompress(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    base: Option<&Bound<'_, PyAny>>,
    threads: Option<Threads>,
    max_size: Option<MaxSize>,
    max_work: Option<MaxWork>,
) -> Result<Py<PyBytes>> {
    let o = decompress_options(threads, max_size, max_work)?;
    let (data, bases) = (data_of(data, "decompress")?, bases_of(base)?);
    let size = detached(py, || raw_size(&data, &o))?;
    let o = o.with_threads(threads_for(o.threads, size));
    decompress_source(py, &mut new_decompressor(py, &o)?, &data, &bases, size)
}

/// Restores a `.lmc` file in memory into `out`, a writable C-contiguous buffer of exactly its raw size; returns the number of bytes.
///
/// Until the call returns no other thread may access `out`. After an error its contents are unspecified.
///
/// Raises what `lmc.decompress` does, and `lmc.UsageError` when `out` has another size, is read-only, or shares memory with `data` or a
/// base.
#[pyfunction]
#[pyo3(signature = (data, out, *, base=None, threads=None, max_work=None))]
pub(crate) fn decompress_into(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    base: Option<&Bound<'_, PyAny>>,
    threads: Option<Threads>,
    max_work: Option<MaxWork>,
) -> Result<usize> {
    let o = decompress_options(threads, None, max_work)?;
    let (data, out, bases) = (data_of(data, "decompress")?, Writable::get(out)?, bases_of(base)?);
    let o = o.with_threads(threads_for(o.threads, out.len() as u64));
    let mut codec = new_decompressor(py, &o)?;
    decompress_source_into(py, &mut codec, &data, &bases, out)
}

/// Estimates the result of compressing a file from some of its blocks: to decide whether to compress, and with which bases and level.
///
/// `data` is a path or a buffer; everything else is as for `lmc.compress`.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, base=None, level="default", threads=None))]
pub(crate) fn estimate<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = optional_text)] dtype: Option<&str>,
    base: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
) -> Result<Record<'py>> {
    let o = compress_options(level, dtype, threads)?;
    let source = match as_path(data)? {
        Some(path) => Source::open(path)?,
        None => Source::Buffer(Buffer::get(data, "data must be a path or a C-contiguous bytes-like object")?),
    };
    let bases = bases_of(base)?;
    let mut codec = new_compressor(py, &o)?;
    let lmc::Estimate { raw_size, compressed_size, margin, sampled, .. } = detached(py, || {
        let bases = bases.link(o.threads)?;
        Ok(codec.estimate(&source, &bases)?)
    })?;
    record(py, "Estimate", (raw_size, compressed_size, margin, sampled))
}

fn new_compressor(py: Python<'_>, o: &CompressOptions) -> Result<lmc::Compressor> {
    detached(py, || Ok(lmc::Compressor::new(o)?))
}

fn new_decompressor(py: Python<'_>, o: &DecompressOptions) -> Result<lmc::Decompressor> {
    detached(py, || Ok(lmc::Decompressor::new(o)?))
}

/// Compresses to `out`, replacing its contents, and copies the result to a `bytes` object.
pub(crate) fn compress_source(
    py: Python<'_>,
    codec: &mut lmc::Compressor,
    source: &dyn ReadAt,
    bases: &Bases,
    out: &mut Vec<u8>,
) -> Result<Py<PyBytes>> {
    let size = source.size().map_err(|e| lmc::Error::io("cannot determine the size of the input", e))?;
    Signals::watch(py, size, |signals| {
        reserve(out, size)?;
        let linked = bases.link(1)?;
        let done = codec.compress(&signals.interrupting(source), &linked, &mut *out);
        bases.check_unchanged()?;
        done?;
        Ok(())
    })?;
    let mut bytes = FreshBytes::new(py, out.len() as u64)?;
    detached(py, || {
        move_to(out, bytes.as_mut_slice());
        Ok(())
    })?;
    Ok(bytes.finish())
}

/// Compresses to the front of a buffer; returns the number of bytes.
fn compress_source_into(
    py: Python<'_>,
    codec: &mut lmc::Compressor,
    source: &Buffer,
    bases: &Bases,
    mut out: Writable,
) -> Result<u64> {
    check_apart(source, bases, &out)?;
    Signals::watch(py, source.len() as u64, |signals| {
        let linked = bases.link(1)?;
        let done = codec.compress(&signals.interrupting(source), &linked, out.as_mut_slice());
        bases.check_unchanged()?;
        Ok(done?.compressed_size)
    })
}

/// Fails if the output buffer shares memory with an input.
fn check_apart(source: &Buffer, bases: &Bases, out: &Writable) -> Result<()> {
    if source.overlaps(out) {
        return Err(Failure::usage("out shares memory with data"));
    }
    bases.check_apart(out)
}

/// A larger vector is not kept for the next call, and is moved in chunks of this size.
const KEEP: usize = 64 << 20;

/// Allocates memory for a compressed file: zeros, which take no physical memory until they are overwritten.
fn reserve(out: &mut Vec<u8>, raw_size: u64) -> Result<()> {
    let most = usize::try_from(lmc::compress_bound(raw_size))
        .ok()
        .filter(|&most| most <= out.capacity() || Vec::<u8>::new().try_reserve_exact(most).is_ok());
    let Some(most) = most else {
        let why = format!("out of memory for compressing {raw_size} bytes: compress to a file");
        return Err(Failure::Other("LimitError", why));
    };
    if most > out.capacity() {
        *out = vec![0; most];
        expect_writes(out);
    }
    Ok(())
}

/// Copies a vector from its end, and frees the copied memory meanwhile: a large one never exists twice.
fn move_to(from: &mut Vec<u8>, to: &mut [u8]) {
    while from.len() > KEEP {
        let rest = from.len() - KEEP;
        to[rest..rest + KEEP].copy_from_slice(&from[rest..]);
        from.truncate(rest);
        from.shrink_to_fit();
    }
    to[..from.len()].copy_from_slice(from);
    if from.capacity() > KEEP {
        *from = Vec::new();
    }
}

/// Raw size of a `.lmc` file. Fails early for most files that are not.
pub(crate) fn raw_size(source: &dyn ReadAt, o: &DecompressOptions) -> Result<u64> {
    let mut alone = *o;
    alone.threads = 1; // nothing is decoded
    Ok(Reader::open(source, &alone)?.raw_size())
}

fn decompress_source(
    py: Python<'_>,
    codec: &mut lmc::Decompressor,
    source: &dyn ReadAt,
    bases: &Bases,
    size: u64,
) -> Result<Py<PyBytes>> {
    let mut bytes = FreshBytes::new(py, size)?;
    restore(py, codec, source, bases, bytes.as_mut_slice())?;
    Ok(bytes.finish())
}

/// Restores into a buffer of exactly the raw size; returns the number of bytes.
fn decompress_source_into(
    py: Python<'_>,
    codec: &mut lmc::Decompressor,
    source: &Buffer,
    bases: &Bases,
    mut out: Writable,
) -> Result<usize> {
    check_apart(source, bases, &out)?;
    restore(py, codec, source, bases, out.expecting_writes())?;
    Ok(out.len())
}

fn restore(
    py: Python<'_>,
    codec: &mut lmc::Decompressor,
    source: &dyn ReadAt,
    bases: &Bases,
    out: &mut [u8],
) -> Result<()> {
    Signals::watch(py, out.len() as u64, |signals| {
        let bases = bases.link(1)?;
        codec.decompress(&signals.interrupting(source), &bases, out)?;
        Ok(())
    })
}

/// Idle codecs, with their threads and buffers.
struct Idle<C>(PerProcess<Mutex<Vec<C>>>);

impl<C> Idle<C> {
    /// The most that are kept.
    const MOST: usize = 16;

    fn new() -> Self {
        Self(PerProcess::new("codec", Mutex::default()))
    }

    /// Calls `work` with an idle codec, or a new one.
    fn with<T>(&self, make: impl FnOnce() -> Result<C>, work: impl FnOnce(&mut C) -> Result<T>) -> Result<T> {
        let all = self.0.get(|_| Ok(Mutex::default()))?;
        let idle = || all.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let mut codec = kept.map_or_else(make, Ok)?;
        let done = work(&mut codec);
        let mut idle = idle();
        if idle.len() < Self::MOST {
            idle.push(codec);
        }
        done
    }
}

/// Compresses files in memory, and keeps threads and buffers between calls.
///
/// Several threads may call it at once. The options are those of `lmc.compress`.
#[pyclass(frozen, module = "lmc")]
pub(crate) struct Compressor {
    o: CompressOptions,
    /// With output buffers.
    idle: Idle<(lmc::Compressor, Vec<u8>)>,
}

impl Compressor {
    /// Runs `work` with a codec exclusive to the call, and its output buffer.
    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&mut lmc::Compressor, &mut Vec<u8>) -> Result<T>) -> Result<T> {
        self.idle.with(|| Ok((new_compressor(py, &self.o)?, Vec::new())), |(codec, out)| work(codec, out))
    }
}

#[pymethods]
impl Compressor {
    #[new]
    #[pyo3(signature = (*, dtype=None, level="default", threads=None))]
    fn new(
        #[pyo3(from_py_with = optional_text)] dtype: Option<&str>,
        #[pyo3(from_py_with = text)] level: &str,
        threads: Option<Threads>,
    ) -> Result<Self> {
        Ok(Self { o: compress_options(level, dtype, threads)?, idle: Idle::new() })
    }

    /// Compresses a file in memory, as `lmc.compress` does.
    #[pyo3(signature = (data, *, base=None))]
    fn compress(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        base: Option<&Bound<'_, PyAny>>,
    ) -> Result<Py<PyBytes>> {
        let (data, bases) = (data_of(data, "compress")?, bases_of(base)?);
        self.with(py, |codec, out| compress_source(py, codec, &data, &bases, out))
    }

    /// Compresses a file in memory to the front of the caller's buffer, as `lmc.compress_into` does.
    #[pyo3(signature = (data, out, *, base=None))]
    fn compress_into(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        base: Option<&Bound<'_, PyAny>>,
    ) -> Result<u64> {
        let (data, out, bases) = (data_of(data, "compress")?, Writable::get(out)?, bases_of(base)?);
        self.with(py, |codec, _| compress_source_into(py, codec, &data, &bases, out))
    }
}

/// Restores files in memory, and keeps threads and buffers between calls.
///
/// Several threads may call it at once. The options are those of `lmc.decompress`.
#[pyclass(frozen, module = "lmc")]
pub(crate) struct Decompressor {
    o: DecompressOptions,
    idle: Idle<lmc::Decompressor>,
}

impl Decompressor {
    /// Runs `work` with a codec exclusive to the call.
    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&mut lmc::Decompressor) -> Result<T>) -> Result<T> {
        self.idle.with(|| new_decompressor(py, &self.o), work)
    }
}

#[pymethods]
impl Decompressor {
    #[new]
    #[pyo3(signature = (*, threads=None, max_size=None, max_work=None))]
    fn new(threads: Option<Threads>, max_size: Option<MaxSize>, max_work: Option<MaxWork>) -> Result<Self> {
        Ok(Self { o: decompress_options(threads, max_size, max_work)?, idle: Idle::new() })
    }

    /// Restores a file in memory, as `lmc.decompress` does.
    #[pyo3(signature = (data, *, base=None))]
    fn decompress(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        base: Option<&Bound<'_, PyAny>>,
    ) -> Result<Py<PyBytes>> {
        let (data, bases) = (data_of(data, "decompress")?, bases_of(base)?);
        let size = detached(py, || raw_size(&data, &self.o))?;
        self.with(py, |codec| decompress_source(py, codec, &data, &bases, size))
    }

    /// Restores a file in memory into the caller's buffer, as `lmc.decompress_into` does.
    #[pyo3(signature = (data, out, *, base=None))]
    fn decompress_into(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        base: Option<&Bound<'_, PyAny>>,
    ) -> Result<usize> {
        let (data, out, bases) = (data_of(data, "decompress")?, Writable::get(out)?, bases_of(base)?);
        self.with(py, |codec| decompress_source_into(py, codec, &data, &bases, out))
    }
}
