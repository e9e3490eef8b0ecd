//! Text from Python. A lone surrogate is an `lmc.UsageError` instead of a `UnicodeEncodeError`.

use std::collections::BTreeMap;

use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError};
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};

use crate::errors::Failure;

/// The error for an object with a lone surrogate, in place of `e`.
pub(crate) fn refused(object: &Bound<'_, PyAny>, e: PyErr) -> PyErr {
    if !e.is_instance_of::<PyUnicodeEncodeError>(object.py()) {
        return e;
    }
    let shown = object.repr().map_or_else(|_| "a name".to_owned(), |r| r.to_string_lossy().into_owned());
    Failure::usage(format!("{shown} is not text: it contains half of a surrogate pair")).into()
}

/// An argument that is text.
pub(crate) fn text<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    object.extract::<&str>().map_err(|e| refused(object, e))
}

fn unless_none<'a, 'py, T>(
    object: &'a Bound<'py, PyAny>,
    get: impl FnOnce(&'a Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { get(object).map(Some) }
}

/// An argument that is text or `None`.
pub(crate) fn optional_text<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a str>> {
    unless_none(object, text)
}

/// An argument that is a list of text.
pub(crate) fn texts(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let all = object.extract::<Vec<Bound<'_, PyAny>>>()?;
    all.iter().map(|one| Ok(text(one)?.to_owned())).collect()
}

/// An argument that is a list of text or `None`.
pub(crate) fn optional_texts(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<String>>> {
    unless_none(object, texts)
}

/// Text by text, such as metadata.
pub(crate) fn map(object: &Bound<'_, PyAny>) -> PyResult<BTreeMap<String, String>> {
    let pairs = object.cast::<PyMapping>()?.items()?;
    let pairs = pairs.iter().map(|pair| {
        let (key, value) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let key = text(&key)?.to_owned();
        if !value.is_instance_of::<PyString>() {
            let class = value.get_type().name()?;
            return Err(PyTypeError::new_err(format!("metadata[{key:?}] must be text, not {class}: use str()")));
        }
        let value = text(&value)?.to_owned();
        Ok((key, value))
    });
    pairs.collect()
}

/// An argument that is text by text or `None`.
pub(crate) fn optional_map(object: &Bound<'_, PyAny>) -> PyResult<Option<BTreeMap<String, String>>> {
    unless_none(object, map)
}
