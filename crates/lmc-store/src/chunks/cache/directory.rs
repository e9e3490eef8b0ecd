//! The cache's own directory, recognised by a marker file that it wrote.
//!
//! The user may keep other files in the directory named for a cache. So the cache writes and deletes only in a subdirectory with the
//! marker, and deletes only files with names of the form given here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::format::ids::Hash;
use crate::objects::files::give_name;

/// Name of the subdirectory within the directory that the user named.
const NAME: &str = "lmc-cache";
/// The marker file and its contents. The first line lets backup programs skip the directory (Cache Directory Tagging Specification).
const MARK: &str = "CACHEDIR.TAG";
const MARKED: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
    # The cache of a store of lmc. It may be deleted at any time. Files in it whose names are hashes are deleted without asking.\n";
/// Suffix of a file's name while it is written.
const UNFINISHED: &str = ".lmc-unfinished";

/// The cache's own directory.
#[derive(Debug)]
pub(super) struct CacheDirectory {
    path: PathBuf,
}

impl CacheDirectory {
    /// Opens the cache's directory below `within`, and creates both if missing. Also returns the files in it, with their lengths.
    ///
    /// # Errors
    /// `Usage` when a directory of that name is not a cache's, `Io` when it cannot be created, marked or listed.
    pub(super) fn open(within: &Path) -> Result<(Self, Vec<(Hash, u64)>)> {
        let path = within.join(NAME);
        let failed = |e| Error::io(format_args!("{}: cannot use the cache", path.display()), e);
        fs::create_dir_all(within).map_err(failed)?;
        match fs::create_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
        let directory = Self { path: path.clone() };
        directory.check_mark()?;
        let found = directory.find().map_err(failed)?;
        Ok((directory, found))
    }

    /// Checks the marker, or writes it if the directory is empty.
    fn check_mark(&self) -> Result<()> {
        let failed = |e| Error::io(format_args!("{}: cannot use the cache", self.path.display()), e);
        let refused = |why: &str| {
            let path = self.path.display();
            Error::usage(format!(
                "{path}: {why}, and a cache deletes files only in a directory that it made: move it away, or name another directory for the cache"
            ))
        };
        if !fs::symlink_metadata(&self.path).map_err(failed)?.is_dir() {
            return Err(refused("is not a directory"));
        }
        let mark = self.path.join(MARK);
        let marked = || match fs::symlink_metadata(&mark) {
            Ok(m) if m.is_file() => fs::read(&mark),
            Ok(_) => Ok(b"something else".to_vec()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(vec![]),
            Err(e) => Err(e),
        };
        if marked().map_err(failed)? == MARKED {
            return Ok(());
        }
        let others = fs::read_dir(&self.path).and_then(|entries| {
            entries.map(|e| e.map(|e| e.file_name())).filter(|n| !n.as_ref().is_ok_and(|n| n == MARK)).collect()
        });
        let others: Vec<_> = others.map_err(failed)?;
        // Another process may have written the marker and files meanwhile, or be about to.
        let there = marked().map_err(failed)?;
        if there == MARKED {
            return Ok(());
        }
        if !others.is_empty() || !MARKED.starts_with(&there) {
            return Err(refused("holds files that no cache of lmc wrote"));
        }
        fs::write(&mark, MARKED).map_err(failed)
    }

    /// The cached files. Unfinished files are removed: if another process is still writing one, its entry is not kept.
    fn find(&self) -> io::Result<Vec<(Hash, u64)>> {
        let mut found = vec![];
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.strip_suffix(UNFINISHED).is_some_and(|n| n.parse::<Hash>().is_ok()) {
                self.remove_file(&name);
            } else if let Ok(hash) = name.parse()
                && let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                found.push((hash, metadata.len()));
            }
        }
        Ok(found)
    }

    /// Reads the `len` bytes of the file of a hash, without verifying them.
    pub(super) fn read(&self, hash: Hash, len: u64) -> Option<Bytes> {
        let path = self.path.join(hash.to_string());
        if !is_file_of(&path, len) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        File::open(path).ok()?.read_exact(&mut bytes).ok()?;
        Some(bytes.into())
    }

    /// Writes the file of a hash.
    pub(super) fn write(&self, hash: Hash, raw: &[u8]) -> io::Result<()> {
        let unfinished = format!("{hash}{UNFINISHED}");
        // An existing one is written by another process, with the same bytes. Links are not followed.
        let mut file = OpenOptions::new().write(true).create_new(true).open(self.path.join(&unfinished))?;
        let written = file
            .write_all(raw)
            .and_then(|()| give_name(file, &self.path.join(&unfinished), &self.path.join(hash.to_string()), true));
        written.inspect_err(|_| self.remove_file(&unfinished))
    }

    /// Removes the file of a hash, if it exists.
    pub(super) fn remove(&self, hash: Hash) {
        self.remove_file(&hash.to_string());
    }

    /// Removes a regular file; leaves anything else of that name alone.
    fn remove_file(&self, name: &str) {
        let path = self.path.join(name);
        if fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
            _ = fs::remove_file(path);
        }
    }
}

/// Whether this is a regular file of length `len`. Does not open anything else.
fn is_file_of(path: &Path, len: u64) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() == len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_directory_is_the_caches_own_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let own = |name: &str| at(name).join(NAME);
        CacheDirectory::open(&at("new/deep")).unwrap();
        CacheDirectory::open(&at("new/deep")).unwrap();
        // Written by a process that died, or that had no room for the whole marker.
        fs::create_dir_all(own("empty")).unwrap();
        CacheDirectory::open(&at("empty")).unwrap();
        fs::write(own("empty").join(MARK), &MARKED[..20]).unwrap();
        CacheDirectory::open(&at("empty")).unwrap();
        assert_eq!(fs::read(own("empty").join(MARK)).unwrap(), MARKED);
        // Foreign files.
        fs::create_dir_all(own("other")).unwrap();
        fs::write(own("other").join("thesis"), "all of it").unwrap();
        fs::create_dir_all(own("marked")).unwrap();
        fs::write(own("marked").join(MARK), "Signature: of another program").unwrap();
        fs::create_dir_all(at("linked")).unwrap();
        symlink(own("new/deep"), own("linked")).unwrap();
        fs::create_dir_all(at("file")).unwrap();
        fs::write(own("file"), "").unwrap();
        for name in ["other", "marked", "linked", "file"] {
            let e = CacheDirectory::open(&at(name)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Usage, "{name}");
            assert!(e.to_string().contains("name another directory"), "{e}");
        }
        assert_eq!(fs::read(own("other").join("thesis")).unwrap(), b"all of it");
    }

    #[test]
    fn links_are_neither_read_nor_removed_nor_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, _) = CacheDirectory::open(dir.path()).unwrap();
        let (hash, victim) = (Hash::of(b"raw"), dir.path().join("victim"));
        fs::write(&victim, "raw").unwrap();
        let unfinished = cache.path.join(format!("{hash}{UNFINISHED}"));
        for link in [cache.path.join(hash.to_string()), unfinished.clone()] {
            symlink(&victim, &link).unwrap();
        }
        assert!(cache.find().unwrap().is_empty() && cache.read(hash, 3).is_none());
        cache.remove(hash);
        cache.write(hash, b"new").unwrap_err();
        assert!(fs::symlink_metadata(unfinished).unwrap().is_symlink());
        assert_eq!(fs::read(victim).unwrap(), b"raw");
    }
}
