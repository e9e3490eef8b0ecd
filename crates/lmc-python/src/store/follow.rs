//! `lmc.store.DirectoryFollower`: a directory that follows a store.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::exclusive::Exclusive;
use super::records::version;
use crate::errors::{Result, log};
use crate::records::Record;

/// A version that is complete and on disk, but not the current one yet.
#[pyclass(frozen, module = "lmc.store")]
pub(crate) struct Staged(lmc_store::Staged);

#[pymethods]
impl Staged {
    #[getter]
    fn version<'py>(&self, py: Python<'py>) -> Result<Record<'py>> {
        version(py, &self.0.version)
    }

    /// The step of the version that it was made from, or `None`.
    #[getter]
    fn base_step(&self) -> Option<u64> {
        self.0.from.map(lmc_store::Step::get)
    }

    /// Bytes of files that did not change.
    #[getter]
    fn linked_size(&self) -> u64 {
        self.0.linked_size
    }

    /// Bytes of files that were written.
    #[getter]
    fn written_size(&self) -> u64 {
        self.0.written_size
    }

    /// Bytes that were fetched from the store.
    #[getter]
    fn fetched_size(&self) -> u64 {
        self.0.fetched_size
    }

    fn __repr__(&self) -> String {
        let s = &self.0;
        let from = s.from.map_or_else(|| "None".to_owned(), |step| step.to_string());
        format!(
            "Staged(step={}, base_step={from}, linked_size={}, written_size={}, fetched_size={})",
            s.version.step, s.linked_size, s.written_size, s.fetched_size
        )
    }
}

/// A directory that follows a store: `current` in it leads to one whole version at every moment. `Store.follow` makes one.
///
/// One process at a time may use a directory, and one thread at a time a follower. A forked child cannot use that of its parent.
#[pyclass(frozen, module = "lmc.store")]
pub(crate) struct DirectoryFollower(Exclusive<lmc_store::Follower>);

impl DirectoryFollower {
    pub(super) fn new(follower: lmc_store::Follower) -> Self {
        Self(Exclusive::new("follower", follower))
    }

    fn committed<'py>(&self, py: Python<'py>, now: &lmc_store::Version) -> Result<Record<'py>> {
        log(py, || format!("{}: step {} is current", now.path.display(), now.step))?;
        version(py, now)
    }
}

#[pymethods]
impl DirectoryFollower {
    /// The current version, or `None`.
    #[getter]
    fn current<'py>(&self, py: Python<'py>) -> Result<Option<Record<'py>>> {
        let current = self.0.work(py, |f| Ok(f.current().cloned()))?;
        current.map(|v| version(py, &v)).transpose()
    }

    /// Writes the newest snapshot's files beside the current version's, which stay as they are: they may be in use, and the call may be
    /// given up at any time. Returns `None` if the newest snapshot is the current version, or there is none.
    fn stage(&self, py: Python<'_>) -> Result<Option<Staged>> {
        let staged = self.0.watch(py, |f, signals| {
            let newest = f.newest()?;
            newest.map(|s| f.stage(&s, &mut signals.progress())).transpose()
        })?;
        Ok(staged.map(Staged))
    }

    /// Makes a staged version the current one, by a rename.
    fn commit<'py>(&self, py: Python<'py>, staged: &Staged) -> Result<Record<'py>> {
        self.committed(py, &self.0.work(py, |f| f.commit(staged.0.clone()).cloned())?)
    }

    /// `stage` and `commit`. Returns the new version, or `None` if there is none.
    fn update<'py>(&self, py: Python<'py>) -> Result<Option<Record<'py>>> {
        let updated = self.0.watch(py, |f, signals| {
            let Some(snapshot) = f.newest()? else { return Ok(None) };
            let staged = f.stage(&snapshot, &mut signals.progress())?;
            signals.settle_store()?;
            f.commit(staged).map(|v| Some(v.clone()))
        })?;
        updated.map(|v| self.committed(py, &v)).transpose()
    }

    /// Reads all files of the current version, and restores those that are missing, or are not what was published. Each is replaced as a
    /// whole. Returns their names.
    fn repair(&self, py: Python<'_>) -> Result<Vec<String>> {
        self.0.watch(py, |f, signals| Ok(f.repair(&mut signals.progress())?.files))
    }

    /// Lets another process follow into the directory.
    fn close(&self, py: Python<'_>) -> Result<()> {
        self.0.close(py)
    }

    fn __enter__(this: Py<Self>) -> Result<Py<Self>> {
        this.get().0.with(|_| Ok(()))?;
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Result<()> {
        self.close(py)
    }
}
