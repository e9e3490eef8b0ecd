//! Files that exist before they are complete, for whoever has to remove them when a signal ends the process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether anybody removes them. If not, nothing is recorded, and the lock is never held across a fork.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Their paths. Files are created under the lock, so that the clean-up misses none.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// No file can be recorded while it exists.
pub struct Ended(#[allow(dead_code, reason = "it holds the lock")] MutexGuard<'static, Vec<PathBuf>>);

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has files recorded from now on: the process calls [`remove_all`] before it ends.
pub fn watch() {
    WATCHED.store(true, Ordering::Relaxed);
}

/// Removes all that are recorded.
#[must_use = "files can be created again once it is dropped"]
pub fn remove_all() -> Ended {
    let mut files = unfinished();
    for path in files.drain(..) {
        // It may just have been renamed to its final name: then it is complete, and absent here.
        let _ = std::fs::remove_file(path);
    }
    Ended(files)
}

/// Runs `create`, which creates a file, and records its path until [`forget`].
///
/// # Errors
/// Those of `create`.
pub fn register<T>(create: impl FnOnce() -> io::Result<(T, PathBuf)>) -> io::Result<T> {
    if !WATCHED.load(Ordering::Relaxed) {
        return create().map(|(file, _)| file);
    }
    let mut files = unfinished();
    let (file, path) = create()?;
    files.push(path);
    Ok(file)
}

/// Takes a path off the record: the file is gone or complete.
pub fn forget(path: &Path) {
    if WATCHED.load(Ordering::Relaxed) {
        unfinished().retain(|p| p != path);
    }
}
