//! A store that several threads share.

use std::sync::{Arc, Mutex, PoisonError};

use lmc_cli::{Guard, Role};
use lmc_store::{Location, StoreOptions};
use pyo3::prelude::*;

use crate::errors::Result;
use crate::work::detached;

/// A store as one process uses it.
pub(super) struct Open {
    pub(super) process: u32,
    pub(super) store: lmc_store::Store,
}

/// A store that several threads share, and that a forked process opens anew: requests run on threads, which stay behind.
pub(super) struct Shared {
    pub(super) location: Location,
    pub(super) options: StoreOptions,
    /// Only threads that hold the interpreter hold the lock, and never while they let go of it: a fork finds it free.
    pub(super) open: Mutex<Arc<Open>>,
}

impl Shared {
    /// What keeps anything from being written into the store, where it is on this machine.
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
        // What the parent's holds may wait for its threads when it is dropped.
        std::mem::forget(std::mem::replace(
            &mut *self.open.lock().unwrap_or_else(PoisonError::into_inner),
            new.clone(),
        ));
        Ok(new)
    }
}
