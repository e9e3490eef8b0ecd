//! Bases that were not named: found in the directory of their delta, or in given ones, by the hash of their contents.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lmc::{Base, BaseInfo, DecompressOptions, ReadAt, Reader};
use lmc_store::files::{Identity, parent};

use crate::fs::input::Source;
use crate::fs::links;

/// Directories in which bases are looked for, and what is known of the files there.
#[derive(Default)]
pub(crate) struct Beside {
    /// Those that were given, with everything below them.
    directories: Vec<PathBuf>,
    known: Mutex<BTreeMap<PathBuf, (Identity, Contents)>>,
    /// Another thread sets it to end the reading of files.
    stop: Arc<AtomicBool>,
}

/// The files beside a delta that it needs, with those that these need; `None` unless all are there, or once `stop` is
/// set.
pub fn bases_beside(delta: &Path, wanted: &[BaseInfo], threads: usize, stop: Arc<AtomicBool>) -> Option<Vec<PathBuf>> {
    Beside { stop, ..Beside::default() }.find(delta, wanted, |_| false, threads).ok()
}

/// A file that cannot be read any more once it is to end.
struct UntilStopped<'a>(&'a Source, &'a AtomicBool);

impl ReadAt for UntilStopped<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::Error::other("interrupted")),
            false => self.0.read_exact_at(buf, offset),
        }
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}

/// What a file restores to, or is.
#[derive(Clone)]
struct Contents {
    raw_size: u64,
    /// Of a raw file once it is needed.
    hash: Option<[u8; 16]>,
    /// Of a delta.
    bases: Vec<BaseInfo>,
}

impl Beside {
    pub(crate) fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, ..Self::default() }
    }

    /// The files that a delta needs, with those that these need, except what the caller `has`.
    ///
    /// # Errors
    /// One that is not found.
    pub(crate) fn find(
        &self,
        delta: &Path,
        wanted: &[BaseInfo],
        has: impl Fn(&BaseInfo) -> bool,
        threads: usize,
    ) -> Result<Vec<PathBuf>, BaseInfo> {
        // It may be a link into the cache of a hub.
        let end = links::end(delta);
        let mut files: Vec<PathBuf> =
            [Some(delta), end.as_deref()].into_iter().flatten().flat_map(|at| in_directory(parent(at))).collect();
        files.retain(|file| file != delta && Some(file) != end.as_ref());
        self.directories.iter().for_each(|dir| add_below(dir, &mut files));
        let (mut found, mut looked_for) = (Vec::new(), HashSet::new());
        let mut open = wanted.to_vec();
        while let Some(base) = open.pop() {
            if has(&base) || !looked_for.insert((base.raw_size, base.content_hash)) {
                continue;
            }
            let Some((path, bases)) = self.find_one(&files, &base, threads) else { return Err(base) };
            found.push(path);
            open.extend(bases);
        }
        Ok(found)
    }

    /// The file with the bytes of a base, and what it needs itself.
    fn find_one(&self, files: &[PathBuf], base: &BaseInfo, threads: usize) -> Option<(PathBuf, Vec<BaseInfo>)> {
        let known = files.iter().filter_map(|path| Some((path, self.contents(path)?)));
        let mut same_size: Vec<(&PathBuf, Contents)> = known.filter(|(_, c)| c.raw_size == base.raw_size).collect();
        // What need not be read to be known, and no delta, comes first; then the file of the right name.
        same_size.sort_by_key(|(path, c)| {
            let is_named = path.file_name().is_some_and(|name| *name == *base.name);
            (c.hash.is_none(), !c.bases.is_empty(), !is_named)
        });
        let hash = |path: &Path, c: &Contents| c.hash.or_else(|| self.hash(path, threads));
        let found = same_size.into_iter().find(|(path, c)| hash(path, c) == Some(base.content_hash));
        found.map(|(path, contents)| (path.clone(), contents.bases))
    }

    /// What is known of a file without reading all of it. None of what cannot be read.
    fn contents(&self, path: &Path) -> Option<Contents> {
        let now = Identity::at(path).ok()?;
        if let Some((_, contents)) = self.known().get(path).filter(|(seen, _)| now.is_unchanged(seen)) {
            return Some(contents.clone());
        }
        let source = Source::open(path).ok()?;
        let mut start = [0; lmc::MAGIC.len()];
        let contents = if source.start(&mut start).ok()? == lmc::MAGIC {
            let reader = Reader::open(&source, &DecompressOptions::default().with_threads(1)).ok()?; // nothing is decoded
            let (raw_size, hash) = (reader.raw_size(), Some(reader.content_hash()));
            Contents { raw_size, hash, bases: reader.bases().to_vec() }
        } else {
            Contents { raw_size: source.metadata().len(), hash: None, bases: Vec::new() }
        };
        self.known().insert(path.to_owned(), (Identity::of(source.metadata()), contents.clone()));
        Some(contents)
    }

    /// The hash of a raw file, which reads it once.
    fn hash(&self, path: &Path, threads: usize) -> Option<[u8; 16]> {
        let source = Source::open(path).ok()?;
        let hash = Base::new(UntilStopped(&source, &self.stop)).and_then(|base| base.content_hash(threads)).ok()?;
        source.check_unchanged().ok()?;
        let contents = Contents { raw_size: source.metadata().len(), hash: Some(hash), bases: Vec::new() };
        self.known().insert(path.to_owned(), (Identity::of(source.metadata()), contents));
        Some(hash)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<PathBuf, (Identity, Contents)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files in a directory, as far as it can be read, by name. Model caches consist of links.
fn in_directory(dir: &Path) -> Vec<PathBuf> {
    let plain = if dir == Path::new(".") { Path::new("") } else { dir };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|e| plain.join(e.file_name())).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Adds the files of a directory and of those below it. Links to directories are not followed: they may lead in a circle.
fn add_below(dir: &Path, files: &mut Vec<PathBuf>) {
    files.extend(in_directory(dir));
    let mut entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries.iter().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())) {
        add_below(&entry.path(), files);
    }
}
