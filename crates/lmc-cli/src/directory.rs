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
