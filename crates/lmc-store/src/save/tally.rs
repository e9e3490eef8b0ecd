//! What a save finds out on the way: how much changed, and what took how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::encode::Encoded;
use crate::chunks::Chunk;

/// How long the phases of a save took. Those that several threads worked on count as long as they took a thread on average, so that all of
/// them add up to no more than the save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveTimes {
    /// Reading the files, as far as they are not in memory.
    pub read: Duration,
    /// Hashing and compressing; and getting bases, and files that are mapped.
    pub compress: Duration,
    /// Waiting for what was compressed to be stored.
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

/// Counts elements of tensors.
pub(super) struct Tally {
    pub(super) elements: u64,
    /// Those that differ from the snapshot before; `None` once one chunk is not known.
    pub(super) changed: Option<u64>,
}

impl Tally {
    /// A count of nothing. Without a snapshot before it is not known what changed.
    pub(super) fn new(has_before: bool) -> Self {
        Self { elements: 0, changed: has_before.then_some(0) }
    }

    pub(super) fn add(&mut self, chunk: &Chunk, encoded: &Encoded) {
        let (mut elements, mut in_bytes) = (0, true);
        for s in &chunk.segments {
            if let Some(dtype) = s.dtype {
                let bits = u64::from(dtype.bits());
                elements += s.len * 8 / bits;
                in_bytes &= bits % 8 == 0;
            }
        }
        if elements == 0 {
            return;
        }
        self.elements += elements;
        let changed = match encoded {
            Encoded::Earlier(_, true) => Some(0),
            // Of elements that are parts of bytes, deltas count bytes.
            Encoded::New(new) => new.changed.filter(|&n| in_bytes || n == 0),
            Encoded::Earlier(..) | Encoded::Repeated(_) => None,
        };
        self.changed = self.changed.zip(changed).map(|(all, n)| all + n);
    }
}
