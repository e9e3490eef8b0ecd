//! Changes in the directories of a cache. Each is one rename or one removal, so that links lead to a whole file at any
//! moment.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lmc::{BaseInfo, DecompressOptions, Reader};
use lmc_store::files::{self, parent};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::cache::{Cache, is_compressed};
use crate::fs::input::{Source, same_file};
use crate::fs::links::{self, original, with_suffix};
use crate::ui::failure::{Failure, Result};
use crate::ui::interrupt;

/// Of the names of links until they replace the file.
const NEW_LINK: &str = ".lmc-link";
/// Of the lists of links to a file that models share, beside it.
const REFERENCES: &str = ".refs";

/// Excludes other runs that change the cache. Fails if it cannot be changed.
pub(super) fn exclusively(cache: &Cache) -> Result<File> {
    if access(&cache.dir, Access::WRITE_OK) == Err(Errno::ROFS) {
        let why = "is on a read-only file system: if that is lmc mount's, unmount it first";
        return Err(Failure::at(&cache.dir, why));
    }
    let dir = File::open(&cache.dir).map_err(|e| Failure::io(&cache.dir, "cannot read", &e))?;
    match dir.try_lock() {
        Err(fs::TryLockError::WouldBlock) => {
            Err(Failure::at(&cache.dir, "is being compressed or restored by another lmc hub: wait for it"))
        }
        // Where there are no locks, the user sees to it.
        _ => Ok(dir),
    }
}

/// Replaces a file by a link to the compressed one beside it, unless it changed since it was opened, or is being
/// downloaded. What has it open or mapped keeps its bytes.
pub(super) fn replace_by_link(source: &Source, lock: &Path) -> Result {
    let path = source.path();
    let _locked = hold(lock).ok_or_else(|| Failure::at(path, "is left alone: it is being downloaded"))?;
    let named = path.symlink_metadata().map_err(|e| Failure::io(path, "cannot read", &e))?;
    if !same_file(&named, source.metadata()) {
        return Err(Failure::at(path, "is left alone: it is another file now"));
    }
    source.check_unchanged()?;
    let cannot = |e: io::Error| Failure::io(path, "cannot be replaced by a link", &e);
    let compressed = with_suffix(path);
    let mut link = path.as_os_str().to_owned();
    link.push(NEW_LINK);
    let link = PathBuf::from(link);
    let _uninterrupted = interrupt::hold();
    // Of a run that was killed.
    _ = fs::remove_file(&link);
    symlink(compressed.file_name().unwrap_or_default(), &link).map_err(cannot)?;
    fs::rename(&link, path).and_then(|()| files::sync(parent(path))).map_err(cannot)
}

/// Holds a lock of huggingface_hub; `None` if it does. A lock file that is missing is not held.
fn hold(lock: &Path) -> Option<Option<File>> {
    let Ok(file) = File::options().write(true).open(lock) else { return Some(None) };
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => None,
        _ => Some(Some(file)),
    }
}

/// Gives compressed bases a second name in the directory of what is predicted from them.
pub(super) fn keep_bases<'p>(bases: impl IntoIterator<Item = &'p Path>, directory: &Path) -> io::Result<()> {
    for base in bases {
        let (from, to) = (with_suffix(base), with_suffix(&directory.join(base.file_name().unwrap_or_default())));
        match fs::hard_link(&from, &to) {
            // Its name is the hash of its bytes.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && contents(&to) == contents(&from) => {}
            linked => linked?,
        }
    }
    files::sync(directory)
}

/// Whether a path is that of a compressed file that needs no base.
pub(super) fn is_whole(path: &Path) -> bool {
    contents(path).is_some_and(|(_, bases)| bases.is_empty())
}

/// What a compressed file restores to, and needs.
fn contents(path: &Path) -> Option<([u8; 16], Vec<BaseInfo>)> {
    let options = DecompressOptions::default().with_threads(1); // nothing is decoded
    let reader = Reader::open(Source::open(path).ok()?, &options).ok()?;
    Some((reader.content_hash(), reader.bases().to_vec()))
}

/// The compressed files in a directory of blobs. It is read once.
pub(super) struct Directory<'a> {
    cache: &'a Cache,
    path: PathBuf,
    files: Vec<Blob>,
}

