//! The times of the phases of a save.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Adds up the times of all threads.
#[derive(Default)]
pub(super) struct Clocks {
    read: AtomicU64,
    all: AtomicU64,
}

impl Clocks {
    /// Does some reading.
    pub(super) fn read<T>(&self, work: impl FnOnce() -> T) -> T {
        timed(&self.read, work)
    }

    /// Does the work of a thread, which reads some of the time.
    pub(super) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        timed(&self.all, work)
    }

    /// How long this many threads read on average, and did other work.
    pub(super) fn times(&self, threads: usize) -> [Duration; 2] {
        let of = |clock: &AtomicU64| Duration::from_nanos(clock.load(Ordering::Relaxed) / threads.max(1) as u64);
        let read = of(&self.read);
        [read, of(&self.all).saturating_sub(read)]
    }
}

fn timed<T>(clock: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    clock.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    done
}
