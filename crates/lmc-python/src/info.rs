//! Information about a file: its tensors, its hash.

use lmc::layout::Shape;
use lmc::{Dtype, Segment};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::errors::Result;
use crate::records::compared;

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

compared!(Tensor(name, dtype, shape, offset, nbytes) {
    #[classmethod]
    fn _of(
        _class: &Bound<'_, PyType>,
        name: Py<PyString>,
        dtype: &str,
        shape: Vec<u64>,
        offset: u64,
        nbytes: u64,
    ) -> Result<Self> {
        Ok(Self { name, dtype: crate::options::dtype(dtype)?, shape: shape.into_iter().collect(), offset, nbytes })
    }

    #[getter]
    fn dtype(&self) -> &str {
        self.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape[..])
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (name, dtype, shape) = (self.name.bind(py).to_string_lossy(), self.dtype.name(), self.shape(py)?);
        Ok(format!("Tensor(name={name:?}, dtype={dtype:?}, shape={shape}, nbytes={})", self.nbytes))
    }
});

pub(crate) fn hex(hash: &[u8]) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}
