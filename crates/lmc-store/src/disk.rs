//! Blocking operations of a store in a directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use object_store::Result;

/// The error of an operation.
pub(crate) fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: "Directory", source: source.into() }
}

/// Runs blocking file operations.
pub(crate) async fn blocking<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(f).await.map_err(object_store::Error::from)?,
        Err(_) => f(),
    }
}

/// Creates a directory and its missing parents durably.
pub(crate) fn create_all(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists()).count();
    fs::create_dir_all(path)?;
    path.canonicalize()?.ancestors().take(missing + 1).skip(1).try_for_each(sync)
}

/// Syncs a directory: the entries for its names.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
