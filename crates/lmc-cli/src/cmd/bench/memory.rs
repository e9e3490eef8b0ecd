//! The yardstick: copying memory with as many threads.

use std::hint::black_box;
use std::time::Duration;

use super::timing::{Speed, Times, timed};

/// memcpy by a number of threads.
pub(super) struct Memcpy {
    pub(super) threads: usize,
    pool: Option<rayon::ThreadPool>,
    times: Times,
    bytes: usize,
}

impl Memcpy {
    pub(super) fn new(threads: usize) -> lmc::Result<Self> {
        let pool = match threads {
            1 => None,
            n => Some(rayon::ThreadPoolBuilder::new().num_threads(n).build().map_err(|e| {
                lmc::Error::new(lmc::ErrorKind::Io, format!("cannot start {n} threads: {e}; use fewer with --threads"))
            })?),
        };
        Ok(Self { threads, pool, times: Times::default(), bytes: 0 })
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
        let Some(pool) = &self.pool else {
            black_box(out).copy_from_slice(black_box(raw));
            return;
        };
        let share = raw.len().div_ceil(self.threads).max(1);
        pool.in_place_scope(|scope| {
            for (from, to) in raw.chunks(share).zip(out.chunks_mut(share)) {
                scope.spawn(move |_| black_box(to).copy_from_slice(black_box(from)));
            }
        });
    }

    pub(super) fn speed(&self) -> Speed {
        self.times.speed(self.bytes)
    }
}