/// A compressed file.
struct Blob {
    path: PathBuf,
    /// What links to it are called.
    original: PathBuf,
    /// Whether a link leads to it.
    is_used: bool,
    /// What it restores to, and needs; `None` if it cannot be read.
    contents: Option<([u8; 16], Vec<BaseInfo>)>,
}

impl<'a> Directory<'a> {
    /// Reads a directory, and removes links of runs that were killed.
    pub(super) fn read(cache: &'a Cache, path: &Path) -> Result<Self> {
        let mut this = Self { cache, path: path.to_owned(), files: Vec::new() };
        for entry in fs::read_dir(path).map_err(|e| this.cannot(&e))? {
            let path = entry.map_err(|e| this.cannot(&e))?.path();
            let name = path.file_name().unwrap_or_default();
            if name.to_string_lossy().ends_with(NEW_LINK) {
                fs::remove_file(&path).map_err(|e| this.cannot(&e))?;
                continue;
            }
            let Some(original) = original(name).map(|name| path.with_file_name(name)) else { continue };
            if path.symlink_metadata().is_ok_and(|m| m.is_file()) {
                let (is_used, contents) = (is_used(cache, &original), contents(&path));
                this.files.push(Blob { path, original, is_used, contents });
            }
        }
        Ok(this)
    }

    fn cannot(&self, e: &io::Error) -> Failure {
        Failure::io(&self.path, "cannot be cleaned", e)
    }

    /// Says that the link `original` was replaced by what it led to.
    pub(super) fn restored(&mut self, original: &Path) {
        if let Some(file) = self.files.iter_mut().find(|file| file.original == original) {
            file.is_used = is_used(self.cache, original);
        }
    }

    /// Removes the compressed files that no link leads to, and that are no bases of others here; and of files that models
    /// share, those that no model has any more. Returns how many bytes they took.
    pub(super) fn sweep(&mut self) -> Result<u64> {
        // What cannot be read is not removed, nor what it may need.
        if self.files.iter().any(|file| file.is_used && file.contents.is_none()) {
            return Ok(0);
        }
        let bases_of = |hash: Option<[u8; 16]>| {
            let of = move |file: &&Blob| match hash {
                None => file.is_used,
                Some(hash) => !file.is_used && file.contents.as_ref().is_some_and(|c| c.0 == hash),
            };
            self.files
                .iter()
                .filter(of)
                .flat_map(|file| &file.contents)
                .flat_map(|c| &c.1)
                .map(|base| base.content_hash)
        };
        let (mut needed, mut open) = (HashSet::new(), bases_of(None).collect::<Vec<_>>());
        while let Some(base) = open.pop() {
            if needed.insert(base) {
                open.extend(bases_of(Some(base)));
            }
        }
        let is_kept = |file: &Blob| file.is_used || file.contents.as_ref().is_none_or(|c| needed.contains(&c.0));
        let (kept, unused) = std::mem::take(&mut self.files).into_iter().partition::<Vec<_>, _>(is_kept);
        self.files = kept;
        let mut freed = 0;
        for Blob { path, original, .. } in unused {
            freed += path.metadata().map_or(0, |m| m.len());
            if is_compressed(&original) {
                fs::remove_file(&original).map_err(|e| self.cannot(&e))?;
                _ = fs::remove_file(references(&original));
            }
            fs::remove_file(path).map_err(|e| self.cannot(&e))?;
        }
        Ok(freed)
    }
}

/// Whether a link leads to the compressed form of a file.
fn is_used(cache: &Cache, original: &Path) -> bool {
    (is_compressed(original) || cache.missing.contains(original)) && !is_deleted(cache, original)
}

/// Whether a file that models share is one that all of them deleted. As huggingface_hub does, the list beside it is
/// trusted only if it is there.
fn is_deleted(cache: &Cache, shared: &Path) -> bool {
    let Ok(list) = fs::read_to_string(references(shared)) else { return false };
    let leads_to_it = |link: &str| {
        let next = links::next(&cache.dir.join(link));
        next.is_some_and(|next| {
            parent(&next).canonicalize().is_ok_and(|dir| dir == parent(shared))
                && next.file_name() == shared.file_name()
        })
    };
    !list.lines().any(leads_to_it)
}

fn references(shared: &Path) -> PathBuf {
    let mut path = shared.as_os_str().to_owned();
    path.push(REFERENCES);
    path.into()
}
