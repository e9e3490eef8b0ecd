//! Work done by several threads, whose results are taken in order by the caller.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};

/// How many threads to use where so many are wished for: 0 stands for as many as the machine has.
pub(crate) fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    }
}

/// How many threads to use for work that now and then waits for the store: where as many as the machine has are wished for, one more, so that none of its cores
/// waits, too.
pub(crate) fn threads_that_wait(wanted: usize) -> usize {
    match wanted {
        0 => threads(0) + 1,
        n => n,
    }
}

/// What the threads that work are called.
const NAME: &str = "lmc-worker";

struct State<T> {
    /// The next job that nobody has begun.
    next: usize,
    /// Results that are waited for; all before them have been taken.
    taken: usize,
    done: BTreeMap<usize, Result<T>>,
    stopped: bool,
}

struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    jobs: usize,
    /// Jobs that may be begun beyond the one that is waited for.
    ahead: usize,
}

impl<T> Queue<T> {
    fn wait(&self, ready: impl Fn(&State<T>) -> bool) -> std::sync::MutexGuard<'_, State<T>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.wait_while(state, |s| !s.stopped && !ready(s)).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, once it is not too far ahead.
    fn begin(&self) -> Option<usize> {
        let mut state = self.wait(|s| s.next == self.jobs || s.next < s.taken + self.ahead);
        if state.stopped || state.next == self.jobs {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    fn finish(&self, job: usize, result: Result<T>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).done.insert(job, result);
        self.changed.notify_all();
    }

    /// The result of the job that is next in order; `None` if it will never come.
    fn take(&self) -> Option<Result<T>> {
        let mut state = self.wait(|s| s.done.contains_key(&s.taken));
        let next = state.taken;
        let result = state.done.remove(&next)?;
        state.taken += 1;
        drop(state);
        self.changed.notify_all();
        Some(result)
    }

    fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.changed.notify_all();
    }
}

/// Stops the queue however its holder ends: nobody shall wait for one who panicked.
struct StopOnDrop<'q, T>(&'q Queue<T>, bool);

impl<T> Drop for StopOnDrop<'_, T> {
    fn drop(&mut self) {
        if self.1 || std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Does `jobs` jobs on `threads` threads, each with what `start` gives it, and hands their results to `take` in order. The first error ends it.
pub(crate) fn run<W, T: Send>(
    threads: usize,
    jobs: usize,
    start: impl Fn() -> Result<W> + Sync,
    work: impl Fn(&mut W, usize) -> Result<T> + Sync,
    mut take: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let threads = threads.clamp(1, jobs.max(1));
    let state = State { next: 0, taken: 0, done: BTreeMap::new(), stopped: false };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new(), jobs, ahead: threads + 1 };
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&queue, true);
        for _ in 0..threads {
            let worker = || {
                let _stop = StopOnDrop(&queue, false);
                let mut own = None;
                while let Some(job) = queue.begin() {
                    let own = match &mut own {
                        Some(own) => Ok(own),
                        none => start().map(|new| none.insert(new)),
                    };
                    queue.finish(job, own.and_then(|own| work(own, job)));
                }
            };
            let begun = std::thread::Builder::new().name(NAME.into()).spawn_scoped(scope, worker);
            begun.map_err(|e| Error::io("cannot start a thread", e))?;
        }
        for job in 0..jobs {
            // Without a result a worker has panicked: so will the scope.
            let Some(result) = queue.take() else { break };
            take(job, result?)?;
        }
        Ok(())
    })
}

/// [`run`] where each job needs something that takes a while to come and no thread: `begin` is called for jobs in order, at least `ahead` of them before they are done.
pub(crate) fn run_ahead<B: Send, W, T: Send>(
    threads: usize,
    ahead: usize,
    jobs: usize,
    begin: impl Fn(usize) -> B + Sync,
    start: impl Fn() -> Result<W> + Sync,
    work: impl Fn(&mut W, usize, B) -> Result<T> + Sync,
    take: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let begun: Mutex<(usize, BTreeMap<usize, B>)> = Mutex::default();
    let next = |job: usize| {
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, begun) = &mut *begun;
        while *first < jobs.min(job + ahead.max(1)) {
            begun.insert(*first, begin(*first));
            *first += 1;
        }
        begun.remove(&job).expect("a job is done once")
    };
    run(threads, jobs, start, |own, job| work(own, job, next(job)), take)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_and_not_far_ahead() {
        let (begun, mut taken) = (AtomicUsize::new(0), vec![]);
        run(
            3,
            100,
            || Ok(()),
            |(), job| {
                begun.fetch_add(1, Ordering::Relaxed);
                if job % 7 == 0 {
                    std::thread::yield_now();
                }
                Ok(job * job)
            },
            |job, square| {
                // What is taken at this moment counts as not taken.
                assert!(begun.load(Ordering::Relaxed) <= job + 1 + 4);
                taken.push(square);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(taken, (0..100).map(|i| i * i).collect::<Vec<_>>());
        run(3, 0, || Ok(()), |(), _| Ok(()), |_, ()| panic!("there are no jobs")).unwrap();
    }

    #[test]
    fn what_jobs_need_is_begun_before_they_are() {
        let begun = AtomicUsize::new(0);
        let mut taken = vec![];
        run_ahead(
            2,
            5,
            50,
            |job| {
                assert_eq!(begun.fetch_add(1, Ordering::Relaxed), job);
                job * 10
            },
            || Ok(()),
            |(), job, needed| {
                let begun = begun.load(Ordering::Relaxed);
                assert!(needed == job * 10 && begun >= 50.min(job + 5) && begun <= job + 10, "{job} {begun}");
                Ok(job)
            },
            |_, job| {
                taken.push(job);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(taken, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_error_in_order_ends_it() {
        let fail = |job: usize| if job >= 5 { Err(Error::usage(job.to_string())) } else { Ok(job) };
        let e = run(4, 1000, || Ok(()), |(), job| fail(job), |_, _| Ok(())).unwrap_err();
        assert_eq!(e.to_string(), "5");
        let e = run(4, 1000, || Ok(()), |(), job| Ok(job), |job, _| fail(job).map(|_| ())).unwrap_err();
        assert_eq!(e.to_string(), "5");
        let e = run(4, 1000, || Err::<(), _>(Error::usage("no")), |(), job| Ok(job), |_, _| Ok(())).unwrap_err();
        assert_eq!(e.to_string(), "no");
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_is_not_waited_for() {
        _ = run(2, 10, || Ok(()), |(), job| if job == 3 { panic!("three") } else { Ok(()) }, |_, ()| Ok(()));
    }
}
