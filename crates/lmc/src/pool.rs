//! Threads of one compressor or decompressor, and the working memory that they reuse.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, mpsc};

use rayon::ThreadPool;

use crate::error::{Error, Result};

/// A pool of its own (never rayon's global one), or none for a single thread: then work is done by the caller.
pub(crate) struct Workers<S> {
    pool: Option<ThreadPool>,
    threads: usize,
    /// Working memory not in use. The last one put back is taken first: it is the warmest.
    scratch: Mutex<Vec<S>>,
    make: Box<dyn Fn() -> S + Send + Sync>,
}

impl<S: Send> Workers<S> {
    /// `threads` = 0 for as many as the machine has.
    pub(crate) fn new(threads: usize, make: impl Fn() -> S + Send + Sync + 'static) -> Result<Self> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let pool = if threads == 1 {
            None
        } else {
            let b = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("lmc-{i}"));
            Some(
                b.build()
                    .map_err(|e| Error::io(format!("cannot start {threads} threads"), std::io::Error::other(e)))?,
            )
        };
        Ok(Self { pool, threads, scratch: Mutex::new(Vec::new()), make: Box::new(make) })
    }

    /// Jobs that may be under way at once: enough that neither workers nor the caller wait for one slow job.
    pub(crate) fn in_flight(&self) -> usize {
        if self.threads == 1 { 1 } else { 2 * self.threads + 1 }
    }

    /// Bytes of buffers that may be under way at once. Reached only by the large blocks of deltas: three of them on two threads, ten on 16.
    fn budget(&self) -> usize {
        (self.threads << 23) + (1 << 24)
    }

    pub(crate) fn is_single(&self) -> bool {
        self.pool.is_none()
    }

    /// Runs `f` with working memory that nobody else uses.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        self.with_kept(true, f)
    }

    /// The same; afterwards the working memory is kept for others, or given back.
    pub(crate) fn with_kept<R>(&self, kept: bool, f: impl FnOnce(&mut S) -> R) -> R {
        let free = self.scratch.lock().expect("no panic while it is held").pop();
        let mut s = free.unwrap_or_else(|| (self.make)());
        let r = f(&mut s);
        if kept {
            self.scratch.lock().expect("no panic while it is held").push(s);
        }
        r
    }

    /// Runs `f` once on every thread, with working memory of its own.
    pub(crate) fn each(&self, f: impl Fn(&mut S) + Sync)
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
    /// jobs at once; `drain` sees jobs in the order in which they were fed. `jobs` (at least one) bounds what is
    /// under way and keeps the buffers for the next call. The error is the one of the earliest job that has one,
    /// whatever the number of threads: a job fails in `drain`, and an error of `feed` counts after the jobs fed before.
    ///
    /// Jobs are begun in the order in which they are fed: one that waits for what earlier ones do never waits in vain.
    pub(crate) fn ordered<J: Send>(
        &self,
        jobs: &mut Vec<J>,
        mut feed: impl FnMut(&mut J) -> Result<Option<usize>>,
        work: impl Fn(&mut S, &mut J) + Sync,
        mut drain: impl FnMut(&mut J) -> Result<()>,
    ) -> Result<()> {
        let Some(pool) = &self.pool else {
            let job = &mut jobs[0];
            while feed(job)?.is_some() {
                self.with(|s| work(s, job));
                drain(job)?;
            }
            return Ok(());
        };
        let work = &work;
        // Jobs that no worker has begun, oldest first.
        let waiting = &Mutex::new(VecDeque::new());
        pool.in_place_scope(|scope| {
            let (tx, rx) = mpsc::channel();
            // Jobs under way, oldest first: `None` until the worker is done.
            let mut under_way: VecDeque<(Option<J>, usize)> = VecDeque::new();
            let (mut first, mut weight) = (0usize, 0usize);
            let mut fed: Result<bool> = Ok(true);
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
                                let (id, mut job) = job.expect("there is one for each");
                                let done = catch_unwind(AssertUnwindSafe(|| self.with(|s| work(s, &mut job))));
                                // The receiver is gone only after an error, when nobody needs the job.
                                let _ = tx.send((id, done.map(|()| job)));
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
                while let Some((Some(job), _)) = under_way.front_mut() {
                    let drained = drain(job);
                    let (job, w) = under_way.pop_front().expect("it is the front");
                    jobs.extend(job);
                    first += 1;
                    weight -= w;
                    drained?;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn run(threads: usize, n: usize, fail: Option<usize>, feed_fails: Option<usize>) -> (Vec<usize>, Result<()>) {
        let workers = Workers::new(threads, || ()).unwrap();
        let mut jobs = vec![(0usize, 0usize); workers.in_flight()];
        let (mut next, mut out) = (0, vec![]);
        let under_way = AtomicUsize::new(0);
        let max = workers.in_flight();
        let r = workers.ordered(
            &mut jobs,
            |j| {
                if Some(next) == feed_fails {
                    return Err(Error::usage(format!("feed {next}")));
                }
                *j = (next, 0);
                next += 1;
                assert!(under_way.fetch_add(1, Ordering::SeqCst) < max);
                Ok((next <= n).then_some(1))
            },
            |(), j| j.1 = j.0 * j.0,
            |j| {
                under_way.fetch_sub(1, Ordering::SeqCst);
                if Some(j.0) == fail {
                    return Err(Error::usage(format!("drain {}", j.0)));
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
            assert_eq!((out.len(), r.unwrap_err().to_string()), (20, "drain 20".into()));
            let (out, r) = run(threads, 50, Some(40), Some(23));
            assert_eq!((out.len(), r.unwrap_err().to_string()), (23, "feed 23".into()));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let workers = Workers::new(2, || ()).unwrap();
        let mut left = 10;
        let r = catch_unwind(AssertUnwindSafe(|| {
            workers.ordered(
                &mut vec![(); 4],
                |()| {
                    left -= 1;
                    Ok((left > 0).then_some(0))
                },
                |(), ()| panic!("worker"),
                |()| Ok(()),
            )
        }));
        assert!(r.is_err());
    }

    #[test]
    fn heavy_jobs_run_alone() {
        let workers = Workers::new(2, || ()).unwrap();
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
                |()| {
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                },
            )
            .unwrap();
    }
}
