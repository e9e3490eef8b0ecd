//! Bytes that several threads have in memory at once.

use std::sync::{Condvar, Mutex, PoisonError};

/// A number of bytes that are in use, and how many may be.
pub(super) struct Budget {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Bytes of a budget, until it is dropped.
pub(super) struct Taken<'b>(&'b Budget, u64);

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until that many bytes are free; or all of them, if that is less. A holder of bytes must not ask for more.
    pub(super) fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.limit);
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let used = self.freed.wait_while(used, |used| *used > self.limit - bytes);
        *used.unwrap_or_else(PoisonError::into_inner) += bytes;
        Taken(self, bytes)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.1;
        self.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn no_more_is_taken_than_there_is() {
        let (budget, now, most) = (Budget::new(100), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (budget, now, most) = (&budget, &now, &most);
                scope.spawn(move || {
                    for i in 0..200 {
                        // Some ask for more than the limit: they get all of it.
                        let bytes = [10, 45, 60, 1000][(i + thread) % 4];
                        let taken = budget.take(bytes);
                        let used = now.fetch_add(bytes.min(100), Ordering::SeqCst) + bytes.min(100);
                        most.fetch_max(used, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(bytes.min(100), Ordering::SeqCst);
                        drop(taken);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 100);
        assert_eq!(budget.used.into_inner().unwrap(), 0);
    }
}
