//! What belongs to one process, because its threads or locks do. A forked child makes its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::errors::{Failure, Result};

/// Something that threads share.
pub(crate) struct PerProcess<T> {
    /// Its name in messages.
    what: &'static str,
    /// `None` once closed. Only threads that hold the interpreter hold the lock, and they never release the interpreter meanwhile: at a
    /// fork it is free.
    owned: Mutex<Option<Owned<T>>>,
}

/// A value, and the process that made it.
pub(crate) struct Owned<T> {
    process: u32,
    own: Arc<T>,
}

impl<T> Owned<T> {
    fn new(own: T) -> Self {
        Self { process: std::process::id(), own: Arc::new(own) }
    }

    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Leaked: dropping what the parent made could wait for threads that do not exist here.
            std::mem::forget(self.own.clone());
        }
    }
}

impl<T> PerProcess<T> {
    pub(crate) fn new(what: &'static str, own: T) -> Self {
        Self { what, owned: Mutex::new(Some(Owned::new(own))) }
    }

    fn owned(&self) -> MutexGuard<'_, Option<Owned<T>>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of this process. In a forked child the first calls make it with `renew` from the parent's, and the first one that is made
    /// stays.
    pub(crate) fn get(&self, renew: impl FnOnce(&T) -> Result<T>) -> Result<Arc<T>> {
        let parents = match &*self.owned() {
            None => return Err(Failure::closed(self.what)),
            Some(here) if !here.is_foreign() => return Ok(here.own.clone()),
            Some(parents) => parents.own.clone(),
        };
        // Without the lock: another thread may get the interpreter meanwhile.
        let new = Owned::new(renew(&parents)?);
        let mut owned = self.owned();
        match &*owned {
            None => Err(Failure::closed(self.what)),
            Some(here) if !here.is_foreign() => Ok(here.own.clone()),
            Some(_) => Ok(owned.insert(new).own.clone()),
        }
    }

    /// Takes it away from those that get it from now on. What is returned ends it when dropped, unless others still use it.
    pub(crate) fn close(&self) -> Option<Owned<T>> {
        self.owned().take()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.owned().is_none()
    }
}
