//! Any Unix: less is known, and hints are not given.

use std::fs::File;
use std::io;
use std::path::Path;

use super::Descriptor;

/// There are no files without a name that could be given one.
pub(crate) fn unnamed_file(_directory: &Path, _mode: u32) -> Option<File> {
    None
}

/// Never asked for, without such files.
pub(crate) fn give_name(_file: &File, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What stands in `/dev/fd` is no link, but a device.
pub(crate) fn open_descriptor(_path: &Path) -> Option<Descriptor> {
    None
}

/// A file will be read from front to back.
pub(crate) fn read_ahead(_file: &File) {}

/// A range of a file is complete.
pub(crate) fn start_writeback(_file: &File, _offset: u64, _len: u64) {}

/// A file will not be needed from memory.
pub(crate) fn drop_from_cache(_file: &File) {}

/// Signals that are to be ignored cannot be told from others.
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
        start_writeback(&file, 0, 1);
        drop_from_cache(&file);
        assert_eq!(ignored_signals(), 0);
    }
}
