//! Checkpoints in files and directories.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lmc::Base;
use lmc_inspect::Failed;

use super::steps::steps;
use crate::bases::{Bases, Lack, Lacking};
use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::guard::{Guard, Role};
use crate::names::{SUFFIX, is_dash};
use crate::shards::is_index;
use crate::ui::Ui;

/// Checkpoints in files.
pub(super) struct Files {
    bases: Bases,
    /// The checkpoint and the name within it of each path that was opened.
    opened: Vec<(usize, Option<String>)>,
    places: Vec<Place>,
    steps: Vec<u64>,
}

/// Where a checkpoint is.
struct Place {
    path: PathBuf,
    /// A directory may have files of other kinds, which do not count.
    is_directory: bool,
}

/// A file of a checkpoint.
struct Found {
    checkpoint: usize,
    path: PathBuf,
    /// Its path in the checkpoint's directory, if that is one.
    name: Option<String>,
}

impl Files {
    pub(super) fn open(paths: &[PathBuf], threads: usize, ui: &Ui) -> Result<Self> {
        let (mut found, mut places) = (Vec::new(), Vec::new());
        for (checkpoint, path) in paths.iter().enumerate() {
            if is_dash(path) {
                let why = "analyze reads here and there in its files, not standard input: name a file";
                return Err(Failure::Usage(why.to_owned()));
            }
            let is_directory = path.is_dir();
            match is_directory {
                true => found.extend(in_directory(path)?.into_iter().map(|file| {
                    let name = file.strip_prefix(path).unwrap_or(&file).to_string_lossy().into_owned();
                    Found { checkpoint, path: file, name: Some(name) }
                })),
                false => found.push(Found { checkpoint, path: path.clone(), name: None }),
            }
            places.push(Place { path: path.clone(), is_directory });
        }
        let steps = steps(paths)?;
        let bases = loop {
            let all: Vec<PathBuf> = found.iter().map(|f| f.path.clone()).collect();
            match Bases::try_open(&all, true, threads)? {
                Ok(bases) => break bases,
                Err(lacking) => leave_out(&mut found, &lacking, ui)?,
            }
        };
        let opened = found.into_iter().map(|f| (f.checkpoint, f.name)).collect();
        let files = Self { bases, opened, places, steps };
        if let Some(none) = (0..files.count()).find(|&c| files.open_one(c).is_empty()) {
            let why = "has no files with tensors, and is no store: name others to study";
            return Err(Failure::usage(&files.places[none].path, why));
        }
        Ok(files)
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn name(&self, checkpoint: usize) -> String {
        self.places[checkpoint].path.to_string_lossy().into_owned()
    }

    pub(super) fn step(&self, checkpoint: usize) -> u64 {
        self.steps[checkpoint]
    }

    /// The files of a checkpoint.
    pub(super) fn open_one(&self, checkpoint: usize) -> Vec<Base<'static>> {
        let is_directory = self.places[checkpoint].is_directory;
        // A file that ends early has none, and must be reported.
        let is_of_tensors = |b: &Base<'_>| Path::new(b.name()).extension().is_some_and(|e| e == "safetensors");
        let has_tensors = |b: &Base<'_>| is_of_tensors(b) || b.segments().iter().any(|s| s.name.is_some());
        let mut files = Vec::new();
        for (number, (_, name)) in self.opened.iter().enumerate().filter(|(_, (of, _))| *of == checkpoint) {
            let bases = self.bases.of(number).into_iter().filter(|b| !is_directory || has_tensors(b));
            files.extend(bases.map(|b| match name {
                Some(name) => b.with_name(&**name),
                None => b,
            }));
        }
        files
    }

    /// The failure of a study.
    pub(super) fn failure(&self, failed: &Failed) -> Failure {
        if let Err(changed) = self.check_unchanged() {
            return changed;
        }
        let Some(place) = self.places.get(failed.checkpoint) else {
            return Failure::Usage(failed.error.to_string());
        };
        let path = match &failed.file {
            Some(file) if place.is_directory => place.path.join(file),
            Some(file) => place.path.with_file_name(file),
            None => place.path.clone(),
        };
        Failure::codec(&path, &failed.error)
    }

    pub(super) fn guard(&self) -> Guard {
        self.bases.guard_as(Role::Input)
    }

    pub(super) fn check_unchanged(&self) -> Result {
        self.bases.check_unchanged()
    }
}

/// Leaves out deltas without their bases, with a warning; fails if one was named itself, and not the directory that it is in.
fn leave_out(found: &mut Vec<Found>, Lacking(all): &Lacking, ui: &Ui) -> Result {
    if let Some(Lack { path, wanted, .. }) = all.iter().find(|l| found[l.number].name.is_none()) {
        let why = format!("is a delta, made from {wanted}: name that, too, as a checkpoint before this one");
        return Err(Failure::usage(path, why));
    }
    for Lack { path, wanted, .. } in all {
        let path = Name::path(path);
        ui.warn(format_args!(
            "{path}: left out: it is a delta, made from {wanted}, which is not among the checkpoints"
        ));
    }
    let numbers: HashSet<usize> = all.iter().map(|l| l.number).collect();
    let mut number = 0..;
    found.retain(|_| number.next().is_none_or(|n| !numbers.contains(&n)));
    Ok(())
}

/// Levels of directories below one that was named.
const DEPTH: usize = 8;

/// The files in a directory and below it that may have tensors, each of them once.
fn in_directory(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    walk(path, 0, &mut found)?;
    // A file beside its compressed form is that form, too.
    let names: HashSet<PathBuf> = found.iter().cloned().collect();
    found.retain(|f| !(f.extension().is_some_and(|e| e == SUFFIX) && names.contains(&f.with_extension(""))));
    // Caches have several names for a file.
    let mut seen = HashSet::new();
    found.retain(|f| std::fs::metadata(f).map_or(true, |m| seen.insert((m.dev(), m.ino()))));
    Ok(found)
}

/// The regular files in a directory and below it, in order of names. Links to files are followed: model caches consist
/// of them. Names that begin with a dot are no part of a checkpoint, and indexes name files that are found anyway.
fn walk(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result {
    let unreadable = |e| Failure::io(dir, "cannot read the directory", &e);
    let entries = std::fs::read_dir(dir).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let mut entries = entries.map_err(unreadable)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") || is_index(&path) {
            continue;
        }
        if entry.file_type().map_err(unreadable)?.is_dir() {
            if depth < DEPTH {
                walk(&path, depth + 1, found)?;
            }
        } else if path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}
