//! The header of a safetensors file.

use lmc::layout::safetensors::{self, header_len};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::errors::{Failure, Result};
use crate::info::Tensor;

/// Bytes of a file that are read first, at most.
const MAX_START: u64 = 100_000_000;
/// Length limit of the reason in an error: it may contain long names.
const MAX_REASON: usize = 200;

/// The contents of a safetensors header. Python objects are created on demand: those of many tensors would keep the garbage collector busy.
#[pyclass(frozen, module = "lmc._lmc")]
pub(crate) struct Header(safetensors::Header);

#[pymethods]
impl Header {
    /// Names of the tensors, in the order of their bytes.
    fn names(&self) -> Vec<&str> {
        self.0.tensors.iter().filter_map(|segment| segment.name.as_deref()).collect()
    }

    /// The distinct dtypes.
    fn dtypes(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.0.tensors.iter().filter_map(|t| Some(t.dtype.as_ref()?.name())).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The tensors in the order of their bytes.
    fn tensors(&self, py: Python<'_>) -> Vec<Tensor> {
        self.0.tensors.iter().filter_map(|segment| Tensor::of(py, segment)).collect()
    }

    /// The `__metadata__`, if there is any.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let pairs = |m: &Vec<(String, String)>| m.iter().map(|(k, v)| (k, v)).into_py_dict(py);
        self.0.metadata.as_ref().map(pairs).transpose()
    }

    fn __len__(&self) -> usize {
        self.0.tensors.len()
    }
}

/// Parses the header of the file `of`, of `size` bytes. Reading its first `at_once` bytes takes as long as reading one.
///
/// # Errors
/// `UnsupportedError` when it is not a safetensors file, `DamagedError` when it is invalid; those of `read_range`.
pub(crate) fn read(
    of: &str,
    size: u64,
    at_once: u64,
    read_range: impl Fn(u64, usize) -> Result<Vec<u8>>,
) -> Result<Header> {
    let mut start = read_range(0, size.min(at_once.clamp(9, MAX_START)) as usize)?;
    let len = header_len(&start).ok_or_else(|| {
        Failure::Other("UnsupportedError", format!("{of}: is not a safetensors file; lmc.open reads any file"))
    })?;
    if start.len() < len.min(size) as usize {
        start = read_range(0, len.min(size) as usize)?;
    }
    safetensors::Header::parse(&start, size).map(Header).map_err(|mut why| {
        if let Some((end, _)) = why.char_indices().nth(MAX_REASON) {
            why.truncate(end);
            why.push('…');
        }
        Failure::Other("DamagedError", format!("{of}: the header of the safetensors file is invalid: {why}"))
    })
}
