//! Checkpoints in files and directories.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lmc::{Base, ErrorKind};
use lmc_inspect::{Failed, StepsFrom, declared};

use super::kept::Kept;
use super::steps::steps;
use crate::bases::{BaseFiles, Lack, Lacking, describe};
use crate::beside::Beside;
use crate::failure::{Failure, Result};
use crate::format::{Name, count};
use crate::guard::{Guard, Role};
use crate::input::Source;
use crate::missing;
use crate::names::STORE_MARKER;
use crate::names::{SUFFIX, is_dash};
use crate::shards::is_index;
use crate::ui::Ui;

/// Checkpoints in files.
pub(super) struct Files {
    files: BaseFiles,
    /// For each path that was opened, the name within its checkpoint.
    names: Vec<Option<String>>,
    places: Vec<Place>,
    steps: (Vec<u64>, StepsFrom),
    threads: usize,
    /// All files, if some checkpoints have deltas of others' files.
    linked: Option<Vec<Base<'static>>>,
    kept: Kept<Vec<Base<'static>>>,
}

/// Where a checkpoint is.
struct Place {
    path: PathBuf,
    /// A directory may have files of other kinds, which do not count.
    is_directory: bool,
    /// Which of all files it has.
    files: Range<usize>,
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
        let mut found = Vec::new();
        for (checkpoint, path) in paths.iter().enumerate() {
            if is_dash(path) {
                let why = "analyze reads here and there in its files, not standard input: name a file";
                return Err(Failure::Usage(why.to_owned()));
            }
            match path.is_dir() {
                true => found.extend(in_directory(path)?.into_iter().map(|file| {
                    let name = file.strip_prefix(path).unwrap_or(&file).to_string_lossy().into_owned();
                    Found { checkpoint, path: file, name: Some(name) }
                })),
                false => found.push(Found { checkpoint, path: path.clone(), name: None }),
            }
        }
        let steps = steps(paths)?;
        loop {
            let all: Vec<PathBuf> = found.iter().map(|f| f.path.clone()).collect();
            let files = BaseFiles::open(&all, true)?;
            let place = |(checkpoint, path): (usize, &PathBuf)| {
                let before = |checkpoint| files.of(found.partition_point(|f| f.checkpoint < checkpoint)).start;
                let of = before(checkpoint)..before(checkpoint + 1);
                Place { path: path.clone(), is_directory: path.is_dir(), files: of }
            };
            let places = paths.iter().enumerate().map(place).collect();
            let names = found.iter().map(|f| f.name.clone()).collect();
            let (steps, linked, kept) = (steps.clone(), None, Kept::default());
            let mut this = Self { files, names, places, steps, threads, linked, kept };
            let mut notes = Vec::new();
            match this.check(&mut notes)? {
                None => {
                    say(&notes, ui);
                    return Ok(this);
                }
                Some(lacking) => {
                    if !add_beside(&mut found, &lacking, paths.len(), threads) {
                        leave_out(&mut found, &lacking, ui)?;
                    }
                }
            }
        }
    }

    /// Looks at all checkpoints, if possible one at a time, because together they have very many tensors. Returns deltas
    /// without their bases. Notes what the study will lack.
    fn check(&mut self, notes: &mut Vec<String>) -> Result<Option<Lacking>> {
        let failed = |(file, e)| Failure::codec(self.files.path(file), &e);
        let mut without_tensors = |checkpoint: usize, files: Vec<Base<'static>>| {
            for (base, file) in files.iter().zip(self.places[checkpoint].files.clone()) {
                let text = missing::text(&declared(base));
                notes.extend(text.map(|text| format!("{}: {text}", Name::path(self.files.path(file)))));
            }
            self.check_tensors(checkpoint, files)
        };
        let mut are_linked = false;
        for (checkpoint, place) in self.places.iter().enumerate() {
            match self.files.resolve(place.files.clone(), self.threads).map_err(failed)? {
                Ok(files) => without_tensors(checkpoint, files)?,
                Err(_) => are_linked = true,
            }
        }
        if are_linked {
            match self.files.resolve(0..self.files.len(), self.threads).map_err(failed)? {
                Ok(all) => {
                    for (checkpoint, place) in self.places.iter().enumerate() {
                        without_tensors(checkpoint, all[place.files.clone()].to_vec())?;
                    }
                    self.linked = Some(all);
                }
                Err(lacking) => return Ok(Some(lacking)),
            }
        }
        Ok(None)
    }

    fn check_tensors(&self, checkpoint: usize, files: Vec<Base<'static>>) -> Result {
        if self.of_tensors(checkpoint, files).is_empty() {
            let why = "has no files with tensors, and is no store: name others to study";
            return Err(Failure::usage(&self.places[checkpoint].path, why));
        }
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn name(&self, checkpoint: usize) -> String {
        self.places[checkpoint].path.to_string_lossy().into_owned()
    }

    pub(super) fn step(&self, checkpoint: usize) -> u64 {
        self.steps.0[checkpoint]
    }

    pub(super) fn steps_from(&self) -> StepsFrom {
        self.steps.1
    }

    /// The files of a checkpoint.
    pub(super) fn open_one(&self, checkpoint: usize) -> Result<Vec<Base<'static>>, Failed> {
        let some = self.places[checkpoint].files.clone();
        if let Some(linked) = &self.linked {
            return Ok(self.of_tensors(checkpoint, linked[some].to_vec()));
        }
        self.kept.get(checkpoint, || match self.files.resolve(some, self.threads) {
            Ok(Ok(files)) => Ok(self.of_tensors(checkpoint, files)),
            Ok(Err(_)) => {
                let error = lmc::Error::new(ErrorKind::Io, "a file became a delta of another one");
                Err(Failed::new(checkpoint, None, error))
            }
            Err((file, error)) => {
                let name = self.names[self.files.number(file)].clone();
                let name = name.or_else(|| Some(self.files.path(file).file_name()?.to_string_lossy().into_owned()));
                Err(Failed::new(checkpoint, name, error))
            }
        })
    }

    /// Those of a checkpoint's files that have tensors, by their names in the checkpoint.
    fn of_tensors(&self, checkpoint: usize, files: Vec<Base<'static>>) -> Vec<Base<'static>> {
        let place = &self.places[checkpoint];
        let has_tensors = |b: &Base<'_>| b.segments().iter().any(|s| s.name.is_some());
        // A file that ends early, or is no model in spite of its name, has none, and must be reported.
        let is_counted = |(b, file): &(Base<'_>, usize)| has_tensors(b) || self.should_have_tensors(*file);
        let of = files.into_iter().zip(place.files.clone()).filter(|f| !place.is_directory || is_counted(f));
        let named = of.map(|(b, file)| match &self.names[self.files.number(file)] {
            Some(name) => b.with_name(&**name),
            None => b,
        });
        named.collect()
    }

    /// Whether a file without tensors is not whole, or not the model that its name promises.
    fn should_have_tensors(&self, file: usize) -> bool {
        let path = self.files.path(file);
        let is_of_tensors = path.extension().is_some_and(|suffix| suffix == "safetensors");
        is_of_tensors || Source::open(path).and_then(|source| source.early_end()).is_ok_and(|why| why.is_some())
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
        self.files.guard(Role::Input)
    }

    pub(super) fn check_unchanged(&self) -> Result {
        self.files.check_unchanged()
    }
}

/// Adds bases that lie beside their deltas as files of no checkpoint. Returns whether there were any.
fn add_beside(found: &mut Vec<Found>, Lacking(all): &Lacking, checkpoints: usize, threads: usize) -> bool {
    let (beside, before) = (Beside::default(), found.len());
    for Lack { path, wanted, .. } in all {
        for path in beside.find(path, std::slice::from_ref(wanted), |_| false, threads).unwrap_or_default() {
            if found.iter().all(|f| f.path != path) {
                found.push(Found { checkpoint: checkpoints, path, name: None });
            }
        }
    }
    found.len() > before
}

/// Leaves out deltas without their bases, with a warning; fails if one was named itself, and not the directory that it is in.
fn leave_out(found: &mut Vec<Found>, Lacking(all): &Lacking, ui: &Ui) -> Result {
    if let Some(Lack { path, wanted, .. }) = all.iter().find(|l| found[l.number].name.is_none()) {
        let wanted = describe(wanted);
        let why = format!("is a delta, made from {wanted}: name that, too, as a checkpoint before this one");
        return Err(Failure::usage(path, why));
    }
    for Lack { path, wanted, .. } in all {
        let path = Name::path(path);
        ui.warn(format_args!(
            "{path}: left out: it is a delta, made from {}, which is not among the checkpoints",
            describe(wanted)
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
            // A store is studied by itself.
            if depth < DEPTH && !path.join(STORE_MARKER).is_file() {
                walk(&path, depth + 1, found)?;
            }
        } else if path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

/// Most files whose lacking tensors are named.
const SHOWN: usize = 5;

fn say(notes: &[String], ui: &Ui) {
    notes.iter().take(SHOWN).for_each(|note| ui.warn(note));
    if let Some(more) = notes.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        ui.warn(format_args!("{} more lack tensors, too: lmc list names them", count(more as u64, "file")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tensors of a long run would not fit in memory.
    #[test]
    fn few_checkpoints_are_open() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..9).map(|step| dir.path().join(format!("step{step}"))).collect();
        let header = r#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   "#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[7, 8]].concat();
        for path in &paths {
            std::fs::create_dir(path).unwrap();
            ["a.safetensors", "b.safetensors"].iter().for_each(|name| std::fs::write(path.join(name), &file).unwrap());
        }
        let files = Files::open(&paths, 1, &Ui::keeping()).unwrap();
        assert_eq!(files.files.in_use(), 0);
        for checkpoint in (0..9).chain(3..6) {
            let names: Vec<_> = files.open_one(checkpoint).unwrap().iter().map(|b| b.name().to_owned()).collect();
            assert_eq!(names, ["a.safetensors", "b.safetensors"]);
            assert!(files.files.in_use() <= 6, "{} after {checkpoint}", files.files.in_use());
        }
    }
}
