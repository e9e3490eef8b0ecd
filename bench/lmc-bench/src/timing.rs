//! Times of operations, and their statistics.

use std::time::{Duration, Instant};

/// Times of one operation over the rounds, and beside each the speed of copying the same bytes just before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    seconds: Vec<f64>,
    of_memcpy: Vec<f64>,
}

/// Statistics of one operation over the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    /// 10^9 bytes of the raw side per second, median.
    pub(crate) gb_per_s: f64,
    /// Speed relative to that of copying the same bytes just before, median.
    pub(crate) of_memcpy: f64,
    /// Distance between the quartiles of the time, relative to its median.
    pub(crate) spread: f64,
    pub(crate) rounds: usize,
}

impl Times {
    pub(crate) fn push(&mut self, took: Duration, copied: Duration) {
        let seconds = took.as_secs_f64().max(1e-9);
        self.seconds.push(seconds);
        self.of_memcpy.push(copied.as_secs_f64() / seconds);
    }

    pub(crate) fn rounds(&self) -> usize {
        self.seconds.len()
    }

    pub(crate) fn speed(&self, bytes: usize) -> Speed {
        let [low, median, high] = quartiles(&self.seconds);
        Speed {
            gb_per_s: bytes as f64 / 1e9 / median,
            of_memcpy: quartiles(&self.of_memcpy)[1],
            spread: (high - low) / median,
            rounds: self.rounds(),
        }
    }
}

/// Quartiles by linear interpolation; zeros for no values.
pub(crate) fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|q| {
        let Some(last) = v.len().checked_sub(1) else { return 0.0 };
        let at = q * last as f64;
        let (i, part) = (at.floor() as usize, at.fract());
        v[i] + part * (v[(i + 1).min(last)] - v[i])
    })
}

/// Time of one call.
pub(crate) fn timed<T>(f: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let out = f();
    (start.elapsed(), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0, 5.0]), [2.0, 3.0, 4.0]);
        assert_eq!(quartiles(&[1.0, 2.0]), [1.25, 1.5, 1.75]);
        assert_eq!(quartiles(&[7.0]), [7.0; 3]);
        assert_eq!(quartiles(&[]), [0.0; 3]);
    }

    #[test]
    fn speed_counts_raw_bytes_per_second() {
        let mut t = Times::default();
        for ms in [10, 30, 20] {
            t.push(Duration::from_millis(ms), Duration::from_millis(10));
        }
        let s = t.speed(100_000_000);
        assert!((s.gb_per_s - 5.0).abs() < 1e-9);
        assert!((s.of_memcpy - 0.5).abs() < 1e-9);
        assert!((s.spread - 0.5).abs() < 1e-9);
        assert_eq!(s.rounds, 3);
    }
}
