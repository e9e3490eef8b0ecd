//! Work done by several threads, whose results the caller takes in order.

use lmc_pool::Workers;
use lmc_pool::threads;

use crate::error::Result;

/// How many threads to use for work that sometimes waits for the store: one more than the machine has cores if `wanted` is 0, so that
/// none of them is idle.
pub(crate) fn threads_that_wait(wanted: usize) -> usize {
    match wanted {
        0 => threads(0) + 1,
        n => n,
    }
}

/// Does `n` jobs on `threads` threads beside the caller, at most `ahead` more than the one that is taken next.
///
/// `begin` is called for jobs in order, before any work: it requests data that take a while to come, and no thread.
/// `work` gets the state that `start` made for its thread; `take` gets the results in order. The first error ends it.
pub(crate) fn run<B: Send, W: Send, T: Send>(
    threads: usize,
    ahead: usize,
    n: usize,
    mut begin: impl FnMut(usize) -> B,
    start: impl Fn() -> Result<W> + Sync,
    work: impl Fn(&mut W, usize, B) -> Result<T> + Sync,
    mut take: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let workers = Workers::beside_caller(threads.clamp(1, n.max(1)), || None);
    // The number of a job, and what it began with until a thread takes it.
    let mut slots: Vec<(usize, Option<B>)> = Vec::new();
    slots.resize_with(ahead + 1, || (0, None));
    let mut jobs = 0..n;
    workers.ordered(
        &mut slots,
        |slot| {
            let Some(job) = jobs.next() else { return Ok(None) };
            *slot = (job, Some(begin(job)));
            Ok(Some(0))
        },
        |own: &mut Option<W>, (job, begun)| {
            let own = match own {
                Some(own) => own,
                none => none.insert(start()?),
            };
            work(own, *job, begun.take().expect("it was fed"))
        },
        |(job, _), done| take(*job, done?),
    )
}

/// [`run`] for jobs that need nothing: `n` of them on as many threads as are wanted, a few ahead of the one that is taken next.
pub(crate) fn each<T: Send>(
    threads: usize,
    n: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
    take: impl FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let threads = lmc_pool::threads(threads);
    run(threads, threads, n, |_| (), || Ok(()), |(), i, ()| work(i), take)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order_and_not_far_ahead() {
        let (begun, mut taken) = (AtomicUsize::new(0), vec![]);
        run(
            3,
            4,
            100,
            |_| (),
            || Ok(()),
            |(), job, ()| {
                begun.fetch_add(1, Ordering::Relaxed);
                if job % 7 == 0 {
                    std::thread::yield_now();
                }
                Ok(job * job)
            },
            |job, square| {
                // The job that is being taken counts as not taken.
                assert!(begun.load(Ordering::Relaxed) <= job + 1 + 4);
                taken.push(square);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(taken, (0..100).map(|i| i * i).collect::<Vec<_>>());
        run(3, 4, 0, |_| (), || Ok(()), |(), _, ()| Ok(()), |_, ()| panic!("there are no jobs")).unwrap();
    }

    #[test]
    fn what_jobs_need_is_begun_before_they_are() {
        let begun = AtomicUsize::new(0);
        let mut taken = vec![];
        run(
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
                assert!(needed == job * 10 && begun > job && begun <= job + 6, "{job} {begun}");
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
        let e = run(4, 5, 1000, |_| (), || Ok(()), |(), job, ()| fail(job), |_, _| Ok(())).unwrap_err();
        assert_eq!(e.to_string(), "5");
        let e = run(4, 5, 1000, |_| (), || Ok(()), |(), job, ()| Ok(job), |job, _| fail(job).map(|_| ())).unwrap_err();
        assert_eq!(e.to_string(), "5");
        let e = run(4, 5, 1000, |_| (), || Err::<(), _>(Error::usage("no")), |(), job, ()| Ok(job), |_, _| Ok(()))
            .unwrap_err();
        assert_eq!(e.to_string(), "no");
    }

    #[test]
    #[should_panic(expected = "three")]
    fn a_panic_is_not_waited_for() {
        _ = run(
            2,
            3,
            10,
            |_| (),
            || Ok(()),
            |(), job, ()| if job == 3 { panic!("three") } else { Ok(()) },
            |_, ()| Ok(()),
        );
    }
}
