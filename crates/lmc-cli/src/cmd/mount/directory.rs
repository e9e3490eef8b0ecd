//! A directory, or files, with the originals in place of compressed files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::FileType;
use lmc::{DecompressOptions, ReadAt, Reader};
use lmc_store::files::parent;

use crate::fs::input::Source;
use crate::fs::links::{self, original};
use crate::mount::{Attributes, Decoded, Log, Opened, Tree, version_of_bytes};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::work::bases::Bases;

/// The most compressed files whose raw sizes are remembered.
const KNOWN: usize = 100_000;

/// Files on disk.
pub(super) struct Directory {
    root: Root,
    bases: Bases,
    options: DecompressOptions,
    log: Arc<Log>,
    /// Of compressed files, by path: a version, and the size of what it restores to, or none if it cannot be read.
    known: Mutex<HashMap<PathBuf, (u64, Option<u64>)>>,
}

/// What is at the root.
enum Root {
    /// A directory, by a path that leads to it even when something else is mounted there, and the name that it was given by.
    Directory { path: PathBuf, name: PathBuf, _open: File },
    /// Files, by the names that they are shown under.
    Files(BTreeMap<OsString, PathBuf>),
}

/// Where the bytes of what is shown at a path are.
enum Place {
    /// `None`: that of files that were named.
    Directory(Option<Metadata>),
    Plain(PathBuf, Metadata),
    Compressed {
        path: PathBuf,
        metadata: Metadata,
        size: u64,
    },
    Link(PathBuf, Metadata),
}

impl Directory {
    pub(super) fn open(name: &Path, bases: Bases, options: DecompressOptions, log: Arc<Log>) -> Result<Self> {
        let open = File::open(name).map_err(|e| Failure::io(name, "cannot be mounted", &e))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        let root = Root::Directory { path, name: name.to_owned(), _open: open };
        Ok(Self { root, bases, options, log, known: Mutex::default() })
    }

    /// Files, to be shown at a mount point that must not hide them.
    pub(super) fn of_files(
        files: &[PathBuf],
        at: &Path,
        bases: Bases,
        options: DecompressOptions,
        log: Arc<Log>,
    ) -> Result<Self> {
        let this = Self { root: Root::Files(BTreeMap::new()), bases, options, log, known: Mutex::default() };
        let mut shown = BTreeMap::new();
        for file in files {
            let opened = Source::open(file)?;
            let path = file.canonicalize().map_err(|e| Failure::io(file, "cannot be mounted", &e))?;
            if path.starts_with(at) {
                return Err(Failure::usage(
                    file,
                    "is in MOUNTPOINT, the last argument, which would hide it: mount its directory, or elsewhere",
                ));
            }
            let name = file.file_name().unwrap_or_default();
            let name = match original(name).filter(|_| this.restored_size(&path, opened.metadata()).is_some()) {
                Some(original) => original.to_owned(),
                None => name.to_owned(),
            };
            if let Some(other) = shown.insert(name, path) {
                let what =
                    format_args!("would have the name of {}: mount each at a directory of its own", Name::path(&other));
                return Err(Failure::usage(file, what));
            }
        }
        Ok(Self { root: Root::Files(shown), ..this })
    }

