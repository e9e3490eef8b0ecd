//! The most memory that the codec takes at once, for the largest files that the format allows. A program of its own,
//! because all of its allocations are counted; so each test runs alone.

mod full_width;
mod hostile;
mod many_tensors;
mod streams;

use peak_alloc::PeakAlloc;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// To be kept by each test from its beginning to its end.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of `f`, and the most bytes that were allocated meanwhile beyond those before it.
fn peak<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let given = f();
    (given, ALLOCATED.peak_usage() - before)
}

/// The result of `f`, and the bytes that are allocated after it and were not before.
fn kept<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.current_usage();
    let given = f();
    (given, ALLOCATED.current_usage().saturating_sub(before))
}

/// Fails where more was allocated than `bound`.
#[track_caller]
fn at_most(bound: usize, allocated: usize, what: &str) {
    println!("{what}: {:.1} of {:.1} MiB", allocated as f64 / MIB as f64, bound as f64 / MIB as f64);
    assert!(allocated <= bound, "{what}: {allocated} bytes are allocated at once, and no more than {bound} may be");
}

const MIB: usize = 1 << 20;
