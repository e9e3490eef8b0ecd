//! A store shared by threads.

use std::sync::Arc;

use lmc_cli::{Guard, Role};
use lmc_store::{Location, StoreOptions};
use pyo3::prelude::*;

use crate::errors::Result;
use crate::process::PerProcess;
use crate::work::detached;

/// A store that threads share, and that a forked child reopens: the threads for its requests exist only in the parent.
pub(super) struct Shared {
    pub(super) location: Location,
    pub(super) options: StoreOptions,
    pub(super) open: PerProcess<lmc_store::Store>,
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

    pub(super) fn get(&self, py: Python<'_>) -> Result<Arc<lmc_store::Store>> {
        self.open.get(|_| detached(py, || Ok(lmc_store::Store::open(&self.location, self.options.clone())?)))
    }
}
