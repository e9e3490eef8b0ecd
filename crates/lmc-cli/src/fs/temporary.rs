//! A file before it has its name: unnamed where the system supports it, otherwise under a recognisable temporary name.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

use lmc_store::files::{self, copy_attributes, is_missing, parent, sync_file, unfinished};
use tempfile::NamedTempFile;

use crate::fs::leftovers;
use crate::platform;

/// When this variable is `named`, files get temporary names although unnamed ones would work.
const WAY: &str = "LMC_TEMPORARY";

/// A file that is removed when dropped.
pub(crate) enum Temporary {
    /// Unnamed: it vanishes however the process ends.
    Unnamed(File),
    /// Named: locked while it exists. In the command signals remove it; after a kill the next run in its directory does.
    Named(Named),
}

impl Temporary {
    /// Creates the file in the directory of `target`, after removing leftovers of killed runs there.
    pub(crate) fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let directory = parent(target);
        leftovers::sweep(directory);
        let unnamed = match std::env::var_os(WAY) {
            Some(way) if way == "named" => None,
            _ => platform::unnamed_file(directory, mode),
        };
        match unnamed {
            Some(file) => Ok(Self::Unnamed(file)),
            None => Named::create(target, |path| new_file(path, mode)).map(Self::Named),
        }
    }

    pub(crate) fn file(&self) -> &File {
        match self {
            Self::Unnamed(file) => file,
            Self::Named(named) => named.file(),
        }
    }

    /// Gives the file its name. An existing file is replaced with `overwrite`, and otherwise an error.
    pub(crate) fn give_name(self, target: &Path, overwrite: bool) -> io::Result<()> {
        let file = match self {
            Self::Named(named) => return named.give_name(target, overwrite),
            Self::Unnamed(file) => file,
        };
        match platform::give_name(&file, target) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && overwrite => {
                lock(&file);
                let linked = Named::create(target, |path| {
                    platform::give_name(&file, path)?;
                    file.try_clone()
                })?;
                linked.give_name(target, overwrite)
            }
            // As by a policy against links, or without /proc.
            Err(e) if is_missing(&e) || e.kind() == io::ErrorKind::NotFound => {
                copy(file, target)?.give_name(target, overwrite)
            }
            done => done,
        }
    }
}

/// Copies an unnamed file into one with a temporary name.
fn copy(mut from: File, target: &Path) -> io::Result<Named> {
    let like = from.metadata()?;
    let named = Named::create(target, |path| new_file(path, 0o600))?;
    from.rewind()?;
    io::copy(&mut from, &mut named.file())?;
    copy_attributes(named.file(), target, &like)?;
    sync_file(named.file(), target)?;
    Ok(named)
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    let file = files::create_new(path, mode)?;
    lock(&file);
    Ok(file)
}

/// Locks the file, so that later runs do not remove it. Where there are no locks, they remove nothing.
fn lock(file: &File) {
    let _ = file.try_lock();
}

/// A file under a temporary name.
pub(crate) struct Named {
    file: Option<NamedTempFile<File>>,
    path: PathBuf,
}

impl Named {
    /// Lets `create` make a file under a temporary name; it must fail if the name exists.
    fn create(target: &Path, create: impl FnMut(&Path) -> io::Result<File>) -> io::Result<Self> {
        let prefix = leftovers::prefix(target.file_name().ok_or(io::ErrorKind::IsADirectory)?);
        unfinished::register(|| {
            let mut builder = tempfile::Builder::new();
            let file = builder.prefix(&prefix).rand_bytes(leftovers::RANDOM).make_in(parent(target), create)?;
            let path = file.path().to_owned();
            Ok((Self { file: Some(file), path: path.clone() }, path))
        })
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("the file is open until it is named").as_file()
    }

    fn give_name(mut self, target: &Path, overwrite: bool) -> io::Result<()> {
        let (file, path) = self.file.take().expect("the file is open until it is named").into_parts();
        files::give_name(file, &path, target, overwrite)?;
        _ = path.keep(); // it has another name now
        Ok(())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(unnamed) = self.file.take() {
            let (file, path) = unnamed.into_parts();
            drop(file);
            _ = files::remove_closed(&path);
            _ = path.keep();
        }
        unfinished::forget(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, SystemTime};

    #[test]
    fn what_may_not_be_linked_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        for text in ["first", "second"] {
            let mut file = tempfile::tempfile_in(dir.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
            copy(file, &target).unwrap().give_name(&target, true).unwrap();
            assert_eq!(std::fs::read_to_string(&target).unwrap(), text);
            assert_eq!(std::fs::metadata(&target).unwrap().mtime(), 1_000_000);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        let again = copy(tempfile::tempfile().unwrap(), &target).unwrap().give_name(&target, false);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
