//! A directory that always holds one whole version, and moves to the next one by fetching only the changes.
//!
//! Each version has a directory of its own, and `current` is a link to one of them: it is replaced by a rename, so that there is no
//! moment without a whole version.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::marker::{Committed, Marker};
use super::order;
use super::staged::{FollowOptions, Staged, Version};
use super::version::{self, Description, StoredFile};
use crate::chunks::held::Held;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{RunId, SaveId, Step};
use crate::objects::files::{is_missing, lock, remove_if_there, sync, sync_file, sync_tree};
use crate::ops::restore::{FileInfo, SnapshotReader};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// The link to the current version's directory.
const CURRENT: &str = "current";
/// Its name before it replaces the one before.
const NEW: &str = ".current.new";
/// The directory of all versions.
const VERSIONS: &str = "versions";
const LOCK: &str = ".lmc-follow.lock";
/// The directory of the version that is being written, in [`VERSIONS`].
const STAGING: &str = ".staging";

/// A directory that follows a store. One process at a time may use it.
///
/// ```no_run
/// use lmc_store::{FollowOptions, Follower, Location, Store};
/// let store = Store::open(&"s3://bucket/run".parse::<Location>()?, Default::default())?;
/// let mut follower = Follower::open(store, "/models/run".as_ref(), FollowOptions::default())?;
/// if let Some(snapshot) = follower.newest()? {
///     let staged = follower.stage(&snapshot, &mut |_| Ok(()))?;
///     follower.commit(staged)?;
/// }
/// # Ok::<(), lmc_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Follower {
    pub(super) store: Store,
    directory: PathBuf,
    pub(super) options: FollowOptions,
    pub(super) current: Option<Version>,
    marker: Marker,
    /// Locked as long as it is open.
    _lock: File,
}

impl Follower {
    /// Opens a directory, or makes an empty or missing one follow the store. Removes what an earlier process left unfinished,
    /// if that is possible.
    ///
    /// # Errors
    /// `Usage` when the directory holds other files; `Exists` when another process follows into it; `Unsupported` when another version of
    /// lmc does; `Io`.
    pub fn open(store: Store, directory: &Path, options: FollowOptions) -> Result<Self> {
        let failed = |e| Error::io(format_args!("{}: cannot follow into it", directory.display()), e);
        fs::create_dir_all(directory).map_err(failed)?;
        let directory = directory.canonicalize().map_err(failed)?;
        sync(directory.parent().unwrap_or(&directory)).map_err(failed)?;
        // Nothing is written into a directory that is another one's.
        Marker::read(&directory, LOCK)?;
        let Some(lock) = lock(&directory.join(LOCK)).map_err(failed)? else {
            let place = directory.display();
            return Err(Error::exists(format!(
                "{place}: another process follows into it: use what that one puts into {place}/{CURRENT}"
            )));
        };
        let marker = match Marker::read(&directory, LOCK)? {
            Some(marker) => marker,
            None => {
                let marker = Marker::new();
                marker.write(&directory)?;
                marker
            }
        };
        let mut follower = Self { store, directory, options, current: None, marker, _lock: lock };
        match fs::create_dir(follower.versions()) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
        if !fs::symlink_metadata(follower.versions()).map_err(failed)?.is_dir() {
            return Err(failed(io::Error::other(format!("{VERSIONS} is not a directory"))));
        }
        follower.current = follower.find_current().map_err(failed)?;
        if follower.current.is_none() {
            follower.check_links()?;
        }
        follower.remove_unfinished();
        Ok(follower)
    }

    /// Fails where [`CURRENT`] could not be made, before anything is fetched.
    fn check_links(&self) -> Result<()> {
        let new = self.directory.join(NEW);
        let made = remove_if_there(&new).and_then(|()| symlink(VERSIONS, &new)).and_then(|()| remove_if_there(&new));
        made.map_err(|e| {
            let place = self.directory.display();
            match is_missing(&e) {
                true => Error::unsupported(format!(
                    "{place}: its file system has no symbolic links, and {CURRENT} is one: follow into a directory of another file system"
                )),
                false => Error::io(format_args!("{place}: cannot follow into it"), e),
            }
        })
    }

    pub(super) fn versions(&self) -> PathBuf {
        self.directory.join(VERSIONS)
    }

    /// The current version, if there is one.
    pub fn current(&self) -> Option<&Version> {
        self.current.as_ref()
    }

