//! Something that one thread at a time uses, in the process that made it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::work::{Signals, detached};

pub(super) struct Exclusive<T> {
    process: u32,
    /// Its name in messages.
    what: &'static str,
    state: Mutex<State<T>>,
}

enum State<T> {
    Idle(Box<T>),
    Busy,
    Closed,
}

impl<T: Send> Exclusive<T> {
    pub(super) fn new(what: &'static str, own: T) -> Self {
        Self { process: std::process::id(), what, state: Mutex::new(State::Idle(Box::new(own))) }
    }

    /// Held for moments only, and never while the interpreter is released.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(&self) -> Failure {
        Failure::usage(format!("another thread uses the {}", self.what))
    }

    /// Takes it for some work.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        if self.process != std::process::id() {
            let what = self.what;
            return Err(Failure::usage(format!(
                "the {what} belongs to the parent process: a forked child cannot use it"
            )));
        }
        // The lock ends here: a scrutinee's would be held in the arms.
        let before = std::mem::replace(&mut *self.state(), State::Busy);
        let mut own = match before {
            State::Idle(own) => own,
            State::Busy => return Err(self.busy()),
            State::Closed => {
                *self.state() = State::Closed;
                return Err(Failure::closed(self.what));
            }
        };
        let done = f(&mut own);
        *self.state() = State::Idle(own);
        done
    }

    /// Takes it for some work without the interpreter.
    pub(super) fn work<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut T) -> lmc_store::Result<R> + Send,
    ) -> Result<R> {
        self.with(|own| detached(py, || Ok(f(own)?)))
    }

    /// The same; a signal interrupts it.
    pub(super) fn watch<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut T, &Signals) -> lmc_store::Result<R> + Send,
    ) -> Result<R> {
        self.with(|own| Signals::watch(py, u64::MAX, |signals| Ok(f(own, signals)?)))
    }

    /// Ends it.
    pub(super) fn close(&self, py: Python<'_>) -> Result<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        let mut state = self.state();
        if matches!(*state, State::Busy) {
            return Err(self.busy());
        }
        let before = std::mem::replace(&mut *state, State::Closed);
        drop(state);
        detached(py, || {
            drop(before);
            Ok(())
        })
    }
}

impl<T> Drop for Exclusive<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Dropping the parent's store could wait for threads that do not exist here.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::replace(state, State::Closed));
        }
    }
}
