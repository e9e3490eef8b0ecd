//! The times of the phases of a save.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the phases of a save took. Reading and compressing count as long as they took a thread on average. Threads
/// compress while others wait for storage, so that the phases overlap; planning is in none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveTimes {
    /// Reading the files, as far as they are not in memory, and hashing the bytes read.
    pub read: Duration,
    /// Compressing, and hashing the result; and getting bases, and files that are mapped.
    pub compress: Duration,
    /// Waiting until compressed data are stored.
    pub upload: Duration,
}

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

    /// The times of work that this many threads did.
    pub(super) fn times(&self, threads: usize, upload: Duration) -> SaveTimes {
        let of = |clock: &AtomicU64| Duration::from_nanos(clock.load(Ordering::Relaxed) / threads.max(1) as u64);
        let read = of(&self.read);
        SaveTimes { read, compress: of(&self.all).saturating_sub(read), upload }
    }
}

fn timed<T>(clock: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    clock.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    done
}
