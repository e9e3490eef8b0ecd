//! Information about a file: its tensors, its bases, its hash.

use lmc::{Dtype, Segment, Shape};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::errors::Result;
use crate::repr::record_repr;

/// A tensor of a file.
#[pyclass(frozen, module = "lmc")]
pub(crate) struct Tensor {
    #[pyo3(get)]
    pub(crate) name: Py<PyString>,
    pub(crate) dtype: Dtype,
    /// The Python tuple is created on demand: those of many tensors would burden the garbage collector.
    pub(crate) shape: Shape,
    #[pyo3(get)]
    pub(crate) offset: u64,
    #[pyo3(get)]
    pub(crate) nbytes: u64,
}

impl Tensor {
    /// `None` for bytes between tensors.
    pub(crate) fn of(py: Python<'_>, s: &Segment) -> Option<Self> {
        let (name, dtype) = (s.name.as_deref()?, s.dtype?);
        let name = PyString::new(py, name).unbind();
        Some(Self { name, dtype, shape: s.shape.clone(), offset: s.offset, nbytes: s.len })
    }
}

#[pymethods]
impl Tensor {
    #[getter]
    fn dtype(&self) -> &str {
        self.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape[..])
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        let (name, dtype, shape) = (self.name.bind(py).to_cow()?, self.dtype(), self.shape(py)?);
        Ok(format!("Tensor(name={name:?}, dtype={dtype:?}, shape={shape}, nbytes={})", self.nbytes))
    }
}

/// A base of a delta.
#[pyclass(frozen, get_all, module = "lmc")]
pub(crate) struct BaseInfo {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) content_hash: String,
}

record_repr!(BaseInfo(name, size, content_hash));

pub(crate) fn hex(hash: &[u8]) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}
