//! Arguments of a store's methods: snapshots, options, rules.

use lmc_store::{At, Cache, GcOptions, Keep, SaveId, Step, StoreOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::records::Snapshot;
use crate::errors::{Failure, Result};
use crate::numbers::{KeepEvery, number};
use crate::source::as_path;
use crate::text::text;

/// A step, an id, a snapshot, or `"latest"`, which `None` means, too.
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
            let id = text.parse::<SaveId>().map_err(|_| {
                Failure::usage(format!("{text:?} is neither \"latest\" nor the id of a snapshot; steps are int"))
            })?;
            Ok(At::Id(id))
        };
    }
    match number::<u64>(at, "at") {
        Ok(step) => Ok(At::Step(Step::new(step)?)),
        Err(e) if !e.is_instance_of::<PyTypeError>(at.py()) => Err(e.into()),
        Err(_) => {
            let class = at.get_type().name()?;
            let why =
                format!("a snapshot is given by its step (int), its id (str), \"latest\" or a Snapshot, not {class}");
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

/// Rules; `steps`: to keep, to drop, and those to be given up.
pub(super) fn keep(last: usize, every: Option<KeepEvery>, steps: (Vec<u64>, Vec<u64>, Vec<u64>)) -> Result<Keep> {
    let of = |steps: Vec<u64>| steps.into_iter().map(Step::new).collect::<lmc_store::Result<_>>();
    let mut keep = Keep::default();
    keep.last = last;
    keep.every = every.map(|n| n.0);
    (keep.steps, keep.drop, keep.damaged) = (of(steps.0)?, of(steps.1)?, of(steps.2)?);
    Ok(keep)
}
