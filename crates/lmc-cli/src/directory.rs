//! The directory of a file.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// The directory that contains a path's last component.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the names in a directory durable, where that is possible.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    synced(File::open(dir).and_then(|dir| dir.sync_all()))
}

/// The result of syncing, if that is possible: a file system may be unable to, and a directory that is written may not be read.
pub(crate) fn synced(result: io::Result<()>) -> io::Result<()> {
    let impossible = [Errno::ACCESS, Errno::INVAL, Errno::NOTSUP].map(|errno| Some(errno.raw_os_error()));
    result.or_else(|e| if impossible.contains(&e.raw_os_error()) { Ok(()) } else { Err(e) })
}

/// Creates a directory and its missing parents durably.
///
/// # Errors
/// Errors of the operating system.
pub fn create_directories(dir: &Path) -> io::Result<()> {
    // The working directory is there, even where it cannot be looked at.
    if dir.as_os_str().is_empty() || dir == Path::new(".") || dir.is_dir() {
        return Ok(());
    }
    create_directories(parent(dir))?;
    match std::fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(e),
        Ok(()) => sync_directory(parent(dir)),
    }
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
