//! What is said of a file: its tensors, its bases, its hash.

use lmc::Segment;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::Result;

/// A tensor of a file.
#[pyclass(frozen, get_all, module = "lmc")]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Py<PyTuple>,
    pub(crate) offset: u64,
    pub(crate) nbytes: u64,
}

impl Tensor {
    /// `None` for what is between tensors.
    pub(crate) fn of(py: Python<'_>, s: &Segment) -> Result<Option<Self>> {
        let (Some(name), Some(dtype)) = (&s.name, s.dtype) else { return Ok(None) };
        let shape = PyTuple::new(py, s.shape.iter())?.unbind();
        let name = name.to_string();
        Ok(Some(Self { name, dtype: dtype.name(), shape, offset: s.offset, nbytes: s.len }))
    }
}

#[pymethods]
impl Tensor {
    fn __repr__(&self, py: Python<'_>) -> String {
        let shape = self.shape.bind(py);
        format!("Tensor(name={:?}, dtype={:?}, shape={shape}, nbytes={})", self.name, self.dtype, self.nbytes)
    }
}

/// What a delta was made from.
#[pyclass(frozen, get_all, module = "lmc")]
pub(crate) struct BaseInfo {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) content_hash: String,
}

#[pymethods]
impl BaseInfo {
    fn __repr__(&self) -> String {
        format!("BaseInfo(name={:?}, size={}, content_hash={:?})", self.name, self.size, self.content_hash)
    }
}

pub(crate) fn hex(hash: &[u8]) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}
