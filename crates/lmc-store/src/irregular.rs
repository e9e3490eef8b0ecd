//! What is under the key of an object in a directory, and is no regular file.

use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;

/// Something is where an object should be, and is no regular file: it is not opened, which could wait for ever.
#[derive(Debug)]
pub(crate) struct Irregular(&'static str);

impl fmt::Display for Irregular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is {}, and no regular file", self.0)
    }
}

impl std::error::Error for Irregular {}

impl Irregular {
    /// What is of this kind, unless that is a regular file.
    pub(crate) fn of(kind: fs::FileType) -> Option<Self> {
        let name = match kind {
            kind if kind.is_file() => return None,
            kind if kind.is_dir() => "a directory",
            kind if kind.is_symlink() => "a symbolic link to nothing",
            kind if kind.is_fifo() => "a FIFO",
            kind if kind.is_socket() => "a socket",
            _ => "a device",
        };
        Some(Self(name))
    }
}
