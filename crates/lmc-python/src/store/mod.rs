//! `lmc.Store`: the snapshots of a training run.

mod arguments;
mod exclusive;
mod follow;
mod follow_tensors;
mod metadata;
mod records;
mod save;
mod shared;
mod snapshot;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lmc_store::{
    At, Best, Cancel, CopyOptions, FollowOptions, Location, Metadata, RebaseOptions, SaveOptions, ShardId,
};
use lmc_store::{Step, StoreOptions, VerifyOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::errors::{Failure, Result, log, warn};
use crate::numbers::{self, KeepEvery, StepNumber};
use crate::options::{Threads, level, threads};
use crate::process::PerProcess;
use crate::records::Record;
use crate::source::{as_path, path};
use crate::text::{optional_text, optional_texts, text, texts};
use crate::work::{Signals, detached};

use self::arguments::{Rules, at, best, gc_options, options, tag, within};
pub(crate) use self::follow::{DirectoryFollower, Staged};
pub(crate) use self::follow_tensors::{StagedTensors, TensorFollower};
pub(crate) use self::records::Snapshot;
use self::records::{copied, cost, garbage, prune_plan, pruned, saved, verified};
use self::shared::Shared;
pub(crate) use self::snapshot::SnapshotReader;

/// The snapshots of a training run, in a directory or a bucket (`s3://BUCKET/PREFIX`, `gs://` or `az://`, credentials from the
/// environment).
///
/// Opens an existing store; `Store.create` creates one. `cache` is where the raw bytes of the newest snapshot are kept for the next save:
/// "memory", or the path of a directory of its own; `cache_size` is the limit in bytes.
///
/// A snapshot is given by its step, its id, a tag or a `Snapshot`; the latest one is meant otherwise. Threads may share a store, and so may a
/// process and those that it forks; any number of processes may use one at once.
///
/// Raises `lmc.NotFoundError` for what does not exist, `lmc.StoreError` (an `OSError`) when requests fail, `lmc.DamagedError` when stored
/// data is not what was written, `lmc.ExistsError` for a step that has a snapshot.
#[pyclass(frozen, module = "lmc")]
pub(crate) struct Store {
    name: String,
    shared: Arc<Shared>,
}

fn location(location: &Bound<'_, PyAny>) -> Result<(String, Location)> {
    let Some(path) = as_path(location)? else {
        let class = location.get_type().name()?;
        let why = format!("location must be the path of a directory or the URL of a bucket, not {class}");
        return Err(PyTypeError::new_err(why).into());
    };
    let name = path.to_string_lossy().into_owned();
    let parsed = match path.to_str() {
        Some(text) if location.is_instance_of::<PyString>() => text.parse()?,
        _ => Location::directory(path)?,
    };
    Ok((name, parsed))
}

/// Whether a location is a URL, and not a path. Refuses a URL without its second slash, as a store does.
#[pyfunction]
pub(crate) fn is_url(location: PathBuf) -> Result<bool> {
    Ok(Location::is_url(&location)?)
}

impl Store {
    /// Where it is, as commands name it.
    pub(crate) fn place(&self) -> PathBuf {
        match &self.shared.location {
            Location::Directory(path) => path.clone(),
            _ => PathBuf::from(&self.name),
        }
    }

    fn new(name: String, location: Location, options: StoreOptions, store: lmc_store::Store) -> Self {
        let open = PerProcess::new("store", store);
        Self { name, shared: Arc::new(Shared { location, options, open }) }
    }

    /// Runs work on the store; a signal ends it.
    fn watch<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&lmc_store::Store, &Signals) -> lmc_store::Result<T> + Send,
    ) -> Result<T> {
        let store = self.shared.get(py)?;
        Signals::watch(py, u64::MAX, |signals| Ok(f(&store.cancelled_by(signals.stop()), signals)?))
    }

    /// [`Self::watch`] for work that may end at any time.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&lmc_store::Store) -> lmc_store::Result<T> + Send,
    ) -> Result<T> {
        self.watch(py, |store, _| f(store))
    }
}

/// The module that makes files of states.
fn states(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("lmc._state")
}

