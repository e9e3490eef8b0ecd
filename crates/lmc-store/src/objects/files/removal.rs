//! Removal of files and directories.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::weaker::is_missing;

/// Removes a file that was closed a moment ago. Some file systems of FUSE do not remove open files, and close them in the background.
///
/// # Errors
/// Errors of the operating system.
pub fn remove_closed(path: &Path) -> io::Result<()> {
    for _ in 0..20 {
        match fs::remove_file(path) {
            Err(e) if is_missing(&e) => std::thread::sleep(Duration::from_millis(5)),
            removed => return removed,
        }
    }
    fs::remove_file(path)
}

/// Removes a file, a link or a whole directory. No link is followed.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(m) if m.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    if_there(removed).map(|_| ())
}

/// Nothing, where nothing is there.
pub(crate) fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
