//! Directories, and the names in them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::weaker::is_missing;

/// The directory that contains a path's last component.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the names in a directory durable, where that is possible: a file system may be unable to, and a directory that is written may not
/// be read.
///
/// # Errors
/// Errors of the operating system.
pub fn sync(directory: &Path) -> io::Result<()> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        Err(e) if is_missing(&e) => Ok(()),
        synced => synced,
    }
}

/// Syncs a directory and all directories in it.
pub(crate) fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync(directory)
}

/// Creates a directory and its missing parents durably. One that exists may have been created a moment ago by a process that did not get to
/// make it durable.
///
/// # Errors
/// Errors of the operating system.
pub fn create_all(path: &Path) -> io::Result<()> {
    // The working directory is there, even where it cannot be looked at.
    if path.as_os_str().is_empty() || path == Path::new(".") {
        return Ok(());
    }
    let missing = path.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists()).count();
    fs::create_dir_all(path)?;
    path.canonicalize()?.ancestors().take(missing.max(1) + 1).skip(1).try_for_each(sync)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents() {
        assert_eq!(parent(Path::new("a")), Path::new("."));
        assert_eq!(parent(Path::new("a/b")), Path::new("a"));
        assert_eq!(parent(Path::new("/a")), Path::new("/"));
    }
}
