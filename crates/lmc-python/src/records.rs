//! Records: the classes of `lmc/_records.py`, and what classes of this crate share that compare by their fields.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::errors::Result;
use crate::info::hex;

pub(crate) type Record<'py> = Bound<'py, PyAny>;

/// Makes a record of a class from its fields, in their order.
pub(crate) fn record<'py>(py: Python<'py>, class: &str, fields: impl PyCallArgs<'py>) -> Result<Record<'py>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("lmc._records")?.unbind()))?;
    Ok(module.bind(py).getattr(class)?.call1(fields)?)
}

pub(crate) fn summary(py: Python<'_>, s: lmc::Summary) -> Result<Record<'_>> {
    let hash = hex(&s.content_hash);
    record(py, "Summary", (s.raw_size, s.compressed_size, hash, s.blocks, s.unlisted_tensors))
}

/// The values of these fields.
pub(crate) fn fields<'py>(of: &Bound<'py, PyAny>, names: &[&str]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(of.py(), names.iter().map(|name| of.getattr(*name)).collect::<PyResult<Vec<_>>>()?)
}

/// The methods of a class, with those by which it compares, and is pickled and copied: by these fields, from which its `_of` makes it.
macro_rules! compared {
    ($class:ident($($field:ident),+) { $($methods:tt)* }) => {
        #[pymethods]
        impl $class {
            $($methods)*

            fn __reduce__<'py>(
                this: &Bound<'py, Self>,
            ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, pyo3::types::PyTuple>)> {
                let fields = crate::records::fields(this, &[$(stringify!($field)),+])?;
                Ok((this.get_type().getattr("_of")?, fields))
            }

            fn __eq__(this: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<bool> {
                let names = [$(stringify!($field)),+];
                crate::records::fields(this, &names)?.eq(crate::records::fields(other, &names)?)
            }

            fn __hash__(this: &Bound<'_, Self>) -> PyResult<isize> {
                // Equal ones show themselves alike, and their lists cannot be hashed.
                this.repr()?.hash()
            }
        }
    };
}

pub(crate) use compared;
