//! Parallel work whose results the workers themselves hand over in order.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Free buffers, finished jobs that wait for earlier ones, and state that jobs share in order.
///
/// A worker takes a free job, then the next ticket, works, and hands the job in under its ticket. A worker takes a ticket only with a job,
/// so the holder of the earliest ticket never waits: there is no deadlock.
pub(crate) struct Handover<T, J> {
    state: Mutex<State<T, J>>,
    freed: Condvar,
}

struct State<T, J> {
    next: usize,
    /// A worker panicked: its ticket is never handed in.
    broken: bool,
    waiting: BTreeMap<usize, J>,
    free: Vec<J>,
    shared: T,
}

impl<T, J> Handover<T, J> {
    /// `free`: at least one job per worker; with more, fast workers wait less for slow ones.
    pub(crate) fn new(shared: T, free: Vec<J>) -> Self {
        let state = State { next: 0, broken: false, waiting: BTreeMap::new(), free, shared };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Takes a free job; waits for one.
    ///
    /// # Panics
    /// If another worker panicked.
    pub(crate) fn free(&self) -> J {
        let wait = |s: &mut State<T, J>| s.free.is_empty() && !s.broken;
        let mut s = self.freed.wait_while(self.lock(), wait).expect("no panic while it is held");
        assert!(!s.broken, "another worker panicked");
        s.free.pop().expect("the wait ends with a free job")
    }

    /// Hands in the job of `ticket`. Calls `place` for every job that is due now, in order, and returns these with its results: the caller
    /// finishes them without a lock, and gives them back.
    pub(crate) fn done<P>(&self, ticket: usize, job: J, mut place: impl FnMut(&mut T, &J) -> P) -> Vec<(J, P)> {
        let s = &mut *self.lock();
        s.waiting.insert(ticket, job);
        let mut due = Vec::new();
        while let Some(job) = s.waiting.remove(&s.next) {
            s.next += 1;
            let p = place(&mut s.shared, &job);
            due.push((job, p));
        }
        due
    }

    pub(crate) fn give_back(&self, job: J) {
        self.lock().free.push(job);
        self.freed.notify_one();
    }

    /// To be kept by each worker while it works: wakes the others if it panics.
    pub(crate) fn watch(&self) -> impl Drop + use<'_, T, J> {
        Watch(self)
    }

    /// The shared state, and the jobs.
    pub(crate) fn into_inner(self) -> (T, Vec<J>) {
        let s = self.state.into_inner().expect("no panic while it is held");
        (s.shared, s.free)
    }

    fn lock(&self) -> MutexGuard<'_, State<T, J>> {
        self.state.lock().expect("no panic while it is held")
    }
}

struct Watch<'a, T, J>(&'a Handover<T, J>);

impl<T, J> Drop for Watch<'_, T, J> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A poisoned lock wakes the others by itself.
            if let Ok(mut s) = self.0.state.lock() {
                s.broken = true;
            }
            self.0.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_are_taken_in_order() {
        let (handover, tickets) = (Handover::new(Vec::new(), vec![0; 9]), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for _ in 0..7 {
                s.spawn(|| {
                    loop {
                        let mut job = handover.free();
                        let t = tickets.fetch_add(1, Ordering::SeqCst);
                        if t >= 1000 {
                            break handover.give_back(job);
                        }
                        job = t * 3;
                        for (job, place) in handover.done(t, job, |v, &j| (v.push(j), v.len()).1) {
                            assert_eq!(job, 3 * (place - 1));
                            handover.give_back(job);
                        }
                    }
                });
            }
        });
        let (taken, free) = handover.into_inner();
        assert_eq!(taken, (0..1000).map(|t| 3 * t).collect::<Vec<_>>());
        assert_eq!(free.len(), 9);
    }

    #[test]
    fn a_panic_wakes_the_others() {
        let handover: Handover<(), ()> = Handover::new((), vec![()]);
        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // The only job is neither free nor handed in.
            handover.free();
            std::thread::scope(|s| {
                s.spawn(|| {
                    let _watch = handover.watch();
                    panic!("as asked");
                });
                s.spawn(|| {
                    let _watch = handover.watch();
                    handover.free();
                });
            });
        }));
        assert!(r.is_err());
    }
}
