//! Verification of the current version in a directory that follows, and restoring of files that are not what was written.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::directory::{Follower, restore, restore_to};
use super::staged::{Repaired, Version};
use super::version::{Description, StoredFile};
use crate::chunks::held::Held;
use crate::error::{Error, Result};
use crate::objects::files::{remove_if_there, sync, sync_tree};
use crate::ops::restore::{FileInfo, SnapshotReader};
use crate::records::snapshot::At;

/// What the files of a version are, and those of them that are in the staging directory because they have to be replaced.
struct Checked {
    files: Vec<StoredFile>,
    staged: Vec<String>,
}

impl Follower {
    /// Reads all files of the current version, and restores those that are missing, or are not what was published. Each file is replaced
    /// as a whole, by a rename, so `current` leads to files of this version all the time. If any was, [`Self::is_announced`] is false
    /// after that. `progress` is called with the number of bytes read, and ends the work if it fails. Without a version there is nothing
    /// to do.
    ///
    /// # Errors
    /// `NotFound` when the store no longer has the snapshot; `Damaged` when a file cannot be restored, because something of the snapshot
    /// is missing or damaged; `Usage` when the store is of another run, unless [`FollowOptions::rewind`](super::FollowOptions::rewind) is
    /// set; `Store`, `Io`.
    pub fn repair(&mut self, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Repaired> {
        let Some(current) = self.current.clone() else { return Ok(Repaired::default()) };
        self.run()?;
        let staging = self.new_staging()?;
        let mut done = Repaired::default();
        let checked = self.check(&current, &staging, &mut done, progress);
        let replaced = checked.and_then(|checked| self.replace(&current, &staging, checked, &mut done));
        let removed = remove_if_there(&staging);
        replaced?;
        removed.map_err(|e| Error::io(format_args!("{}: cannot remove", staging.display()), e))?;
        Ok(done)
    }

    fn check(
        &self,
        current: &Version,
        staging: &Path,
        done: &mut Repaired,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Checked> {
        let at = |e: Error| e.at(format_args!("{}: cannot be verified", current.path.display()));
        let snapshot = self.store.find(At::Step(current.step)).map_err(at)?;
        if snapshot.id != current.id {
            return Err(at(Error::not_found(format!("the store has another snapshot of step {}", current.step))));
        }
        let reader = self.store.open_snapshot(&snapshot)?.with_threads(self.options.threads);
        let (_, held) = self.held();
        let mut checked = Checked { files: vec![], staged: vec![] };
        let mut read = 0;
        for (i, file) in reader.files().iter().enumerate() {
            let path = current.path.join(&file.name);
            let is_same = obstacle(&current.path, &file.name).is_none()
                && is_restored(&reader, file, &held, &path, done, &mut |n| progress(read + n))?;
            let (name, extents) = (&file.name[..], reader.stored_extents(i)?);
            let described = if is_same {
                StoredFile::of(&path, name, extents)
            } else {
                let staged = staging.join(name);
                fs::create_dir_all(staged.parent().unwrap_or(staging)).map_err(|e| cannot_write(&staged, e))?;
                done.fetched_size += restore(&reader, file, &held, &staged, &mut |_| progress(read))?;
                checked.staged.push(file.name.clone());
                StoredFile::of(&staged, name, extents)
            };
            checked.files.push(described.map_err(|e| cannot_write(&path, e))?);
            read += file.len;
            progress(read)?;
        }
        Ok(checked)
    }

    /// Puts staged files in the place of others, and describes the version.
    fn replace(&mut self, current: &Version, staging: &Path, checked: Checked, done: &mut Repaired) -> Result<()> {
        let Checked { files, staged } = checked;
        if !staged.is_empty() {
            // Whoever uses the version may have read what is replaced.
            self.forget_announcement()?;
            sync_tree(staging).map_err(|e| cannot_write(staging, e))?;
        }
        for name in &staged {
            let to = current.path.join(name);
            let moved = || {
                if let Some(obstacle) = obstacle(&current.path, name) {
                    fs::remove_file(obstacle)?;
                }
                fs::create_dir_all(to.parent().unwrap_or(&current.path))?;
                if fs::symlink_metadata(&to).is_ok_and(|m| m.is_dir()) {
                    remove_if_there(&to)?;
                }
                fs::rename(staging.join(name), &to)
            };
            moved().map_err(|e| cannot_write(&to, e))?;
        }
        let mut description = Description::new(current.step, current.id);
        description.files = files;
        if !staged.is_empty() || Description::read(&current.path).as_ref() != Some(&description) {
            let written = || {
                sync_tree(&current.path)?;
                description.write(&current.path)?;
                sync(&self.versions())
            };
            written().map_err(|e| cannot_write(&current.path, e))?;
        }
        done.written_size = description.files.iter().filter(|f| staged.contains(&f.name)).map(|f| f.len).sum();
        done.files = staged;
        Ok(())
    }
}

fn cannot_write(path: &Path, e: io::Error) -> Error {
    Error::io(format_args!("{}: cannot write", path.display()), e)
}

/// The first parent of a file in a directory that is no directory itself: a link is not followed.
fn obstacle(directory: &Path, name: &str) -> Option<PathBuf> {
    let mut path = directory.to_owned();
    let parents = name.rsplit_once('/')?.0.split('/').map(|component| {
        path.push(component);
        path.clone()
    });
    parents.into_iter().find(|parent| fs::symlink_metadata(parent).is_ok_and(|m| !m.is_dir()))
}

/// Whether a file has the bytes of a snapshot's. What is held is verified, and anything else is fetched.
fn is_restored(
    reader: &SnapshotReader,
    file: &FileInfo,
    held: &Held<'_>,
    path: &Path,
    done: &mut Repaired,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<bool> {
    let is_regular = fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() == file.len);
    // One that cannot be read is replaced as well.
    let Some(local) = is_regular.then(|| File::open(path).ok()).flatten() else { return Ok(false) };
    let compared = Compared { local, differs: AtomicBool::new(false) };
    let fetched = restore_to(&compared, &compared.differs, reader, file, held, progress);
    if compared.differs.load(Ordering::Relaxed) {
        return Ok(false);
    }
    done.fetched_size += fetched?;
    Ok(true)
}

/// Compares a file with what would be written to it.
struct Compared {
    local: File,
    differs: AtomicBool,
}

impl lmc::WriteAt for Compared {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut there = vec![0; buf.len()];
        if lmc::ReadAt::read_exact_at(&self.local, &mut there, offset).is_ok() && there == buf {
            return Ok(());
        }
        self.differs.store(true, Ordering::Relaxed);
        Err(io::Error::other("it differs"))
    }
}
