//! A file to be saved.

use lmc::ReadAt;

use crate::error::{Error, Result};

/// A file to be saved.
#[derive(Clone)]
pub struct Input<'a> {
    pub(super) name: String,
    pub(super) source: &'a dyn ReadAt,
}

impl<'a> Input<'a> {
    /// The contents of `source` under a name: a path below the directory to restore to, with slashes.
    pub fn new(name: impl Into<String>, source: &'a dyn ReadAt) -> Self {
        Self { name: name.into(), source }
    }

    pub(super) fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.source.read_exact_at(buf, offset).map_err(|e| {
            let shorter = e.kind() == std::io::ErrorKind::UnexpectedEof;
            Error::io(if shorter { "was truncated while it was read" } else { "cannot read" }, e)
        })
    }
}
