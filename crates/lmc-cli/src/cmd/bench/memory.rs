//! The yardstick: copying memory with as many threads.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use lmc_pool::Workers;

use super::timing::{Speed, Times, timed};

/// memcpy by a number of threads.
pub(super) struct Memcpy {
    pub(super) threads: usize,
    workers: Workers<()>,
    times: Times,
    bytes: usize,
}

impl Memcpy {
    pub(super) fn new(threads: usize) -> lmc::Result<Self> {
        let workers = Workers::new(threads, Box::new(|| ()) as Box<dyn Fn() + Send + Sync>);
        if workers.count() < threads {
            let why = format!("cannot start {threads} threads: use fewer with --threads");
            return Err(lmc::Error::new(lmc::ErrorKind::Io, why));
        }
        Ok(Self { threads, workers, times: Times::default(), bytes: 0 })
    }

    /// Copies once, for the statistics.
    pub(super) fn round(&mut self, raw: &[u8], out: &mut [u8]) {
        let (took, gb_per_s) = self.timed(raw, out);
        self.bytes = raw.len();
        self.times.push(took, raw.len(), gb_per_s);
    }

    /// Copies once, beside something that is compared with it; returns 10^9 bytes per second.
    pub(super) fn gb_per_s(&self, raw: &[u8], out: &mut [u8]) -> f64 {
        self.timed(raw, out).1
    }

    fn timed(&self, raw: &[u8], out: &mut [u8]) -> (Duration, f64) {
        let took = timed(|| self.copy(raw, out)).0;
        (took, raw.len() as f64 / 1e9 / took.as_secs_f64().max(1e-9))
    }

    pub(super) fn copy(&self, raw: &[u8], out: &mut [u8]) {
        if self.threads == 1 {
            black_box(out).copy_from_slice(black_box(raw));
            return;
        }
        let share = raw.len().div_ceil(self.threads).max(1);
        let shares = Mutex::new(raw.chunks(share).zip(out.chunks_mut(share)));
        let next = || shares.lock().expect("no panic while it is held").next();
        self.workers.each(|()| {
            while let Some((from, to)) = next() {
                black_box(to).copy_from_slice(black_box(from));
            }
        });
    }

    pub(super) fn speed(&self) -> Speed {
        self.times.speed(self.bytes)
    }
}
