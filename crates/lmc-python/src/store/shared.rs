//! A store shared by threads.

use std::sync::{Arc, Mutex, PoisonError};

use lmc_cli::{Guard, Role};
use lmc_store::{Location, StoreOptions};
use pyo3::prelude::*;

use crate::errors::Result;
use crate::work::detached;

/// The store of one process.
pub(super) struct Open {
    pub(super) process: u32,
    pub(super) store: lmc_store::Store,
}

/// A store that threads share, and that a forked child reopens: the threads for its requests exist only in the parent.
pub(super) struct Shared {
    pub(super) location: Location,
    pub(super) options: StoreOptions,
    /// Only threads that hold the interpreter hold the lock, and they never release the interpreter meanwhile: at a fork it is free.
    pub(super) open: Mutex<Arc<Open>>,
}

impl Shared {
    /// Registers a store on this machine, so that nothing is written into it.
    pub(super) fn guard(&self) -> Guard {
        let guard = Guard::default();
        if let Location::Directory(path) = &self.location
            && let Ok(metadata) = std::fs::metadata(path)
        {
            guard.keep(Role::Store, path, &metadata);
        }
        guard
    }

    pub(super) fn get(&self, py: Python<'_>) -> Result<Arc<Open>> {
        let here = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let process = std::process::id();
        if here.process == process {
            return Ok(here);
        }
        std::mem::forget(here);
        let store = detached(py, || Ok(lmc_store::Store::open(&self.location, self.options.clone())?))?;
        let new = Arc::new(Open { process, store });
        // Leaked: dropping the parent's store could wait for threads that do not exist here.
        std::mem::forget(std::mem::replace(
            &mut *self.open.lock().unwrap_or_else(PoisonError::into_inner),
            new.clone(),
        ));
        Ok(new)
    }
}
