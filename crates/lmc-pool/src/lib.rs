//! Threads that work for one caller: an ordered, bounded pipeline, and working memory that jobs reuse.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, mpsc};

use rayon::ThreadPool;

/// The name of every thread.
const NAME: &str = "lmc-worker";

/// How many threads to use if `wanted` are requested: 0 requests as many as the machine has.
pub fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    }
}

/// Whether this thread is a worker of some pool. While it waits for another pool, it begins other jobs of its own: they must not need a lock
/// that it holds.
pub fn on_worker() -> bool {
    rayon::current_thread_index().is_some()
}

/// A pool of its own (never rayon's global one), or none: then the caller does the work.
///
/// `S` is the working memory of a job, which `M` makes.
pub struct Workers<S, M = Box<dyn Fn() -> S + Send + Sync>> {
    pool: Option<ThreadPool>,
    threads: usize,
    /// Working memory not in use. The last one put back is taken first: it is the warmest.
    scratch: Mutex<Vec<S>>,
    make: M,
}

impl<S: Send, M: Fn() -> S + Sync> Workers<S, M> {
    /// Of one thread, the caller does the work. Where the system has no more threads, they are fewer.
    pub fn new(threads: usize, make: M) -> Self {
        if self::threads(threads) == 1 {
            return Self { pool: None, threads: 1, scratch: Mutex::new(Vec::new()), make };
        }
        Self::beside_caller(threads, make)
    }

    /// The caller does none of the work, so that it can wait for something else meanwhile, unless the system has no thread at all.
    pub fn beside_caller(threads: usize, make: M) -> Self {
        let pool = pool(self::threads(threads));
        let threads = pool.as_ref().map_or(1, ThreadPool::current_num_threads);
        Self { pool, threads, scratch: Mutex::new(Vec::new()), make }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.threads
    }

    /// Jobs that may be under way at once: enough that neither workers nor the caller wait for one slow job.
    pub fn in_flight(&self) -> usize {
        if self.threads == 1 { 1 } else { 2 * self.threads + 1 }
    }

    /// Bytes of buffers that may be under way at once. Reached only by the large blocks of deltas: three of them on two threads, ten on 16.
    fn budget(&self) -> usize {
        (self.threads << 23) + (1 << 24)
    }

    /// Whether the caller does the work.
    pub fn is_single(&self) -> bool {
        self.pool.is_none()
    }

    /// Runs `f` with working memory of its own.
    pub fn with<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        self.with_kept(true, f)
    }

    /// The same; afterwards the working memory is kept for others, or given back.
    pub fn with_kept<R>(&self, kept: bool, f: impl FnOnce(&mut S) -> R) -> R {
        let free = self.scratch.lock().expect("no panic while it is held").pop();
        let mut s = free.unwrap_or_else(|| (self.make)());
        let r = f(&mut s);
        if kept {
            self.scratch.lock().expect("no panic while it is held").push(s);
        }
        r
    }

    /// Runs `f` once on every thread, with working memory of its own.
    pub fn each(&self, f: impl Fn(&mut S) + Sync)
    where
        S: Send,
    {
        match &self.pool {
            None => self.with(&f),
            Some(pool) => _ = pool.broadcast(|_| self.with(&f)),
        }
    }

    /// An ordered, bounded pipeline: the calling thread feeds and drains jobs in order, workers do the work between.
    ///
    /// `feed` fills a job and says what its buffers weigh in bytes, or `None` at the end. `work` may run for several
    /// jobs at once; `drain` sees jobs, and what `work` returned for them, in the order in which they were fed. `jobs` (at
    /// least one) bounds what is under way and keeps the buffers for the next call. The error is the one of the earliest job that has one,
    /// whatever the number of threads: a job fails in `drain`, and an error of `feed` counts after the jobs fed before.
    ///
    /// Jobs are begun in the order in which they are fed: a job may wait for the work of earlier ones.
    ///
    /// # Errors
    /// Those of `feed` and `drain`. Jobs that no worker has begun by then are not done.
    ///
    /// # Panics
    /// When `work` does.
    pub fn ordered<J: Send, T: Send, E>(
        &self,
        jobs: &mut Vec<J>,
        mut feed: impl FnMut(&mut J) -> Result<Option<usize>, E>,
        work: impl Fn(&mut S, &mut J) -> T + Sync,
        mut drain: impl FnMut(&mut J, T) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(pool) = &self.pool else {
            let job = &mut jobs[0];
            while feed(job)?.is_some() {
                let done = self.with(|s| work(s, job));
                drain(job, done)?;
            }
            return Ok(());
        };
        let work = &work;
        // Jobs that no worker has begun, oldest first.
        let waiting = &Mutex::new(VecDeque::new());
        pool.in_place_scope(|scope| {
            let _clear = Clear(waiting);
            let (tx, rx) = mpsc::channel();
            // Jobs under way, oldest first: `None` until the worker is done.
            let mut under_way: VecDeque<(Option<(J, T)>, usize)> = VecDeque::new();
            let (mut first, mut weight) = (0usize, 0usize);
            let mut fed = Ok(true);
            loop {
                while matches!(fed, Ok(true)) && weight < self.budget() {
                    let Some(mut job) = jobs.pop() else { break };
                    match feed(&mut job) {
                        Ok(Some(w)) => {
                            weight += w;
                            let (id, tx) = (first + under_way.len(), tx.clone());
                            under_way.push_back((None, w));
                            waiting.lock().expect("no panic while it is held").push_back((id, job));
                            scope.spawn(move |_| {
                                let job = waiting.lock().expect("no panic while it is held").pop_front();
                                let Some((id, mut job)) = job else { return };
                                let done = catch_unwind(AssertUnwindSafe(|| self.with(|s| work(s, &mut job))));
                                // The receiver is gone only after an error, when the job is not needed.
                                let _ = tx.send((id, done.map(|done| (job, done))));
                            });
                        }
                        other => {
                            jobs.push(job);
                            fed = other.map(|_| false);
                        }
                    }
                }
                if under_way.is_empty() {
                    return fed.map(|_| ());
                }
                let (id, done) = rx.recv().expect("a sender is kept here");
                under_way[id - first].0 = Some(done.unwrap_or_else(|panic| resume_unwind(panic)));
                while let Some((mut job, done)) = under_way.front_mut().and_then(|(done, _)| done.take()) {
                    let drained = drain(&mut job, done);
                    jobs.push(job);
                    first += 1;
                    weight -= under_way.pop_front().expect("it is the front").1;
                    drained?;
                }
            }
        })
    }
}

