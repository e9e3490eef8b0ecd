//! Changes of files that are on disk when they return, and that follow no link.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file that appears under its name when it is complete and on disk.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    remove_if_there(&new)?;
    let mut file = File::create_new(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// Syncs a directory and all directories in it.
pub(crate) fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync(directory)
}

/// Removes a file, a link or a whole directory. No link is followed.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(m) if m.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    if_there(removed).map(|_| ())
}

/// Nothing, where nothing is there.
pub(crate) fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Syncs a directory: the entries for its names.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
