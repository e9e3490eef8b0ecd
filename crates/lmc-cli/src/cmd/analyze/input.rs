//! The checkpoints of a study: files, directories, or the snapshots of a store.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lmc::{Base, ErrorKind};
use lmc_inspect::{Checkpoints, Failed, Metric, StepsFrom};
use lmc_store::{Listing, Location, Snapshot, Store, StoreOptions};

use super::files::Files;
use super::kept::Kept;
use crate::cmd::snapshot::place::Place;
use crate::fs::guard::Guard;
use crate::fs::names::is_url;
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;

/// The input of a study.
pub(super) enum Input {
    Files(Files),
    Store(Snapshots),
}

/// Snapshots of a store.
pub(super) struct Snapshots {
    place: Place,
    store: Store,
    snapshots: Vec<Snapshot>,
    threads: usize,
    kept: Kept<Arc<Restored>>,
    /// The kind of the store's error that ended the study.
    failed: Mutex<Option<lmc_store::ErrorKind>>,
    stop: Arc<AtomicBool>,
}

/// Names of files, and their contents.
type Restored = Vec<(String, Arc<File>)>;

impl Input {
    pub(super) fn open(paths: &[PathBuf], every: u32, threads: usize, stop: &Arc<AtomicBool>, ui: &Ui) -> Result<Self> {
        paths.iter().try_for_each(|p| refuse_archive(p))?;
        if let Some(stored) = Snapshots::open(paths, every, threads, stop, ui)? {
            return Ok(Input::Store(stored));
        }
        if every > 1 {
            return Err(Failure::Usage("--every is for the snapshots of a store: name the files to study".to_owned()));
        }
        Files::open(paths, threads, ui).map(Input::Files)
    }

    /// The failure of a study.
    pub(super) fn failure(&self, failed: &Failed) -> Failure {
        match self {
            Input::Files(files) => files.failure(failed),
            Input::Store(s) => {
                let step = s.snapshots.get(failed.checkpoint).map_or(0, |s| s.step.get());
                let file = failed.file.as_ref().map_or(String::new(), |f| format!(", {f}"));
                let at = PathBuf::from(format!("{}, step {step}{file}", s.place.store));
                let kind = s.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
                match kind {
                    Some(lmc_store::ErrorKind::Usage) => Failure::usage(&at, &failed.error),
                    Some(kind) => Failure::Store(kind, Failure::at(&at, &failed.error).to_string()),
                    None => Failure::codec(&at, &failed.error),
                }
            }
        }
    }

    /// Protects the input from being overwritten.
    pub(super) fn guard(&self) -> Guard {
        match self {
            Input::Files(files) => files.guard(),
            Input::Store(s) => s.place.guard(),
        }
    }

    /// Fails if a file was modified since it was opened.
    pub(super) fn check_unchanged(&self) -> Result {
        match self {
            Input::Files(files) => files.check_unchanged(),
            Input::Store(_) => Ok(()),
        }
    }
}

impl Checkpoints for Input {
    fn count(&self) -> usize {
        match self {
            Input::Files(files) => files.count(),
            Input::Store(s) => s.snapshots.len(),
        }
    }

    fn name(&self, checkpoint: usize) -> String {
        match self {
            Input::Files(files) => files.name(checkpoint),
            Input::Store(s) => format!("step {}", s.snapshots[checkpoint].step),
        }
    }

    fn step(&self, checkpoint: usize) -> u64 {
        match self {
            Input::Files(files) => files.step(checkpoint),
            Input::Store(s) => s.snapshots[checkpoint].step.get(),
        }
    }

    fn steps_from(&self) -> StepsFrom {
        match self {
            Input::Files(files) => files.steps_from(),
            Input::Store(_) => StepsFrom::Store,
        }
    }

    fn metadata(&self, checkpoint: usize) -> BTreeMap<String, String> {
        match self {
            Input::Files(_) => BTreeMap::new(),
            Input::Store(s) => {
                s.snapshots[checkpoint].metadata.iter().map(|(k, v)| (k.clone(), v.to_string())).collect()
            }
        }
    }

    fn log(&self) -> Vec<Metric> {
        match self {
            Input::Files(files) => files.log(),
            Input::Store(_) => vec![],
        }
    }

    fn open(&self, checkpoint: usize) -> Result<Vec<Base<'_>>, Failed> {
        match self {
            Input::Files(files) => files.open_one(checkpoint),
            Input::Store(s) => s.files(checkpoint),
        }
    }
}

