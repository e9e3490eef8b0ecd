//! Arguments of a store's methods: snapshots, options, rules.

use std::time::Duration;

use lmc_store::{At, Best, Cache, GcOptions, Keep, Step, StoreOptions, TagName};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyList, PyString, PyTuple};

use super::records::Snapshot;
use crate::errors::{Failure, Result};
use crate::numbers::{KeepEvery, number};
use crate::source::as_path;
use crate::text::text;

/// A step, an id, a tag, a snapshot, or `"latest"`, which `None` means, too.
pub(super) fn at(at: Option<&Bound<'_, PyAny>>) -> Result<At> {
    let Some(at) = at else { return Ok(At::Latest) };
    if let Ok(snapshot) = at.cast::<Snapshot>() {
        return Ok(At::Id(snapshot.get().0.id));
    }
    if let Ok(text) = at.cast::<PyString>() {
        let text = self::text(text.as_any())?;
        return if text == "latest" {
            Ok(At::Latest)
        } else {
            let other =
                || Failure::usage(format!("{text:?} is neither \"latest\", nor an id, nor a tag; steps are int"));
            text.parse().map(At::Id).or_else(|_| text.parse().map(At::Tag)).map_err(|_: lmc_store::Error| other())
        };
    }
    match number::<u64>(at, "at") {
        Ok(step) => Ok(At::Step(Step::new(step)?)),
        Err(e) if !e.is_instance_of::<PyTypeError>(at.py()) => Err(e.into()),
        Err(_) => {
            let class = at.get_type().name()?;
            let why = format!(
                "a snapshot is given by its step (int), its id or tag (str), \"latest\" or a Snapshot, not {class}"
            );
            Err(PyTypeError::new_err(why).into())
        }
    }
}

pub(super) fn options(
    grace_seconds: Option<u64>,
    cache: Option<&Bound<'_, PyAny>>,
    budget: u64,
) -> Result<StoreOptions> {
    let mut o = StoreOptions::default();
    o.grace_seconds = grace_seconds.unwrap_or(o.grace_seconds);
    o.cache = match cache {
        None => Cache::Nowhere,
        Some(cache) => match as_path(cache)? {
            Some(path) if path.as_os_str() == "memory" => Cache::Memory { budget },
            Some(path) => Cache::Directory { path, budget },
            None => {
                return Err(PyTypeError::new_err("cache must be None, \"memory\" or the path of a directory").into());
            }
        },
    };
    Ok(o)
}

pub(super) fn gc_options(dry_run: bool, without_records: bool) -> GcOptions {
    let mut o = GcOptions::default();
    (o.dry_run, o.without_records) = (dry_run, without_records);
    o
}

/// The name of a tag.
pub(super) fn tag(name: &str) -> Result<TagName> {
    name.parse().map_err(|e: lmc_store::Error| Failure::usage(e.to_string()))
}

/// The rules that prune takes as `keep_last`, `keep_every`, `keep_within` and `keep_best`.
pub(super) struct Rules {
    pub(super) last: usize,
    pub(super) every: Option<KeepEvery>,
    pub(super) within: Option<u64>,
    pub(super) best: Vec<Best>,
}

impl Rules {
    /// With the steps to keep, to drop, and those to be given up, and whether states go instead of snapshots.
    pub(super) fn with(self, steps: (Vec<u64>, Vec<u64>, Vec<u64>), drop_state: bool) -> Result<Keep> {
        let of = |steps: Vec<u64>| steps.into_iter().map(Step::new).collect::<lmc_store::Result<_>>();
        let mut keep = Keep::default();
        (keep.last, keep.every) = (self.last, self.every.map(|n| n.0));
        (keep.within, keep.best) = (self.within, self.best);
        (keep.steps, keep.drop, keep.damaged) = (of(steps.0)?, of(steps.1)?, of(steps.2)?);
        keep.drop_state = drop_state;
        Ok(keep)
    }
}

/// `keep_within`: a `timedelta`, or seconds.
pub(super) fn within(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if object.is_none() {
        return Ok(None);
    }
    if object.is_instance_of::<PyDelta>() {
        return Ok(Some(object.extract::<Duration>()?.as_secs()));
    }
    number(object, "keep_within").map(Some)
}

/// `keep_best`: a tuple of a key, "min" or "max", and a number of snapshots, which may be left out; or a list of such tuples.
pub(super) fn best(object: &Bound<'_, PyAny>) -> PyResult<Vec<Best>> {
    if object.is_none() {
        return Ok(vec![]);
    }
    match object.cast::<PyList>() {
        Ok(all) => all.iter().map(|one| best_by(&one)).collect(),
        Err(_) => Ok(vec![best_by(object)?]),
    }
}

fn best_by(object: &Bound<'_, PyAny>) -> PyResult<Best> {
    let wrong =
        || PyTypeError::new_err("keep_best is a tuple of a key, \"min\" or \"max\", and how many, or a list of these");
    let parts: Vec<Bound<'_, PyAny>> = object.cast::<PyTuple>().map_err(|_| wrong())?.iter().collect();
    let (key, which, count) = match &parts[..] {
        [key, which] => (key, which, 1),
        [key, which, count] => (key, which, number(count, "the number of keep_best")?),
        _ => return Err(wrong()),
    };
    let largest = match text(which)? {
        "min" => false,
        "max" => true,
        other => return Err(Failure::usage(format!("keep_best={other:?}: must be \"min\" or \"max\"")).into()),
    };
    Ok(Best::new(text(key)?.to_owned(), largest, count))
}
