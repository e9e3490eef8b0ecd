//! Plain records: shown, compared and pickled by their fields.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

/// How a field shows itself, as in Python.
pub(crate) trait Shown {
    fn shown(&self) -> String;
}

macro_rules! shown_as_in_rust {
    ($($type:ty),*) => {
        $(impl Shown for $type {
            fn shown(&self) -> String {
                format!("{self:?}")
            }
        })*
    };
}

shown_as_in_rust!(u32, u64, usize, f64, String, PathBuf, Vec<u64>, Vec<String>, Vec<Vec<String>>);

impl Shown for bool {
    fn shown(&self) -> String {
        if *self { "True" } else { "False" }.to_owned()
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| "None".to_owned(), Shown::shown)
    }
}

/// The fields of a record.
pub(crate) fn fields<'py>(record: &Bound<'py, PyAny>, names: &[&str]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(record.py(), names.iter().map(|name| record.getattr(*name)).collect::<PyResult<Vec<_>>>()?)
}

/// How a record is pickled, as are its copies: the class's `_of`, and the fields.
pub(crate) type Reduced<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

pub(crate) fn reduced<'py>(class: &Bound<'py, PyType>, fields: Bound<'py, PyTuple>) -> PyResult<Reduced<'py>> {
    Ok((class.getattr("_of")?, fields))
}

/// Defines how a record shows itself, compares and is pickled: by the name of the class and its fields. A class that is `shown by itself`
/// has a function `shown`. One whose values are not those of its fields has its own `_of`, which makes it from the fields, among its
/// methods.
macro_rules! record {
    ($class:ident($first:ident $(, $field:ident)*)) => {
        impl $class {
            fn shown(&self, _py: Python<'_>) -> String {
                use crate::repr::Shown;
                let mut all = format!(concat!(stringify!($class), "(", stringify!($first), "={}"), self.$first.shown());
                $(all += &format!(concat!(", ", stringify!($field), "={}"), self.$field.shown());)*
                all + ")"
            }
        }
        crate::repr::record!($class($first $(, $field)*) shown by itself);
    };
    ($class:ident($($field:ident),+) shown by itself) => {
        crate::repr::record!($class($($field),+) {
            #[classmethod]
            #[pyo3(signature = (*fields))]
            fn _of(_class: &Bound<'_, pyo3::types::PyType>, fields: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<Self> {
                let ($($field,)+) = fields.extract()?;
                Ok(Self { $($field),+ })
            }
        });
    };
    ($class:ident($($field:ident),+) { $($methods:tt)* }) => {
        #[pymethods]
        impl $class {
            $($methods)*

            fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<crate::repr::Reduced<'py>> {
                crate::repr::reduced(&this.get_type(), crate::repr::fields(this, &[$(stringify!($field)),+])?)
            }

            fn __eq__(this: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<bool> {
                let names = [$(stringify!($field)),+];
                crate::repr::fields(this, &names)?.eq(crate::repr::fields(other, &names)?)
            }

            fn __hash__(this: &Bound<'_, Self>) -> PyResult<isize> {
                // Equal records show themselves alike, and their lists cannot be hashed.
                this.repr()?.hash()
            }

            fn __repr__(&self, py: Python<'_>) -> String {
                self.shown(py)
            }
        }
    };
}

pub(crate) use record;
