//! The metadata of a snapshot: text and numbers by name.

use lmc_store::{MetaValue, Metadata};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyMapping, PyString};

use crate::numbers::number_within;
use crate::text::text;

/// An argument that is metadata.
pub(super) fn get(object: &Bound<'_, PyAny>) -> PyResult<Metadata> {
    let pairs = object.cast::<PyMapping>()?.items()?;
    let pairs = pairs.iter().map(|pair| {
        let (key, value) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let key = text(&key)?.to_owned();
        let value = self::value(&key, &value)?;
        Ok((key, value))
    });
    pairs.collect()
}

/// An argument that is metadata or `None`.
pub(super) fn optional(object: &Bound<'_, PyAny>) -> PyResult<Option<Metadata>> {
    if object.is_none() { Ok(None) } else { get(object).map(Some) }
}

/// Text, an integer, or what converts to a float: so do numbers of NumPy, and tensors of one element.
fn value(key: &str, object: &Bound<'_, PyAny>) -> PyResult<MetaValue> {
    if object.is_instance_of::<PyString>() {
        return Ok(text(object)?.into());
    }
    let is_other = |e: &PyErr| e.is_instance_of::<PyTypeError>(object.py());
    let name = format!("metadata[{key:?}]");
    if !object.is_instance_of::<PyBool>() {
        match number_within(object, &name, "from -2^53 to 2^53, or text") {
            Ok(n) => return Ok(MetaValue::Integer(n)),
            Err(e) if !is_other(&e) => return Err(e),
            Err(_) => {}
        }
        match object.extract() {
            Ok(x) => return Ok(MetaValue::Float(x)),
            Err(e) if !is_other(&e) => return Err(e),
            Err(_) => {}
        }
    }
    Err(PyTypeError::new_err(format!("{name} must be text or a number, not {}", object.get_type().name()?)))
}

/// Metadata as a dict.
pub(super) fn dict<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in metadata {
        match value {
            MetaValue::Integer(n) => dict.set_item(key, n)?,
            MetaValue::Float(x) => dict.set_item(key, x)?,
            text => dict.set_item(key, text.to_string())?,
        }
    }
    Ok(dict)
}
