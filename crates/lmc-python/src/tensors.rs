//! Tensors in memory, compressed as the safetensors file that holds them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lmc::{Dtype, ReadAt, Sink};
use lmc_cli::Role;
use lmc_store::{TensorSource, Tensors};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::base::bases_of;
use crate::buffer::{Buffer, is_buffer, overlap};
use crate::codec::compress_source;
use crate::dlpack::Imported;
use crate::errors::{Failure, Result};
use crate::numbers;
use crate::options::{Threads, compress_options, dtype, threads_for};
use crate::records::{Record, summary};
use crate::source::{FileObject, Source, path};

use crate::target::Target;
use crate::text::{optional_map, text};
use crate::work::{Signals, detached};

/// A tensor as given by Python.
pub(crate) struct Given {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    data: Source,
}

impl Given {
    fn new(name: &str, of: &str, shape: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> Result<Self> {
        let source = if !is_buffer(data) && data.hasattr("read")? && data.hasattr("seek")? {
            Source::Object(FileObject::new(data)?)
        } else {
            let expected = || format!("the data of tensor {name:?} must be a C-contiguous bytes-like object");
            Source::Buffer(Buffer::get_or(data, expected)?)
        };
        Ok(Self { name: name.to_owned(), dtype: dtype(of)?, shape: numbers::shape(shape, name)?, data: source })
    }
}

/// Tensors added one by one, for functions that take an iterable of tensors, which consume them. No Python object per tensor is
/// created, which would burden the garbage collector.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct TensorList(Mutex<Vec<Given>>);

impl TensorList {
    /// Only threads that hold the interpreter hold the lock, and they never release the interpreter meanwhile: at a fork it is free.
    fn given(&self) -> MutexGuard<'_, Vec<Given>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TensorList {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Adds a tensor as for `lmc.compress_tensors`.
    #[pyo3(signature = (name, dtype, shape, data, /))]
    fn add(
        &self,
        #[pyo3(from_py_with = text)] name: &str,
        #[pyo3(from_py_with = text)] dtype: &str,
        shape: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> Result<()> {
        let given = Given::new(name, dtype, shape, data)?;
        self.given().push(given);
        Ok(())
    }

    /// Adds tensors, each a `(name, dtype, capsule)`: the shape and the memory are those of the DLPack tensor in the capsule, as in
    /// `DlpackMemory`. Stops and returns `False` if one has bytes but no address, or an address but no bytes.
    fn add_all(&self, tensors: &Bound<'_, PyAny>) -> Result<bool> {
        for tensor in tensors.try_iter()? {
            let (name, of, capsule): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) = tensor?.extract()?;
            let (name, dtype) = (text(&name)?, dtype(text(&of)?)?);
            let tensor = Imported::take(&capsule)?;
            if (tensor.len() == 0) != tensor.start().is_null() {
                return Ok(false);
            }
            let (shape, data) = (tensor.shape(), Source::Buffer(Buffer::of_tensor(tensor)));
            self.given().push(Given { name: name.to_owned(), dtype, shape, data });
        }
        Ok(true)
    }

    /// The header of the file that would hold them, without metadata. Does not consume the tensors.
    fn header<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, file(&self.given(), None)?.header()))
    }

    /// Whether any two share memory.
    fn overlap(&self) -> bool {
        overlap(self.given().iter().filter_map(|t| t.data.buffer()))
    }

    fn __len__(&self) -> usize {
        self.given().len()
    }
}

/// Metadata: text by name.
pub(crate) type Metadata = BTreeMap<String, String>;

/// The `(name, dtype, shape, buffer)` of an iterable.
pub(crate) fn given(tensors: &Bound<'_, PyAny>) -> Result<Vec<Given>> {
    if let Ok(list) = tensors.cast_exact::<TensorList>() {
        return Ok(std::mem::take(&mut *list.get().given()));
    }
    let mut all = Vec::new();
    for tensor in tensors.try_iter()? {
        let (name, of, shape, data): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
            tensor?.extract()?;
        all.push(Given::new(text(&name)?, text(&of)?, &shape, &data)?);
    }
    Ok(all)
}