/// The ids of shards.
fn ids(shards: &[String]) -> Result<Vec<ShardId>> {
    shards.iter().map(|id| id.parse().map_err(|e: lmc_store::Error| Failure::usage(e.to_string()))).collect()
}

/// Default size limit of a cache, in bytes.
const BUDGET: u64 = 16 << 30;

#[pymethods]
impl Store {
    /// Opens an existing store.
    #[new]
    #[pyo3(signature = (location, *, cache=None, cache_size=BUDGET))]
    fn open(
        py: Python<'_>,
        location: &Bound<'_, PyAny>,
        cache: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::cache_size)] cache_size: u64,
    ) -> Result<Self> {
        let ((name, location), options) = (self::location(location)?, options(None, cache, cache_size)?);
        let store = detached(py, || Ok(lmc_store::Store::open(&location, options.clone())?))?;
        Ok(Self::new(name, location, options, store))
    }

    /// Opens a store, and creates it if missing: of a new run, or that of the store that is to be copied into it. An
    /// existing store must be of `run`, if that is given.
    #[staticmethod]
    #[pyo3(signature = (location, *, grace_seconds=86_400, run=None, cache=None, cache_size=BUDGET))]
    fn create(
        py: Python<'_>,
        location: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::grace_seconds)] grace_seconds: u64,
        run: Option<String>,
        cache: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = numbers::cache_size)] cache_size: u64,
    ) -> Result<Self> {
        let ((name, location), mut options) =
            (self::location(location)?, options(Some(grace_seconds), cache, cache_size)?);
        options.run =
            run.map(|run| run.parse().map_err(|e: lmc_store::Error| Failure::usage(e.to_string()))).transpose()?;
        let store = detached(py, || Ok(lmc_store::Store::create(&location, options.clone())?))?;
        Ok(Self::new(name, location, options, store))
    }

    #[getter]
    fn location(&self) -> &str {
        &self.name
    }

    /// The id of the run: copies of the store have the same, another store another one.
    #[getter]
    fn run(&self, py: Python<'_>) -> Result<String> {
        Ok(self.shared.get(py)?.run().to_string())
    }

    /// All snapshots whose records can be read, by step; `verify` reports the others. `last`: only so many, of the largest steps; no more of
    /// the store is read than it takes to find them.
    #[pyo3(signature = (*, last=None))]
    fn snapshots(&self, py: Python<'_>, last: Option<usize>) -> Result<Vec<Snapshot>> {
        let listing = self.ask(py, |s| last.map_or_else(|| s.list(), |n| s.list_last(n)))?;
        Ok(listing.snapshots.into_iter().map(Snapshot).collect())
    }

    /// One snapshot.
    #[pyo3(signature = (at=None))]
    fn find(&self, py: Python<'_>, at: Option<&Bound<'_, PyAny>>) -> Result<Snapshot> {
        let at = self::at(at)?;
        Ok(Snapshot(self.ask(py, |s| s.find(at))?))
    }

    /// Opens a snapshot for reading. If the latest one is meant and is damaged, the last one that is whole is opened instead, with a
    /// warning, unless `strict` is set.
    #[pyo3(signature = (at=None, *, strict=false, threads=None))]
    fn open_snapshot(
        &self,
        py: Python<'_>,
        at: Option<&Bound<'_, PyAny>>,
        strict: bool,
        threads: Option<Threads>,
    ) -> Result<SnapshotReader> {
        let (at, threads) = (self::at(at)?, self::threads(threads)?);
        let (snapshot, passed) = self.ask(py, |s| match at {
            At::Latest if !strict => s.find_whole(),
            at => s.find(at).map(|found| (found, vec![])),
        })?;
        let instead = |(step, why)| {
            format!("step {step} is damaged, and step {} is taken instead (strict=True raises): {why}", snapshot.step)
        };
        warn(py, &passed.into_iter().map(instead).collect::<Vec<_>>())?;
        SnapshotReader::new(py, self.shared.clone(), snapshot, threads)
    }

    /// Saves a state as the snapshot of a step, by default the one after the last; returns the `Snapshot`.
    ///
    /// A state is what `lmc.torch.save_state` takes: dicts, lists and tuples of tensors of torch, arrays of numpy, numbers, text and bytes,
    /// such as `{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}`, or one of these alone. What it cannot have is
    /// refused before anything is stored. The snapshot has one file, `state.safetensors`; `load` gives the state back, and
    /// `lmc.torch.load_state` does so from a restored file. The options are those of `save_files`.
    #[pyo3(signature = (
        state, *, step=None, metadata=None, tag=None, level="default", threads=None, base=save::BaseOf::default(), anchor_every=16,
        alternatives=false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn save(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        step: Option<StepNumber>,
        #[pyo3(from_py_with = metadata::optional)] metadata: Option<Metadata>,
        #[pyo3(from_py_with = optional_text)] tag: Option<&str>,
        #[pyo3(from_py_with = text)] level: &str,
        threads: Option<Threads>,
        #[pyo3(from_py_with = save::BaseOf::get)] base: save::BaseOf,
        #[pyo3(from_py_with = numbers::anchor_every)] anchor_every: u32,
        alternatives: bool,
    ) -> Result<Snapshot> {
        let inputs = states(py)?.call_method1("inputs", (state,))?;
        self.save_files(py, &inputs, step, metadata, tag, level, threads, base, anchor_every, alternatives)
    }

    /// Loads the state that `save` saved in a snapshot.
    ///
    /// Tensors of torch are new ones on `device`, by default the CPU. Where `into`, a state like the one saved, has a tensor or an array,
    /// that one is filled, on its own device, and is part of the result; it must have the same shape and dtype. Where it has a module, an
    /// optimizer or anything else with `state_dict` and `load_state_dict`, that loads what was saved of it. After an error in reading, they
    /// may be partly filled. `strict` is that of `open_snapshot`.
    ///
    /// Raises `lmc.NotFoundError` when the snapshot has no state, `lmc.UsageError` when `into` does not fit.
    #[pyo3(signature = (at=None, *, into=None, device=None, strict=false, threads=None))]
    fn load<'py>(
        &self,
        py: Python<'py>,
        at: Option<&Bound<'py, PyAny>>,
        into: Option<&Bound<'py, PyAny>>,
        device: Option<&Bound<'py, PyAny>>,
        strict: bool,
        threads: Option<Threads>,
    ) -> Result<Bound<'py, PyAny>> {
        let snapshot = self.open_snapshot(py, at, strict, threads)?;
        Ok(states(py)?.call_method1("load", (snapshot, into, device))?)
    }

    /// Saves files as the snapshot of a step, by default the one after the last; returns the `Snapshot`.
    ///
    /// `inputs` maps names of files to their contents: a path, a buffer, a list of tensors (those of
    /// `lmc.compress_tensors`), or a tuple of such a list and the metadata of the safetensors file. Names are paths
    /// below the directory to restore to, with slashes. A list of paths names files under their own names, the files of
    /// directories under their paths there, and the files that a `model.safetensors.index.json` names. `base` is what
    /// they are predicted from: "auto" is the snapshot before, or the one with a tag that they are more like; "previous" the one before,
    /// always; or a step, an id, a tag or a `Snapshot`. With `alternatives`, what starts a new chain, though the snapshot before has it, is
    /// also stored as a delta, for followers, if that is at most half as large. `level` is that of `lmc.compress`. `metadata` are text and
    /// numbers by name, as the loss, for `prune(keep_best=...)`. `tag` names the snapshot from then on, as with `Store.tag`.
    #[pyo3(signature = (
        inputs, *, step=None, metadata=None, tag=None, level="default", threads=None, base=save::BaseOf::default(), anchor_every=16,
        alternatives=false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn save_files(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyAny>,
        step: Option<StepNumber>,
        #[pyo3(from_py_with = metadata::optional)] metadata: Option<Metadata>,
        #[pyo3(from_py_with = optional_text)] tag: Option<&str>,
        #[pyo3(from_py_with = text)] level: &str,
        threads: Option<Threads>,
        #[pyo3(from_py_with = save::BaseOf::get)] base: save::BaseOf,
        #[pyo3(from_py_with = numbers::anchor_every)] anchor_every: u32,
        alternatives: bool,
    ) -> Result<Snapshot> {
        let tag = tag.map(self::tag).transpose()?;
        let options = save::options(level, threads, (anchor_every, alternatives))?;
        let (inputs, step) = (save::Inputs::get(inputs, &self.name)?, step.map(|n| Step::new(n.0)).transpose()?);
        let (store, metadata) = (self.shared.get(py)?, metadata.unwrap_or_default());
        // Published only if no input changed while it was read.
        let (free, saved) = inputs.save(py, |inputs, cancel| {
            lmc_store::Store::check_metadata(&metadata)?;
            let mut options: SaveOptions<'_> = options;
            options.cancel = cancel;
            base.set(&mut options, &store)?;
            let free = store.step(step)?;
            Ok((free, store.save_shard(inputs, free, &options)?))
        })?;
        let shards = [saved.shard];
        let snapshot = detached(py, || {
            Ok(match step {
                Some(step) => store.publish(step, metadata, &shards)?,
                // Another process may have taken the free one meanwhile.
                None => store.publish_next(free, metadata, &shards)?,
            })
        })?;
        warn(py, &saved.notes)?;
        log(py, || {
            let (step, raw, new) = (snapshot.step, snapshot.raw_size, snapshot.new_size);
            let from = saved.base.map_or_else(|| "without a base".to_owned(), |base| format!("from step {base}"));
            format!("{}: step {step} saved, {raw} bytes => {new}, {from}", self.name)
        })?;
        if let Some(tag) = tag {
            detached(py, || {
                let step = snapshot.step;
                let saved = |e: lmc_store::Error| {
                    let what = format!("{e}; step {step} was saved, and the tag {tag} does not name it");
                    lmc_store::Error::new(e.kind(), what)
                };
                Ok(store.tag(&tag, &snapshot).map_err(saved)?)
            })?;
        }
        Ok(Snapshot(snapshot))
    }

    /// Saves files as one of several shards of a snapshot, which exists once all of them are published: each process of a run saves its own.
    #[pyo3(signature = (
        inputs, *, step, level="default", threads=None, base=save::BaseOf::default(), anchor_every=16, alternatives=false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn save_shard<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'_, PyAny>,
        step: StepNumber,
        #[pyo3(from_py_with = text)] level: &str,
        threads: Option<Threads>,
        #[pyo3(from_py_with = save::BaseOf::get)] base: save::BaseOf,
        #[pyo3(from_py_with = numbers::anchor_every)] anchor_every: u32,
        alternatives: bool,
    ) -> Result<Record<'py>> {
        let options = save::options(level, threads, (anchor_every, alternatives))?;
        let (inputs, step) = (save::Inputs::get(inputs, &self.name)?, Step::new(step.0)?);
        let store = self.shared.get(py)?;
        let shard = inputs.save(py, |inputs, cancel| {
            let mut options: SaveOptions<'_> = options;
            options.cancel = cancel;
            base.set(&mut options, &store)?;
            store.save_shard(inputs, step, &options)
        })?;
        saved(py, shard)
    }

    /// Publishes saved shards as a snapshot, atomically. With `overwrite`, the snapshot that the step has, if it has one, is pruned first:
    /// between the two the step has none.
    #[pyo3(signature = (step, shards, *, metadata=None, overwrite=false))]
    fn publish(
        &self,
        py: Python<'_>,
        step: StepNumber,
        #[pyo3(from_py_with = texts)] shards: Vec<String>,
        #[pyo3(from_py_with = metadata::optional)] metadata: Option<Metadata>,
        overwrite: bool,
    ) -> Result<Snapshot> {
        let (step, shards, metadata) = (Step::new(step.0)?, ids(&shards)?, metadata.unwrap_or_default());
        let store = self.shared.get(py)?;
        let published = detached(py, || match overwrite {
            true => Ok(store.overwrite(step, metadata, &shards)?),
            false => Ok(store.publish(step, metadata, &shards)?),
        })?;
        let (raw, new) = (published.raw_size, published.new_size);
        log(py, || format!("{}: step {step} published, {raw} bytes => {new}", self.name))?;
        Ok(Snapshot(published))
    }

    /// Whether a snapshot has what these saved shards have: the same files, with the same bytes. Reads no data.
    fn has_shards(
        &self,
        py: Python<'_>,
        at: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = texts)] shards: Vec<String>,
    ) -> Result<bool> {
        let (at, shards) = (self::at(Some(at))?, ids(&shards)?);
        self.ask(py, |s| s.has_shards(&s.find(at)?, &shards))
    }

    /// Restores files of a snapshot into a directory; returns their paths. `names` are those of files, or of directories, which stand for
    /// all files in them; each file is restored once. `strict` is that of `open_snapshot`.
    #[pyo3(signature = (directory, at=None, *, names=None, strict=false, threads=None, overwrite=true))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn restore(
        &self,
        py: Python<'_>,
        directory: &Bound<'_, PyAny>,
        at: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_texts)] names: Option<Vec<String>>,
        strict: bool,
        threads: Option<Threads>,
        overwrite: bool,
    ) -> Result<Vec<PathBuf>> {
        let directory = path(directory, "directory")?;
        let snapshot = self.open_snapshot(py, at, strict, threads)?;
        let restored = snapshot.restore_all(py, &directory, names, overwrite)?;
        let step = snapshot.step();
        log(py, || format!("{}: step {step} restored to {}", self.name, directory.display()))?;
        Ok(restored)
    }

    /// Makes a directory follow the store, which is empty, missing, or follows already: `current` in it is a link to the directory of one
    /// whole version. The version before stays until the next one; `rewind` allows an earlier step to replace a later one, and another run; with `verify`,
    /// files that did not change are read and verified instead of linked.
    #[pyo3(signature = (directory, *, rewind=false, verify=false, threads=None))]
    fn follow(
        &self,
        py: Python<'_>,
        directory: &Bound<'_, PyAny>,
        rewind: bool,
        verify: bool,
        threads: Option<Threads>,
    ) -> Result<DirectoryFollower> {
        let directory = path(directory, "directory")?;
        let allowed = self.shared.guard().check_replace(&directory.join("current"));
        allowed.map_err(|refusal| Failure::usage(refusal.to_string()))?;
        let mut o = FollowOptions::default();
        (o.rewind, o.verify, o.threads) = (rewind, verify, self::threads(threads)?);
        self.shared.get(py)?;
        let follower = detached(py, || {
            let store = lmc_store::Store::open(&self.shared.location, StoreOptions::default())?;
            Ok(lmc_store::Follower::open(store, &directory, o)?)
        })?;
        Ok(DirectoryFollower::new(follower))
    }

    /// Makes tensors in memory follow the store, given as `(name, dtype, shape, first_row)`: what `lmc.sync.Follower` is made of. The last
    /// is `None` for those that have all rows.
    #[pyo3(signature = (tensors, *, rewind=false, verify=false, threads=None))]
    fn follow_tensors(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        rewind: bool,
        verify: bool,
        threads: Option<Threads>,
    ) -> Result<TensorFollower> {
        let specs = follow_tensors::specs(tensors)?;
        let mut o = FollowOptions::default();
        (o.rewind, o.verify, o.threads) = (rewind, verify, self::threads(threads)?);
        self.shared.get(py)?;
        let follower = detached(py, || {
            let store = lmc_store::Store::open(&self.shared.location, StoreOptions::default())?;
            Ok(lmc_store::TensorFollower::new(store, specs, o)?)
        })?;
        Ok(TensorFollower::new(follower))
    }

    /// Verifies a snapshot; or the store, with its records and all snapshots. `expect` are steps that must have one: the loss of the last
    /// record cannot be detected otherwise.
    #[pyo3(signature = (at=None, *, deep=false, threads=None, expect=Vec::new()))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        at: Option<&Bound<'_, PyAny>>,
        deep: bool,
        threads: Option<Threads>,
        #[pyo3(from_py_with = numbers::expect)] expect: Vec<u64>,
    ) -> Result<Record<'py>> {
        let mut o = VerifyOptions::default();
        (o.deep, o.threads) = (deep, self::threads(threads)?);
        o.expect = expect.into_iter().map(Step::new).collect::<lmc_store::Result<_>>()?;
        let which = at.map(|at| self::at(Some(at))).transpose()?;
        if which.is_some() && !o.expect.is_empty() {
            return Err(Failure::usage("expect is for a whole store: leave out at".to_owned()));
        }
        let found = self.ask(py, |s| match which {
            Some(at) => s.verify(&[s.find(at)?], o.deep, o.threads),
            None => s.verify_all(&o),
        })?;
        verified(py, found)
    }

    /// The cost of restoring a snapshot.
    #[pyo3(signature = (at=None))]
    fn cost<'py>(&self, py: Python<'py>, at: Option<&Bound<'_, PyAny>>) -> Result<Record<'py>> {
        let at = self::at(at)?;
        let costs = self.ask(py, |s| s.costs(&[s.find(at)?]))?;
        cost(py, costs.into_iter().next().expect("one for each snapshot")?)
    }

    /// Makes a tag name a snapshot, whatever it named before; returns the `Snapshot`. Wherever a snapshot is given, the tag stands for it,
    /// and it is not pruned.
    #[pyo3(signature = (name, at=None))]
    fn tag(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        at: Option<&Bound<'_, PyAny>>,
    ) -> Result<Snapshot> {
        let (name, at) = (tag(name)?, self::at(at)?);
        let store = self.shared.get(py)?;
        Ok(Snapshot(detached(py, || {
            let snapshot = store.find(at)?;
            store.tag(&name, &snapshot)?;
            Ok(snapshot)
        })?))
    }

    /// Deletes a tag; its snapshot stays.
    fn untag(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<()> {
        let (name, store) = (tag(name)?, self.shared.get(py)?);
        detached(py, || Ok(store.untag(&name)?))
    }

    /// The steps of the snapshots that tags name, by tag. Warns of tags that cannot be read.
    fn tags(&self, py: Python<'_>) -> Result<BTreeMap<String, u64>> {
        let found = self.ask(py, |s| s.tags())?;
        warn(py, &found.damaged.iter().map(|bad| bad.error().to_string()).collect::<Vec<_>>())?;
        Ok(found.tags.iter().map(|tag| (tag.name.to_string(), tag.step.get())).collect())
    }

    /// Plans a pruning, and changes nothing. A snapshot is kept by any rule: the last ones; the first from each multiple of `keep_every` on;
    /// those saved within `keep_within`, a `timedelta` or seconds; those with the best numbers in their metadata, as `("loss", "min", 3)`
    /// says, or several such tuples in a list; those of `keep_steps`; and those with a tag. `drop` are steps that no rule keeps; without a
    /// rule, all others stay. `damaged` are steps whose snapshots cannot be restored, to be ended for good.
    /// With `drop_state`, snapshots that no rule keeps stay without the states of their optimizers, as far as names of files and tensors
    /// tell: they have their weights. They get new ids.
    #[pyo3(signature = (
        *, keep_last=0, keep_every=None, keep_within=None, keep_best=Vec::new(), keep_steps=Vec::new(), drop=Vec::new(),
        damaged=Vec::new(), drop_state=false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn plan_prune<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = numbers::keep_last)] keep_last: usize,
        keep_every: Option<KeepEvery>,
        #[pyo3(from_py_with = within)] keep_within: Option<u64>,
        #[pyo3(from_py_with = best)] keep_best: Vec<Best>,
        #[pyo3(from_py_with = numbers::keep_steps)] keep_steps: Vec<u64>,
        #[pyo3(from_py_with = numbers::drop)] drop: Vec<u64>,
        #[pyo3(from_py_with = numbers::damaged)] damaged: Vec<u64>,
        drop_state: bool,
    ) -> Result<Record<'py>> {
        let rules = Rules { last: keep_last, every: keep_every, within: keep_within, best: keep_best };
        let keep = rules.with((keep_steps, drop, damaged), drop_state)?;
        prune_plan(py, self.ask(py, |s| s.plan_prune(&keep))?)
    }

    /// Prunes the snapshots that no rule keeps, and those of `drop`. `level` is for data that is encoded again, as for `lmc.compress`.
    #[pyo3(signature = (
        *, keep_last=0, keep_every=None, keep_within=None, keep_best=Vec::new(), keep_steps=Vec::new(), drop=Vec::new(),
        damaged=Vec::new(), drop_state=false, level="default", threads=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn prune<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = numbers::keep_last)] keep_last: usize,
        keep_every: Option<KeepEvery>,
        #[pyo3(from_py_with = within)] keep_within: Option<u64>,
        #[pyo3(from_py_with = best)] keep_best: Vec<Best>,
        #[pyo3(from_py_with = numbers::keep_steps)] keep_steps: Vec<u64>,
        #[pyo3(from_py_with = numbers::drop)] drop: Vec<u64>,
        #[pyo3(from_py_with = numbers::damaged)] damaged: Vec<u64>,
        drop_state: bool,
        #[pyo3(from_py_with = text)] level: &str,
        threads: Option<Threads>,
    ) -> Result<Record<'py>> {
        let rules = Rules { last: keep_last, every: keep_every, within: keep_within, best: keep_best };
        let keep = rules.with((keep_steps, drop, damaged), drop_state)?;
        let mut o = RebaseOptions::default();
        (o.level, o.threads) = (self::level(level)?, self::threads(threads)?);
        let done = self.watch(py, |s, signals| {
            let plan = s.plan_prune(&keep)?;
            signals.settle_store()?;
            s.prune(&plan, &o)
        })?;
        let steps: Vec<u64> = done.pruned.iter().map(|step| step.get()).collect();
        log(py, || format!("{}: pruned the steps {steps:?}", self.name))?;
        pruned(py, done)
    }

    /// Determines what no snapshot needs, and deletes nothing.
    #[pyo3(signature = (*, without_records=false))]
    fn garbage<'py>(&self, py: Python<'py>, without_records: bool) -> Result<Record<'py>> {
        let o = gc_options(true, without_records);
        garbage(py, self.ask(py, |s| s.gc(&o))?)
    }

    /// Deletes what no snapshot needs, and has not needed for the grace period. A store with shards but without any record is refused,
    /// because its records may be lost, unless `without_records` is set.
    #[pyo3(signature = (*, without_records=false))]
    fn gc<'py>(&self, py: Python<'py>, without_records: bool) -> Result<Record<'py>> {
        let o = gc_options(false, without_records);
        let done = self.ask(py, |s| s.gc(&o))?;
        let (deleted, size) = (done.orphans.len(), done.orphans.iter().map(|o| o.size).sum::<u64>());
        log(py, || format!("{}: deleted {deleted} objects of {size} bytes", self.name))?;
        garbage(py, done)
    }

    /// Copies snapshots of another store into this one. The other one must be of the same run. What is damaged
    /// ends the copy, unless `skip_damaged` is set: then `damaged` and `left_out` of the result have it. Each snapshot appears when it is
    /// complete; a repeated copy resumes an interrupted one.
    #[pyo3(signature = (other, at=None, *, skip_damaged=false))]
    fn copy_from<'py>(
        &self,
        py: Python<'py>,
        other: &Self,
        at: Option<&Bound<'_, PyAny>>,
        skip_damaged: bool,
    ) -> Result<Record<'py>> {
        let which = at.map(|at| self::at(Some(at))).transpose()?;
        let from = other.shared.get(py)?;
        let done = self.watch(py, |s, signals| {
            let from = from.cancelled_by(signals.stop());
            let snapshots = match which {
                Some(at) => vec![from.find(at)?],
                None => from.snapshots()?,
            };
            let settle = || signals.settle_store();
            let mut options = CopyOptions::default();
            (options.skip_damaged, options.cancel) = (skip_damaged, Cancel::new(&settle));
            s.copy_from(&from, &snapshots, options)
        })?;
        warn(py, &done.notes)?;
        copied(py, done)
    }

    /// Closes the store, with its cache and connections. Work in progress in other threads is completed, and what was opened from it can
    /// still be read.
    fn close(&self, py: Python<'_>) {
        let closed = self.shared.open.close();
        py.detach(|| drop(closed));
    }

    #[getter]
    fn closed(&self) -> bool {
        self.shared.open.is_closed()
    }

    fn __enter__(this: Py<Self>, py: Python<'_>) -> Result<Py<Self>> {
        this.get().shared.get(py)?;
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<lmc.Store {:?}{}>", self.name, if self.closed() { ", closed" } else { "" })
    }
}
