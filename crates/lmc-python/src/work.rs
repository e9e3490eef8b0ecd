//! Interruptible work without the GIL.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lmc::ReadAt;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};

/// Interval at which pending signals are checked.
const EVERY: Duration = Duration::from_millis(50);
/// Work on fewer bytes finishes before a user could interrupt it.
const LITTLE: u64 = 16 << 20;

/// Runs work while other Python threads run. A panic, which would be a bug, becomes an exception.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    done.unwrap_or_else(|panic| Err(Failure::internal(&*panic)))
}

/// Checks for signals while other threads work: if a handler raises (as that of Ctrl-C does), the work ends because its [`Interruptible`]
/// sources fail.
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    raised: Mutex<Option<PyErr>>,
}

impl Signals {
    /// Runs `work` on `bytes` bytes without the GIL. Unless it is small, it runs on another thread: the calling one handles signals.
    pub(crate) fn watch<T: Send>(
        py: Python<'_>,
        bytes: u64,
        work: impl FnOnce(&Signals) -> Result<T> + Send,
    ) -> Result<T> {
        let signals = Signals { stop: Arc::default(), raised: Mutex::new(None) };
        if bytes < LITTLE {
            return detached(py, || work(&signals));
        }
        let done = detached(py, || {
            let caller = std::thread::current();
            // The worker has not quite finished when it wakes the caller, which would sleep again.
            let finished = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    let done = catch_unwind(AssertUnwindSafe(|| work(&signals)));
                    finished.store(true, Ordering::Release);
                    caller.unpark();
                    done
                });
                while !finished.load(Ordering::Acquire) {
                    std::thread::park_timeout(EVERY);
                    signals.poll();
                }
                let done = worker.join().and_then(|done| done);
                done.unwrap_or_else(|panic| Err(Failure::internal(&*panic)))
            })
        });
        let raised = signals.raised.into_inner().unwrap_or_else(PoisonError::into_inner);
        raised.map_or(done, |e| Err(e.into()))
    }

    fn poll(&self) {
        if let Some(Err(e)) = Python::try_attach(|py| py.check_signals()) {
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// A source that fails once a signal came.
    pub(crate) fn interrupting<'s>(&'s self, source: &'s dyn ReadAt) -> Interruptible<'s> {
        Interruptible { signals: self, source }
    }

    /// Set once a signal came.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Fails once a signal came.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(io::Error::other("interrupted")) } else { Ok(()) }
    }
}

/// A source that fails when the work is to end.
pub(crate) struct Interruptible<'s> {
    signals: &'s Signals,
    source: &'s dyn ReadAt,
}

impl ReadAt for Interruptible<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.signals.check()?;
        self.source.read_exact_at(buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.source.size()
    }

    fn path(&self) -> Option<&Path> {
        self.source.path()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.signals.check().ok().and_then(|()| self.source.as_slice())
    }

    fn slice_at(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.signals.check().ok().and_then(|()| self.source.slice_at(offset, len))
    }
}