/// The file that holds them, which exists only as it is read.
pub(crate) fn file<'a>(tensors: &'a [Given], metadata: Option<&Metadata>) -> Result<Tensors<'a>> {
    let source = |t: &'a Given| TensorSource { name: &t.name, dtype: t.dtype, shape: &t.shape, data: &t.data };
    let sources: Vec<_> = tensors.iter().map(source).collect();
    Tensors::of_sources(&sources, metadata).map_err(|e| match e.kind() {
        // The error is about the arguments, not about a store.
        lmc_store::ErrorKind::Usage => Failure::usage(e.to_string()),
        _ => e.into(),
    })
}

pub(crate) fn size(tensors: &[Given]) -> u64 {
    tensors.iter().filter_map(|t| t.data.size().ok()).sum()
}

/// Compresses tensors in memory as the safetensors file that would hold them, without creating that file; returns the `.lmc` file.
///
/// Each tensor is a `(name, dtype, shape, data)`: `dtype` as safetensors names it ("BF16"), `data` a C-contiguous buffer of its elements,
/// little-endian, or a seekable binary file object with them, which is read block by block, on any thread, and more than once. They may
/// come in any order. `metadata` is the `__metadata__` of the file. The other options are those of `lmc.compress`.
///
/// Raises `lmc.UsageError` when two have the same name, or when the bytes of one do not fit its dtype and shape.
#[pyfunction]
#[pyo3(signature = (tensors, *, metadata=None, base=None, level="default", threads=None))]
pub(crate) fn compress_tensors(
    py: Python<'_>,
    tensors: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = optional_map)] metadata: Option<Metadata>,
    base: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
) -> Result<Py<PyBytes>> {
    let o = compress_options(level, None, threads)?;
    let (tensors, bases) = (given(tensors)?, bases_of(base)?);
    let o = o.with_threads(threads_for(o.threads, size(&tensors)));
    let file = file(&tensors, metadata.as_ref())?;
    let mut codec = detached(py, || Ok(lmc::Compressor::new(&o)?))?;
    compress_source(py, &mut codec, &file, &bases, &mut Vec::new())
}

/// Compresses tensors in memory to a `.lmc` file at the path `dst`; returns a `Summary`.
///
/// Tensors are those of `lmc.compress_tensors`, and `dst` is written as by `lmc.compress_file`. Raises what both do.
#[pyfunction]
#[pyo3(signature = (tensors, dst, *, metadata=None, base=None, level="default", threads=None, overwrite=true))]
#[expect(clippy::too_many_arguments, reason = "they are keywords")]
pub(crate) fn compress_tensors_file<'py>(
    py: Python<'py>,
    tensors: &Bound<'py, PyAny>,
    dst: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = optional_map)] metadata: Option<Metadata>,
    base: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = text)] level: &str,
    threads: Option<Threads>,
    overwrite: bool,
) -> Result<Record<'py>> {
    let o = compress_options(level, None, threads)?;
    let (tensors, dst, bases) = (given(tensors)?, path(dst, "dst")?, bases_of(base)?);
    let size = size(&tensors);
    let o = o.with_threads(threads_for(o.threads, size));
    let file = file(&tensors, metadata.as_ref())?;
    let done = Signals::watch(py, size, |signals| {
        let guard = bases.guard(None);
        tensors.iter().for_each(|t| t.data.guard(&guard, Role::Input));
        let mut target = Target::create(&dst, overwrite, false, guard, signals)?;
        let (linked, mut codec) = (bases.link(o.threads)?, lmc::Compressor::new(&o)?);
        let done = codec.compress(&signals.interrupting(&file), &linked, Sink::writer(&mut target));
        bases.check_unchanged()?;
        let done = done?;
        target.replace_header(&done)?;
        target.finish(None)?;
        Ok(done)
    })?;
    summary(py, done)
}