    /// The size that a compressed file restores to; none if it cannot be read; then the log has the reason.
    fn restored_size(&self, path: &Path, metadata: &Metadata) -> Option<u64> {
        let version = version_of_bytes(metadata);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, size)) = known().get(path).filter(|(seen, _)| *seen == version) {
            return *size;
        }
        let read = self.reader(path).map(|reader| reader.raw_size());
        let size = read.map_err(|why| self.say(format_args!("{why}; it is shown as it is"))).ok();
        let mut known = known();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(path.to_owned(), (version, size));
        size
    }

    fn reader(&self, path: &Path) -> Result<Reader<'static, Source>> {
        Reader::open(Source::open(path)?, &self.options).map_err(|e| Failure::codec(path, &e))
    }

    /// Says something, with the path that the directory was given by.
    fn say(&self, message: impl std::fmt::Display) {
        self.log.say(self.named(&message.to_string()));
    }

    fn named(&self, message: &str) -> String {
        match &self.root {
            Root::Directory { path, name, .. } => message.replace(&*path.to_string_lossy(), &name.to_string_lossy()),
            Root::Files(_) => message.to_owned(),
        }
    }

    /// What is shown at a path.
    fn place(&self, path: &Path) -> io::Result<Place> {
        let root = match &self.root {
            Root::Directory { path, .. } => path,
            Root::Files(_) if path.as_os_str().is_empty() => return Ok(Place::Directory(None)),
            Root::Files(files) => {
                let file = files.get(path.as_os_str()).ok_or_else(missing)?;
                let metadata = std::fs::metadata(file)?;
                return Ok(self.compressed(file, &metadata).unwrap_or_else(|| Place::Plain(file.clone(), metadata)));
            }
        };
        let real = if path.as_os_str().is_empty() { root.clone() } else { root.join(path) };
        let of_link =
            if path.as_os_str().is_empty() { std::fs::metadata(&real) } else { std::fs::symlink_metadata(&real) };
        let metadata = match of_link {
            // The original of a compressed file.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.compressed_beside(&real).ok_or(e),
            metadata => metadata?,
        };
        let metadata = match metadata.is_symlink().then(|| std::fs::metadata(&real)) {
            None => metadata,
            Some(Ok(target)) if !target.is_dir() => match self.linked(&real, &target) {
                Some(compressed) => return Ok(compressed),
                None => target,
            },
            Some(Ok(_)) => return Ok(Place::Link(real, metadata)),
            Some(Err(_)) => {
                // A file may have been compressed that links lead to.
                let target = parent(&real).join(std::fs::read_link(&real)?);
                return Ok(self.compressed_beside(&target).unwrap_or(Place::Link(real, metadata)));
            }
        };
        if metadata.is_dir() {
            return Ok(Place::Directory(Some(metadata)));
        }
        if !metadata.is_file() {
            return Err(missing());
        }
        match original(real.file_name().unwrap_or_default()) {
            // It has another name.
            Some(name)
                if !is_there(&real.with_file_name(name), &real) && self.compressed(&real, &metadata).is_some() =>
            {
                Err(missing())
            }
            _ => Ok(Place::Plain(real, metadata)),
        }
    }

    /// The compressed file of an original, if it can be read.
    fn compressed_beside(&self, original: &Path) -> Option<Place> {
        let path = links::with_suffix(original);
        let metadata = std::fs::metadata(&path).ok()?;
        self.compressed(&path, &metadata)
    }

    /// The compressed file that a link with the name of an original leads to: `lmc hub compress` leaves such.
    fn linked(&self, link: &Path, target: &Metadata) -> Option<Place> {
        let is_named = |path: &Path| path.file_name().and_then(original).is_some();
        let end = links::end(link).filter(|end| !is_named(link) && is_named(end))?;
        self.compressed(&end, target)
    }

    fn compressed(&self, path: &Path, metadata: &Metadata) -> Option<Place> {
        let size = metadata.is_file().then(|| self.restored_size(path, metadata))??;
        Some(Place::Compressed { path: path.to_owned(), metadata: metadata.clone(), size })
    }

    /// A compressed file, with its bases.
    fn decoded(&self, path: &Path) -> Result<Decoded> {
        let reader = self.reader(path)?;
        let bases = self.bases.for_file(path, reader.bases())?;
        let reader = reader.with_bases(bases).map_err(|e| Failure::codec(path, &e))?;
        let ends = reader.blocks().map(|block| block.raw_offset + block.raw_len).collect();
        let name = self.named(&Name::path(path).to_string());
        Ok(Decoded::new(name, ends, move |offset, to| {
            // On this thread.
            reader.read_exact_at(to, offset).map_err(|e| e.to_string())
        }))
    }
}

impl Tree for Directory {
    fn attributes(&self, path: &Path) -> io::Result<Attributes> {
        Ok(match self.place(path)? {
            Place::Directory(None) => Attributes::made(FileType::Directory, 0, 0, 0),
            Place::Directory(Some(metadata)) => Attributes::of(&metadata, FileType::Directory),
            Place::Link(_, metadata) => Attributes::of(&metadata, FileType::Symlink),
            Place::Plain(_, metadata) => Attributes::of(&metadata, FileType::RegularFile),
            Place::Compressed { metadata, size, .. } => {
                let version = version_of_bytes(&metadata);
                Attributes { size, version, ..Attributes::of(&metadata, FileType::RegularFile) }
            }
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
        let root = match &self.root {
            Root::Files(files) => return Ok(files.keys().map(|name| (name.clone(), FileType::RegularFile)).collect()),
            Root::Directory { path, .. } => path,
        };
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(root.join(path))? {
            let name = entry?.file_name();
            names.extend(original(&name).map(OsStr::to_owned));
            names.insert(name);
        }
        let shown = |name: OsString| {
            let kind = match self.place(&path.join(&name)).ok()? {
                Place::Directory(_) => FileType::Directory,
                Place::Link(..) => FileType::Symlink,
                Place::Plain(..) | Place::Compressed { .. } => FileType::RegularFile,
            };
            Some((name, kind))
        };
        Ok(names.into_iter().filter_map(shown).collect())
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        match self.place(path)? {
            Place::Link(path, _) => std::fs::read_link(path),
            _ => Err(rustix::io::Errno::INVAL.into()),
        }
    }

    fn open(&self, path: &Path, version: u64) -> io::Result<Option<Opened>> {
        let place = self.place(path)?;
        let opened = match &place {
            Place::Plain(path, _) => Opened::Plain(File::open(path)?),
            Place::Compressed { path, .. } => match self.decoded(path) {
                Ok(decoded) => Opened::Decoded(decoded),
                Err(why) => {
                    self.say(why);
                    return Err(rustix::io::Errno::IO.into());
                }
            },
            _ => return Err(rustix::io::Errno::INVAL.into()),
        };
        // What was opened is what is still there.
        Ok((self.attributes(path)?.version == version).then_some(opened))
    }
}

/// Whether something is at the path of the original of a compressed file, other than a link to that.
fn is_there(path: &Path, compressed: &Path) -> bool {
    path.symlink_metadata().is_ok() && links::end(path).is_none_or(|end| end != compressed)
}

/// An error with the number for the kernel.
fn missing() -> io::Error {
    rustix::io::Errno::NOENT.into()
}