/// A pool of `threads` threads, or of as many as there can be: a limit on processes or on memory may permit fewer. `None` if there are none.
fn pool(threads: usize) -> Option<ThreadPool> {
    let mut halves = std::iter::successors(Some(threads), |n| Some(n / 2)).take_while(|&n| n > 0);
    let build = |n| rayon::ThreadPoolBuilder::new().num_threads(n).thread_name(|_| NAME.into()).build();
    halves.find_map(|n| build(n).ok())
}

/// Removes the jobs that no worker has begun, when an error or a panic ends the pipeline.
struct Clear<'a, J>(&'a Mutex<VecDeque<J>>);

impl<J> Drop for Clear<'_, J> {
    fn drop(&mut self) {
        if let Ok(mut waiting) = self.0.lock() {
            waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    type Result<T> = std::result::Result<T, String>;

    fn run(threads: usize, n: usize, fail: Option<usize>, feed_fails: Option<usize>) -> (Vec<usize>, Result<()>) {
        let workers = Workers::new(threads, || ());
        let mut jobs = vec![(0usize, 0usize); workers.in_flight()];
        let (mut next, mut out) = (0, vec![]);
        let under_way = AtomicUsize::new(0);
        let max = workers.in_flight();
        let r = workers.ordered(
            &mut jobs,
            |j| {
                if Some(next) == feed_fails {
                    return Err(format!("feed {next}"));
                }
                *j = (next, 0);
                next += 1;
                assert!(under_way.fetch_add(1, Ordering::SeqCst) < max);
                Ok((next <= n).then_some(1))
            },
            |(), j| j.1 = j.0 * j.0,
            |j, ()| {
                under_way.fetch_sub(1, Ordering::SeqCst);
                if Some(j.0) == fail {
                    return Err(format!("drain {}", j.0));
                }
                out.push(j.1);
                Ok(())
            },
        );
        assert!(r.is_err() || jobs.len() == max, "jobs come back");
        (out, r)
    }

    #[test]
    fn jobs_are_drained_in_order() {
        for threads in [1, 2, 5] {
            for n in [0, 1, 2, 100] {
                let (out, r) = run(threads, n, None, None);
                r.unwrap();
                assert_eq!(out, (0..n).map(|i| i * i).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_earliest_error_wins() {
        for threads in [1, 2, 5] {
            let (out, r) = run(threads, 50, Some(20), Some(23));
            assert_eq!((out.len(), r.unwrap_err()), (20, "drain 20".into()));
            let (out, r) = run(threads, 50, Some(40), Some(23));
            assert_eq!((out.len(), r.unwrap_err()), (23, "feed 23".into()));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let workers = Workers::new(2, || ());
        let mut left = 10;
        let r = catch_unwind(AssertUnwindSafe(|| {
            workers.ordered(
                &mut vec![(); 4],
                |()| {
                    left -= 1;
                    Ok((left > 0).then_some(0))
                },
                |(), ()| panic!("worker"),
                |(), ()| Ok::<_, ()>(()),
            )
        }));
        assert!(r.is_err());
    }

    #[test]
    fn heavy_jobs_run_alone() {
        let workers = Workers::new(2, || ());
        let mut fed = 0;
        let under_way = AtomicUsize::new(0);
        workers
            .ordered(
                &mut vec![(); workers.in_flight()],
                |()| {
                    assert_eq!(under_way.fetch_add(1, Ordering::SeqCst), 0);
                    fed += 1;
                    Ok((fed <= 5).then_some(usize::MAX / 2))
                },
                |(), ()| (),
                |(), ()| {
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, ()>(())
                },
            )
            .unwrap();
    }

    #[test]
    fn an_error_ends_what_nobody_has_begun() {
        let workers = Workers::new(2, || ());
        let (mut fed, begun) = (0, AtomicUsize::new(0));
        let r = workers.ordered(
            &mut vec![0; 50],
            |j| {
                *j = fed;
                fed += 1;
                Ok(Some(0))
            },
            |(), _| {
                begun.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(5));
            },
            |_, ()| Err("the first"),
        );
        assert_eq!(r, Err("the first"));
        assert!(begun.into_inner() < 50);
    }

    #[test]
    fn a_single_thread_works_beside_the_caller() {
        let workers = Workers::beside_caller(1, || ());
        let here = std::thread::current().id();
        let mut left = 3;
        workers
            .ordered(
                &mut vec![here; 2],
                |_| {
                    left -= 1;
                    Ok::<_, ()>((left >= 0).then_some(0))
                },
                |(), j| *j = std::thread::current().id(),
                |j, ()| {
                    assert_ne!(*j, here);
                    Ok(())
                },
            )
            .unwrap();
    }
}
