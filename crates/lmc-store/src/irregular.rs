//! Files that are not regular, found at the path of an object in a directory.

use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;

/// The path of an object holds something that is not a regular file. It is not opened, as that could block for ever.
#[derive(Debug)]
pub(crate) struct Irregular(&'static str);

impl fmt::Display for Irregular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is {}, not a regular file", self.0)
    }
}

impl std::error::Error for Irregular {}

impl Irregular {
    /// The error for a file of this type, unless it is a regular file.
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
