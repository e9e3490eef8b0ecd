//! Inputs of a save: files, bytes and tensors, by file name.

use std::sync::{Arc, OnceLock};

use lmc::ReadAt;
use lmc_cli::{Handles, NamedFiles};
use lmc_store::{At, BasePolicy, Cancel, ErrorKind, Input, SaveOptions, Tensors};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PyTuple};

use super::arguments::at;
use crate::buffer::Buffer;
use crate::errors::{Failure, Result, warn};
use crate::options::{Threads, level, threads};
use crate::source::{Source, as_path};
use crate::tensors::{Given, Metadata, TensorList, file, given};
use crate::text::{map, text};
use crate::work::{Signals, detached};

/// What chunks are predicted from: by a policy, or a snapshot.
#[derive(Default)]
pub(super) struct BaseOf(BasePolicy, Option<At>);

impl BaseOf {
    /// Parses "auto", "previous", or what names a snapshot.
    pub(super) fn get(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        match text(object) {
            Ok("auto") => Ok(Self::default()),
            Ok("previous") => Ok(Self(BasePolicy::Previous, None)),
            _ => Ok(Self(BasePolicy::Auto, Some(at(Some(object))?))),
        }
    }

    /// Looks for the snapshot.
    pub(super) fn set(self, o: &mut SaveOptions<'_>, store: &lmc_store::Store) -> lmc_store::Result<()> {
        o.base = self.0;
        o.from = self.1.map(|at| store.find(at)).transpose()?.map(|s| s.step);
        Ok(())
    }
}

pub(super) fn options(
    level: &str,
    threads: Option<Threads>,
    (anchor_every, alternatives): (u32, bool),
) -> Result<SaveOptions<'static>> {
    let mut o = SaveOptions::default();
    (o.level, o.threads) = (self::level(level)?, self::threads(threads)?);
    (o.anchor_every, o.alternatives) = (anchor_every, alternatives);
    Ok(o)
}

enum Contents {
    Source(Source),
    Tensors(Vec<Given>, Option<Metadata>),
}

/// The inputs of a save.
pub(super) struct Inputs {
    named: Vec<(String, Contents)>,
    /// The directories and files that a list of paths names.
    found: Option<NamedFiles>,
}

impl Inputs {
    /// Parses a mapping of names to paths, buffers or lists of tensors, or a list of paths, for a store at a location.
    pub(super) fn get(inputs: &Bound<'_, PyAny>, store: &str) -> Result<Self> {
        let handles = Arc::new(Handles::default());
        if let Ok(mapping) = inputs.cast::<PyMapping>() {
            let all = mapping.items()?.iter().map(|item| {
                let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
                let name = text(&name)?.to_owned();
                let contents = contents(&name, &value, &handles)?;
                Ok((name, contents))
            });
            return Ok(Self { named: all.collect::<Result<_>>()?, found: None });
        }
        if as_path(inputs)?.is_some() || !(inputs.is_instance_of::<PyList>() || inputs.is_instance_of::<PyTuple>()) {
            let class = inputs.get_type().name()?;
            let why = format!("inputs must be a list of paths, or a mapping of names to contents, not {class}");
            return Err(PyTypeError::new_err(why).into());
        }
        let paths = inputs.try_iter()?.map(|path| crate::source::path(&path?, "each of inputs"));
        let found = NamedFiles::find(&paths.collect::<Result<Vec<_>>>()?, store).map_err(refused)?;
        let open = |file: &lmc_cli::NamedFile| {
            let source = Source::open_one_of(file.path.clone(), &handles)?;
            Ok((file.name.clone(), Contents::Source(source)))
        };
        let named = found.files().iter().map(open).collect::<Result<_>>()?;
        warn(inputs.py(), &found.notes().map_err(refused)?)?;
        Ok(Self { named, found: Some(found) })
    }

    /// Lets `save` save them; a signal interrupts it. It is cancelled if they changed while they were read. Warns of files that are
    /// not whole, or not the models that their names promise.
    pub(super) fn save<T: Send>(
        &self,
        py: Python<'_>,
        save: impl FnOnce(&[Input<'_>], Cancel<'_>) -> lmc_store::Result<T> + Send,
    ) -> Result<T> {
        let tensors: Vec<Option<Tensors<'_>>> = (self.named.iter())
            .map(|(_, contents)| match contents {
                Contents::Source(_) => Ok(None),
                Contents::Tensors(given, metadata) => file(given, metadata.as_ref()).map(Some),
            })
            .collect::<Result<_>>()?;
        let saved = Signals::watch(py, u64::MAX, |signals| {
            let sources: Vec<_> = (self.named.iter().zip(&tensors))
                .map(|((_, contents), tensors)| match (contents, tensors) {
                    (Contents::Source(source), _) => signals.interrupting(source as &dyn ReadAt),
                    (_, tensors) => signals.interrupting(tensors.as_ref().expect("inputs of tensors were converted")),
                })
                .collect();
            let named = self.named.iter().zip(&sources);
            let inputs: Vec<_> = named.map(|((name, _), source)| Input::new(name.clone(), source)).collect();
            let changed = OnceLock::new();
            let check = || {
                self.check_unchanged().map_err(|why| {
                    let _ = changed.set(why);
                    lmc_store::Error::new(ErrorKind::Io, "an input changed while it was read")
                })
            };
            let saved = save(&inputs, Cancel::new(&check));
            changed.into_inner().map_or_else(|| Ok(saved?), Err)
        })?;
        // Of files that were found, it was said before.
        if self.found.is_none() {
            warn(py, &detached(py, || self.notes())?)?;
        }
        Ok(saved)
    }

    /// What to say of such files.
    fn notes(&self) -> Result<Vec<String>> {
        let sources = self.named.iter().filter_map(|(_, contents)| match contents {
            Contents::Source(source) => Some(source),
            Contents::Tensors(..) => None,
        });
        let why = sources.map(|source| Ok(source.no_model()?.map(|what| format!("{what}; it is stored as it is"))));
        why.filter_map(Result::transpose).collect()
    }

    fn check_unchanged(&self) -> Result<()> {
        self.named.iter().try_for_each(|(_, contents)| match contents {
            Contents::Source(source) => source.check_unchanged(),
            Contents::Tensors(..) => Ok(()),
        })?;
        let same = self.found.as_ref().map_or(Ok(()), NamedFiles::check_same);
        same.map_err(|why| Failure::Other("IOError", why.to_string()))
    }
}

fn refused(why: lmc_cli::Failure) -> Failure {
    Failure::usage(why.to_string())
}

fn contents(name: &str, value: &Bound<'_, PyAny>, handles: &Arc<Handles>) -> Result<Contents> {
    if let Some(path) = as_path(value)? {
        NamedFiles::check_original(&path).map_err(refused)?;
        return Ok(Contents::Source(Source::open_one_of(path, handles)?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<TensorList>() {
        return Ok(Contents::Tensors(given(value)?, None));
    }
    // A list of tensors, and the metadata of their file.
    if let Ok(pair) = value.cast::<PyTuple>() {
        let (tensors, metadata): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        return Ok(Contents::Tensors(given(&tensors)?, Some(map(&metadata)?)));
    }
    let expected = format!("{name:?} must be a path, a C-contiguous bytes-like object or a list of tensors");
    Ok(Contents::Source(Source::Buffer(Buffer::get(value, &expected)?)))
}
