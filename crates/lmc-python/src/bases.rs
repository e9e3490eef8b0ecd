//! The `base=` of every function that has one: what deltas are made from.

use std::sync::Arc;

use lmc::link_bases;
use lmc_cli::{Guard, Role};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::buffer::{Buffer, Writable};
use crate::errors::{Failure, Result};
use crate::file::File;
use crate::source::{Source, as_path};
use crate::text::text;

/// A base, not yet looked into: raw or compressed, or what a compressed one was made from.
#[derive(Clone)]
pub(crate) struct BaseSource {
    pub(crate) source: Arc<Source>,
    /// Whether it is one of which only another base may have need.
    pub(crate) optional: bool,
    /// The name that deltas record; that of the file if none was given.
    pub(crate) name: Option<Arc<str>>,
}

impl BaseSource {
    fn new(source: Arc<Source>, optional: bool) -> Self {
        Self { source, optional, name: None }
    }

    fn name(&self) -> String {
        self.name.as_deref().map_or_else(|| self.source.name(), str::to_owned)
    }
}

/// A base and its name.
#[pyclass(frozen, module = "lmc")]
pub(crate) struct Base {
    name: Arc<str>,
    /// The base, and those that it was made from.
    bases: Bases,
}

#[pymethods]
impl Base {
    #[new]
    #[pyo3(signature = (source, *, name))]
    fn new(source: &Bound<'_, PyAny>, #[pyo3(from_py_with = text)] name: &str) -> Result<Self> {
        let mut bases = Bases::default();
        bases.add(source)?;
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

/// What was given as `base=`.
#[derive(Clone, Default)]
pub(crate) struct Bases(pub(crate) Vec<BaseSource>);

const EXPECTED: &str = "base must be a buffer, a path, an open lmc.File, an lmc.Base, or a list of those";

impl Bases {
    pub(crate) fn get(base: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let mut all = Self::default();
        match base {
            None => {}
            Some(list) if list.is_instance_of::<PyList>() || list.is_instance_of::<PyTuple>() => {
                for one in list.try_iter()? {
                    all.add(&one?)?;
                }
            }
            Some(one) => all.add(one)?,
        }
        Ok(all)
    }

    fn add(&mut self, base: &Bound<'_, PyAny>) -> Result<()> {
        if let Ok(file) = base.cast::<File>() {
            let (source, own) = file.get().sources(base.py())?;
            self.0.push(BaseSource::new(source, false));
            self.0.extend(own.0.into_iter().map(|b| BaseSource { optional: true, ..b }));
            return Ok(());
        }
        if let Ok(named) = base.cast::<Base>() {
            self.0.extend_from_slice(&named.get().bases.0);
            return Ok(());
        }
        let source = match as_path(base)? {
            Some(path) => Source::open(path)?,
            None => Source::Buffer(Buffer::get(base, EXPECTED)?),
        };
        self.0.push(BaseSource::new(Arc::new(source), false));
        Ok(())
    }

    /// Looks into them, and gives compressed ones their own.
    pub(crate) fn link(&self, threads: usize) -> Result<Vec<lmc::Base<'static>>> {
        let named = self.0.iter().map(|b| (b.name(), b.source.clone()));
        let linked =
            link_bases(named, threads).map_err(|e| Failure::from(e.error).in_file(self.0[e.file].source.path()))?;
        let optional = linked.into_iter().zip(&self.0);
        Ok(optional.map(|(b, given)| if given.optional { b.optional() } else { b }).collect())
    }

    /// Fails if a buffer that is to be written is one of them.
    pub(crate) fn check_apart(&self, out: &Writable) -> Result<()> {
        if self.0.iter().any(|b| b.source.buffer().is_some_and(|b| b.overlaps(out))) {
            return Err(Failure::usage("out shares memory with a base"));
        }
        Ok(())
    }

    /// What must not be replaced by what is made from `source` and these bases.
    pub(crate) fn guard(&self, source: Option<&Source>) -> Guard {
        let guard = Guard::default();
        self.0.iter().for_each(|b| b.source.guard(&guard, Role::Base));
        source.into_iter().for_each(|s| s.guard(&guard, Role::Input));
        guard
    }

    /// Fails if a file among them was written to since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        self.0.iter().try_for_each(|b| b.source.check_unchanged())
    }

    pub(crate) fn renewed(&self, py: Python<'_>) -> Self {
        Self(self.0.iter().map(|b| BaseSource { source: b.source.renewed(py), ..b.clone() }).collect())
    }
}
