//! The argument `base=` of all functions.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::bases::{BaseSource, Bases};
use crate::buffer::Buffer;
use crate::errors::Result;
use crate::open::File;
use crate::source::{Source, as_path};
use crate::text::text;

/// A base and its name.
#[pyclass(frozen, module = "lmc")]
pub(crate) struct Base {
    name: Arc<str>,
    /// The base, and its own bases.
    bases: Bases,
}

#[pymethods]
impl Base {
    #[new]
    #[pyo3(signature = (source, *, name))]
    fn new(source: &Bound<'_, PyAny>, #[pyo3(from_py_with = text)] name: &str) -> Result<Self> {
        let mut bases = Bases::default();
        add(&mut bases, source)?;
        let name: Arc<str> = name.into();
        bases.0[0].name = Some(name.clone());
        Ok(Self { name, bases })
    }

    /// The name that deltas record.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    fn __repr__(&self) -> String {
        format!("<lmc.Base {:?}>", self.name)
    }
}

const EXPECTED: &str = "base must be a buffer, a path, an open lmc.File, an lmc.Base, or a list of those";

/// Converts the argument `base`.
pub(crate) fn bases_of(base: Option<&Bound<'_, PyAny>>) -> Result<Bases> {
    let mut all = Bases::default();
    match base {
        None => {}
        Some(list) if list.is_instance_of::<PyList>() || list.is_instance_of::<PyTuple>() => {
            for one in list.try_iter()? {
                add(&mut all, &one?)?;
            }
        }
        Some(one) => add(&mut all, one)?,
    }
    Ok(all)
}

fn add(bases: &mut Bases, base: &Bound<'_, PyAny>) -> Result<()> {
    if let Ok(file) = base.cast::<File>() {
        let (source, own) = file.get().sources(base.py())?;
        bases.0.push(BaseSource::new(source, false));
        for b in own.0 {
            // Once, though several of the bases may be deltas of it.
            if !bases.0.iter().any(|known| Arc::ptr_eq(&known.source, &b.source) && known.name == b.name) {
                bases.0.push(BaseSource { optional: true, ..b });
            }
        }
        return Ok(());
    }
    if let Ok(named) = base.cast::<Base>() {
        bases.0.extend_from_slice(&named.get().bases.0);
        return Ok(());
    }
    let source = match as_path(base)? {
        Some(path) => Source::open(path)?,
        None => Source::Buffer(Buffer::get(base, EXPECTED)?),
    };
    bases.0.push(BaseSource::new(Arc::new(source), false));
    Ok(())
}