impl Snapshots {
    /// The store that the only path names, if it does.
    fn open(paths: &[PathBuf], every: u32, threads: usize, stop: &Arc<AtomicBool>, ui: &Ui) -> Result<Option<Self>> {
        let [path] = paths else { return Ok(None) };
        let remote = is_url(path)?;
        if !remote && !path.is_dir() {
            return Ok(None);
        }
        let place = Place { store: path.to_string_lossy().into_owned() };
        let store = match place.try_open() {
            Ok(store) => store,
            Err(e) if e.kind() == lmc_store::ErrorKind::NotFound && !remote => return Ok(None),
            Err(e) => return Err(place.failure(&e)),
        };
        let Listing { snapshots, damaged, .. } = store.list().map_err(|e| place.failure(&e))?;
        place.left_out(&damaged, ui);
        let last = snapshots.len().saturating_sub(1);
        let taken = |i: usize| i.is_multiple_of(every as usize) || i == last;
        let snapshots: Vec<_> = snapshots.into_iter().enumerate().filter(|(i, _)| taken(*i)).map(|(_, s)| s).collect();
        if snapshots.is_empty() {
            return Err(Failure::usage(path, "the store has no snapshots to study: save one first"));
        }
        let (kept, failed) = (Kept::default(), Mutex::default());
        Ok(Some(Self { place, store, snapshots, threads, kept, failed, stop: stop.clone() }))
    }

    fn files(&self, checkpoint: usize) -> Result<Vec<Base<'_>>, Failed> {
        let failed = |file: Option<&str>, error| Failed::new(checkpoint, file.map(str::to_owned), error);
        let restored = self.kept.get(checkpoint, || self.restore(checkpoint).map(Arc::new));
        let restored = restored.map_err(|(file, error)| failed(file.as_deref(), error))?;
        let base = |(name, file): &(String, Arc<File>)| {
            let base = Base::new(file.clone()).map_err(|e| failed(Some(name), e))?;
            Ok(base.with_name(&**name))
        };
        restored.iter().map(base).collect()
    }

    /// The files of a snapshot, restored without names in the directory for temporary files.
    fn restore(&self, checkpoint: usize) -> Result<Restored, (Option<String>, lmc::Error)> {
        let of_store = |e: lmc_store::Error| {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e.kind());
            lmc::Error::new(ErrorKind::Io, e.to_string())
        };
        let reader = self.store.open_snapshot(&self.snapshots[checkpoint]).map_err(|e| (None, of_store(e)))?;
        let reader = reader.with_threads(self.threads);
        let restore = |file: &lmc_store::FileInfo| {
            let failed = |error| (Some(file.name.clone()), error);
            let directory = std::env::temp_dir();
            let doing = || format!("cannot restore it to {}: set TMPDIR to a directory with room", directory.display());
            let temporary = tempfile::tempfile().map_err(|e| failed(lmc::Error::io(doing(), e)))?;
            let restored =
                reader.restore_file(&file.name, &temporary, &mut |_| match self.stop.load(Ordering::Relaxed) {
                    true => Err(lmc_store::Error::new(lmc_store::ErrorKind::Io, "the study was stopped")),
                    false => Ok(()),
                });
            restored.map_err(|e| match e.kind() {
                lmc_store::ErrorKind::Io => failed(lmc::Error::new(ErrorKind::Io, format!("{}: {e}", doing()))),
                _ => failed(of_store(e)),
            })?;
            Ok((file.name.clone(), Arc::new(temporary)))
        };
        // As in directories.
        let is_hidden = |file: &&lmc_store::FileInfo| file.name.rsplit('/').next().is_some_and(|n| n.starts_with('.'));
        reader.files().iter().filter(|file| !is_hidden(file)).map(restore).collect()
    }
}

/// Fails if a path is a store in one file. Other commands read those in place; here one would pass for a checkpoint without tensors.
fn refuse_archive(path: &Path) -> Result {
    if !path.is_file() || Store::open(&Location::Directory(path.to_owned()), StoreOptions::default()).is_err() {
        return Ok(());
    }
    let why = "is an archive of a store, which is not studied as it is: copy it with lmc snapshot copy ARCHIVE STORE, and \
               name that store";
    Err(Failure::usage(path, why))
}
