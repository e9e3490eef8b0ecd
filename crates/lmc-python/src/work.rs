//! Interruptible work without the GIL.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use lmc::ReadAt;
use pyo3::prelude::*;

use crate::errors::{Failure, Result, warn};

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
    /// The thread that handles signals.
    caller: Thread,
    /// Set while the worker waits for it.
    awaited: AtomicBool,
}

impl Signals {
    /// Runs `work` on `bytes` bytes without the GIL. Unless it is small, it runs on another thread: the calling one handles signals. If one
    /// came too late to end the work, it still raises.
    pub(crate) fn watch<T: Send>(
        py: Python<'_>,
        bytes: u64,
        work: impl FnOnce(&Signals) -> Result<T> + Send,
    ) -> Result<T> {
        let signals = Signals {
            stop: Arc::default(),
            raised: Mutex::new(None),
            caller: std::thread::current(),
            awaited: AtomicBool::new(false),
        };
        let done = detached(py, || {
            // A worker reads a file object that is itself of this package (`lmc.open(f.open())`): waiting for that file's pool, it must not
            // begin other jobs of its own, which wait for the same file object.
            if bytes < LITTLE && !lmc_pool::on_worker() {
                return work(&signals);
            }
            // The worker has not quite finished when it wakes the caller, which would sleep again.
            let finished = AtomicBool::new(false);
            let work = Mutex::new(Some(work));
            let run = || {
                let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
                work.expect("it runs once")(&signals)
            };
            std::thread::scope(|scope| {
                let spawned = std::thread::Builder::new().spawn_scoped(scope, || {
                    let done = catch_unwind(AssertUnwindSafe(run));
                    finished.store(true, Ordering::Release);
                    signals.caller.unpark();
                    done
                });
                // Without another thread, as where their number is limited, a signal is handled when the work settles or ends.
                let Ok(worker) = spawned else { return run() };
                while !finished.load(Ordering::Acquire) {
                    std::thread::park_timeout(EVERY);
                    let awaited = signals.awaited.load(Ordering::Acquire);
                    signals.poll();
                    if awaited {
                        signals.awaited.store(false, Ordering::Release);
                        worker.thread().unpark();
                    }
                }
                let done = worker.join().and_then(|done| done);
                done.unwrap_or_else(|panic| Err(Failure::internal(&*panic)))
            })
        });
        warn(py, &lmc_store::files::notes())?;
        let raised = signals.raised.into_inner().unwrap_or_else(PoisonError::into_inner);
        raised.map_or(done, |e| Err(e.into()))
    }

    fn poll(&self) {
        // No other thread of Python goes on between a handler and the end of the work.
        Python::try_attach(|py| {
            if let Err(e) = py.check_signals() {
                self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                self.stop.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Handles the signals that came until now, and fails if one is to end the work: for what follows cannot be undone. To be called by the
    /// thread of the work.
    pub(crate) fn settle(&self) -> io::Result<()> {
        if std::thread::current().id() == self.caller.id() {
            self.poll();
        } else {
            self.awaited.store(true, Ordering::Release);
            self.caller.unpark();
            while self.awaited.load(Ordering::Acquire) {
                std::thread::park_timeout(EVERY);
            }
        }
        self.check()
    }

    /// [`Self::settle`] for work of stores.
    pub(crate) fn settle_store(&self) -> lmc_store::Result<()> {
        self.settle().map_err(stopped)
    }

    /// What work of stores calls: fails once a signal came.
    pub(crate) fn check_store(&self) -> lmc_store::Result<()> {
        self.check().map_err(stopped)
    }

    /// What it calls with its progress.
    pub(crate) fn progress(&self) -> impl FnMut(u64) -> lmc_store::Result<()> {
        |_| self.check_store()
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

fn stopped(e: io::Error) -> lmc_store::Error {
    lmc_store::Error::io("stopped", e)
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

    fn read_elements_at(&self, width: usize, offsets: &[u64], out: &mut [u8]) -> io::Result<()> {
        self.signals.check()?;
        self.source.read_elements_at(width, offsets, out)
    }
}
