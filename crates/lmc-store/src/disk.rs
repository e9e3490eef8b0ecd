//! Blocking operations of a store in a directory.

use std::fmt;

use object_store::Result;

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