    /// The last snapshot, unless it is the current version, or there is none.
    ///
    /// # Errors
    /// Those of [`Store::find`]; `Usage` when the store is of another run than the versions here, unless [`FollowOptions::rewind`] is set.
    pub fn newest(&self) -> Result<Option<Snapshot>> {
        self.run()?;
        order::newest(&self.store, self.current_id())
    }

    /// Writes a snapshot's files beside the current version's, which stay as they are. Data of the current version are
    /// not fetched: deltas are decoded from its files, and unchanged files are links to them. All bytes that are
    /// written have the hash that was recorded when the snapshot was saved. `progress` is called with the number of bytes linked and
    /// written, and ends the work if it fails.
    ///
    /// # Errors
    /// `Usage` when the snapshot is of another run than the current version, or not later, unless
    /// [`FollowOptions::rewind`] is set; `Damaged` when something of it is missing or damaged: it may have been deleted
    /// meanwhile, and the newest snapshot be another; `Store`, `Io`.
    pub fn stage(&mut self, snapshot: &Snapshot, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Staged> {
        let run = self.run()?;
        if !self.options.rewind {
            order::check(self.directory.display(), self.current_id(), snapshot)?;
        }
        let name = version::name(snapshot.step, snapshot.id);
        let version = Version { step: snapshot.step, id: snapshot.id, path: self.versions().join(&name) };
        let from = self.current.as_ref().map(|c| c.step);
        let mut staged = Staged { version, run, from, linked_size: 0, written_size: 0, fetched_size: 0 };
        // It may have been staged by a process that ended before it was committed.
        let is_there = || {
            let there = Description::read(&staged.version.path);
            !self.options.verify && there.is_some_and(|d| d.is_intact(&staged.version.path))
        };
        if self.current.as_ref() == Some(&staged.version) || is_there() {
            return Ok(staged);
        }
        let written = self.write(snapshot, &mut staged, progress).and_then(|description| {
            let failed = |e| Error::io(format_args!("{}: cannot write", staged.version.path.display()), e);
            let staging = self.versions().join(STAGING);
            sync_tree(&staging).map_err(failed)?;
            remove_if_there(&staged.version.path).map_err(failed)?;
            description.write(&staged.version.path).map_err(failed)?;
            fs::rename(&staging, &staged.version.path).map_err(failed)?;
            sync(&self.versions()).map_err(failed)
        });
        if written.is_err() {
            self.remove_unfinished();
        }
        written.map(|()| staged)
    }

    /// Makes a version the current one: a single rename. Then removes versions but this one and the one before, which readers may not have finished
    /// with.
    ///
    /// # Errors
    /// `Usage` when the version is not in this directory, or no longer; `Damaged` when its files were changed since they were written;
    /// `Io`. The current version is still a whole one.
    pub fn commit(&mut self, staged: Staged) -> Result<&Version> {
        let name = version::name(staged.version.step, staged.version.id);
        if staged.version.path != self.versions().join(&name) || !staged.version.path.is_dir() {
            let path = staged.version.path.display();
            return Err(Error::usage(format!("{path}: is no version that was staged in {}", self.directory.display())));
        }
        let is_intact = |d: Description| d.is_intact(&staged.version.path);
        if self.current.as_ref() != Some(&staged.version)
            && !Description::read(&staged.version.path).is_some_and(is_intact)
        {
            let path = staged.version.path.display();
            return Err(Error::damaged(format!("{path}: was changed since it was written: it has to be staged again")));
        }
        self.note_commit(&name, staged.run)?;
        let failed = |e| Error::io(format_args!("{}: cannot replace {CURRENT}", self.directory.display()), e);
        let new = self.directory.join(NEW);
        remove_if_there(&new).map_err(failed)?;
        symlink(Path::new(VERSIONS).join(name), &new).map_err(failed)?;
        fs::rename(&new, self.directory.join(CURRENT)).map_err(failed)?;
        sync(&self.directory).map_err(failed)?;
        self.remove_old();
        Ok(self.current.insert(staged.version))
    }

    /// Notes the versions that stay once this one is current, its run, and that it is not announced yet.
    fn note_commit(&mut self, name: &str, run: RunId) -> Result<()> {
        let before = self.current_name().map(|name| {
            // One that is not noted was compared with the store when the new one was staged.
            self.marker.committed(&name).cloned().unwrap_or(Committed { name, run })
        });
        let new = Committed { name: name.to_owned(), run };
        if before.as_ref() == Some(&new) {
            return Ok(());
        }
        let mut marker = self.marker.clone();
        let committed = &mut marker.committed;
        // A process may have ended between this note and the link.
        let known = committed.iter().position(|c| Some(&c.name) == before.as_ref().map(|b| &b.name));
        committed.truncate(known.unwrap_or(0));
        committed.extend(before);
        let again = committed.last().is_some_and(|c| c.name == name);
        committed.retain(|c| c.name != name);
        committed.push(new);
        let old = committed.len().saturating_sub(2);
        committed.drain(..old);
        if !again {
            marker.announced = None;
        }
        marker.write(&self.directory)?;
        self.marker = marker;
        Ok(())
    }

    /// Whether [`Self::announce`] was called for the current version, by whatever process; or there is none.
    pub fn is_announced(&self) -> bool {
        self.current.as_ref().is_none_or(|c| self.marker.announced == Some(c.id))
    }

    /// Records durably that the users of the current version were notified.
    ///
    /// # Errors
    /// `Io`.
    pub fn announce(&mut self) -> Result<()> {
        self.note_announced(self.current.as_ref().map(|c| c.id))
    }

    /// Remembers that the caller has to hear of them again.
    pub(super) fn forget_announcement(&mut self) -> Result<()> {
        self.note_announced(None)
    }

    fn note_announced(&mut self, id: Option<SaveId>) -> Result<()> {
        let mut marker = self.marker.clone();
        marker.announced = id;
        marker.write(&self.directory)?;
        self.marker = marker;
        Ok(())
    }

    /// The run of the store, checked to be that of the versions here.
    pub(super) fn run(&self) -> Result<RunId> {
        // A directory without a version may follow any run.
        let held = self.current_name().and_then(|name| self.marker.committed(&name).map(|c| c.run));
        let (place, any) = (self.directory.display(), self.options.rewind);
        let run = order::run(&place, &self.store, held, any)?;
        if let Some(there) = self.current_id().filter(|_| held.is_none() && !any) {
            order::known(place, &self.store, there)?;
        }
        Ok(run)
    }

    fn current_name(&self) -> Option<String> {
        self.current.as_ref().map(|c| version::name(c.step, c.id))
    }

    fn current_id(&self) -> Option<(Step, SaveId)> {
        self.current.as_ref().map(|c| (c.step, c.id))
    }

    /// Makes the staging directory, empty.
    pub(super) fn new_staging(&self) -> Result<PathBuf> {
        let staging = self.versions().join(STAGING);
        let made = remove_if_there(&staging).and_then(|()| fs::create_dir(&staging));
        made.map_err(|e| Error::io(format_args!("{}: cannot write", staging.display()), e))?;
        Ok(staging)
    }

    /// Writes the files of a snapshot to the staging directory.
    fn write(
        &self,
        snapshot: &Snapshot,
        staged: &mut Staged,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Description> {
        let staging = self.new_staging()?;
        let failed = |e| Error::io(format_args!("{}: cannot write", staging.display()), e);
        let (before, held) = self.held();
        let mut description = Description::new(snapshot.step, snapshot.id);
        let reader = self.store.open_snapshot(snapshot)?.with_threads(self.options.threads);
        for (i, file) in reader.files().iter().enumerate() {
            let extents = reader.stored_extents(i)?;
            let path = staging.join(&file.name);
            let parent = path.parent().expect("it is below the staging directory");
            fs::create_dir_all(parent).map_err(failed)?;
            let same = before.iter().find(|(f, _)| f.name == file.name && f.len == file.len && f.extents == extents);
            let same = same.filter(|_| !self.options.verify);
            let linked = same.and_then(|(f, there)| fs::hard_link(there, &path).ok().and_then(|()| f.linked(&path)));
            let described = if let Some(linked) = linked {
                staged.linked_size += file.len;
                linked
            } else {
                remove_if_there(&path).map_err(failed)?;
                let done = staged.linked_size + staged.written_size;
                staged.fetched_size += restore(&reader, file, &held, &path, &mut |n| progress(done + n))?;
                staged.written_size += file.len;
                StoredFile::of(&path, &file.name, extents).map_err(failed)?
            };
            progress(staged.linked_size + staged.written_size)?;
            description.files.push(described);
        }
        Ok(description)
    }

    /// The unchanged files of the current version, with their paths; and the block sets in them.
    pub(super) fn held(&self) -> (Vec<(StoredFile, PathBuf)>, Held<'static>) {
        let mut held = Held::default();
        let mut files = vec![];
        if let Some(current) = &self.current
            && let Some(description) = Description::read(&current.path)
        {
            for file in description.files {
                let path = current.path.join(&file.name);
                if file.linked(&path).is_some() {
                    let (f, at) = (file.clone(), path.clone());
                    let read = move |buf: &mut [u8], offset| lmc::ReadAt::read_exact_at(&f.open(&at)?, buf, offset);
                    held.add(read, file.extents.iter().copied());
                    files.push((file, path));
                }
            }
        }
        (files, held)
    }

    fn find_current(&self) -> io::Result<Option<Version>> {
        let target = match fs::read_link(self.directory.join(CURRENT)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            target => target?,
        };
        let name = target.strip_prefix(VERSIONS).ok().and_then(Path::to_str).and_then(version::parse_name);
        let path = self.directory.join(&target);
        let foreign =
            || io::Error::other(format!("{CURRENT} is a link to {}, which lmc did not write", target.display()));
        let (step, id) = name.ok_or_else(foreign)?;
        // Another program may have removed it.
        Ok(path.is_dir().then_some(Version { step, id, path }))
    }

    /// Removes what no version is, in the directory of versions. What cannot be removed stays until the next time: it may be in use, which
    /// on NFS keeps a directory, and it does no harm.
    fn remove_unfinished(&self) {
        for path in self.entries() {
            let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
            let complete = match name.strip_suffix(version::SUFFIX) {
                Some(of) => version::parse_name(of).is_some() && path.with_file_name(of).is_dir(),
                None => version::parse_name(name).is_some() && version::description_of(&path).is_file(),
            };
            if !complete && self.current.as_ref().is_none_or(|c| c.path != path) {
                _ = remove_if_there(&path);
            }
        }
    }

    /// Removes all versions but those that were noted, as far as possible, like [`Self::remove_unfinished`].
    fn remove_old(&self) {
        for path in self.entries() {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if version::parse_name(name).is_some() && !self.marker.committed.iter().any(|c| c.name == name) {
                _ = remove_if_there(&path).and_then(|()| remove_if_there(&version::description_of(&path)));
            }
        }
    }

    /// What is in the directory of versions, as far as it can be read.
    fn entries(&self) -> Vec<PathBuf> {
        fs::read_dir(self.versions()).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }
}

/// A file that notes when it cannot be written.
struct Output {
    file: File,
    failed: AtomicBool,
    /// Whether there was no room for it.
    full: AtomicBool,
}

impl lmc::WriteAt for Output {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        lmc::WriteAt::write_all_at(&self.file, buf, offset).inspect_err(|e| {
            let full = matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            self.full.store(full, Ordering::Relaxed);
            self.failed.store(true, Ordering::Relaxed);
        })
    }
}

/// Restores a file, from what is held if that is what it was. Returns how many bytes were fetched.
pub(super) fn restore(
    reader: &SnapshotReader,
    file: &FileInfo,
    held: &Held<'_>,
    path: &Path,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let failed = |e| Error::io(format_args!("{}: cannot write", path.display()), e);
    let file_of = File::options().write(true).create_new(true).open(path).map_err(failed)?;
    file_of.set_len(file.len).map_err(failed)?;
    let output = Output { file: file_of, failed: AtomicBool::new(false), full: AtomicBool::new(false) };
    let fetched = restore_to(&output, &output.failed, reader, file, held, progress).map_err(|e| {
        match (output.failed.load(Ordering::Relaxed), output.full.load(Ordering::Relaxed)) {
            (false, _) => e,
            (true, is_full) => e.at(path.display()).and(if is_full { "; free some space there" } else { "" }),
        }
    })?;
    sync_file(&output.file, path).map_err(failed)?;
    Ok(fetched)
}

/// Restores a file from what is held, as [`Held::decode`] does it: not again if the output `failed`, or progress ended the work. Returns
/// how many bytes were fetched.
pub(super) fn restore_to(
    output: &dyn lmc::WriteAt,
    failed: &AtomicBool,
    reader: &SnapshotReader,
    file: &FileInfo,
    held: &Held<'_>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let stopped = Cell::new(false);
    let mut progress = |done| progress(done).inspect_err(|_| stopped.set(true));
    let ended = || stopped.get() || failed.load(Ordering::Relaxed);
    held.decode(&[ErrorKind::Damaged, ErrorKind::Io], ended, |held| {
        reader.restore_file_from(&file.name, held.unwrap_or(&Held::default()), output, &mut progress)
    })
}
