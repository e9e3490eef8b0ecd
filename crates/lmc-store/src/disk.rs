//! Blocking operations of a store in a directory.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use object_store::Result;

use crate::files::sync;

/// The error of an operation.
pub(crate) fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: "Directory", source: source.into() }
}

/// A write to a directory failed, before or after the object appeared. No answer was lost, as a server's may be: an object that is there all
/// the same may vanish in a power failure.
#[derive(Debug)]
pub(crate) struct NotOnDisk(object_store::Error);

impl NotOnDisk {
    /// Marks an error as one of a write, unless it says why nothing was written.
    pub(crate) fn mark(e: object_store::Error) -> object_store::Error {
        match e {
            e @ (object_store::Error::AlreadyExists { .. } | object_store::Error::NotFound { .. }) => e,
            e => failed(Self(e)),
        }
    }
}

impl fmt::Display for NotOnDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotOnDisk {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Runs blocking file operations.
pub(crate) async fn blocking<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(f).await.map_err(object_store::Error::from)?,
        Err(_) => f(),
    }
}

/// Creates a directory and its missing parents durably. One that exists may have been created a moment ago by a process that did not get to
/// make it durable.
pub(crate) fn create_all(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists()).count();
    fs::create_dir_all(path)?;
    let path = path.canonicalize()?;
    if missing == 0 {
        return match path.parent().map_or(Ok(()), sync) {
            // Somebody else's directory, as above a mount, or one of a file system that cannot sync directories: it was there before.
            Err(e) => match e.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Ok(()),
                _ => Err(e),
            },
            Ok(()) => Ok(()),
        };
    }
    path.ancestors().take(missing + 1).skip(1).try_for_each(sync)
}
