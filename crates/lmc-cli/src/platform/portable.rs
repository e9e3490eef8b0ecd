//! Any Unix: fewer features, and no hints.

use std::fs::File;
use std::io;
use std::path::Path;

use super::Descriptor;

/// Unnamed files that could be named later do not exist here.
pub(crate) fn unnamed_file(_directory: &Path, _mode: u32) -> Option<File> {
    None
}

/// Never called, as there are no unnamed files.
pub(crate) fn give_name(_file: &File, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Entries of `/dev/fd` are devices, not links.
pub(crate) fn open_descriptor(_path: &Path) -> Option<Descriptor> {
    None
}

/// Hints that a file will be read sequentially.
pub(crate) fn read_ahead(_file: &File) {}

/// Hints that a file's cached pages are not needed.
pub(crate) fn drop_from_cache(_file: &File) {}

/// Others than everywhere are not known.
pub(crate) fn ending_signals() -> impl Iterator<Item = i32> {
    std::iter::empty()
}

/// Ignored signals cannot be determined.
pub(crate) fn ignored_signals() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_promised() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        assert!(unnamed_file(dir.path(), 0o600).is_none() && open_descriptor(Path::new("/dev/stdout")).is_none());
        assert_eq!(give_name(&file, &dir.path().join("name")).unwrap_err().kind(), io::ErrorKind::Unsupported);
        read_ahead(&file);
        drop_from_cache(&file);
        assert_eq!((ignored_signals(), ending_signals().count()), (0, 0));
    }
}
