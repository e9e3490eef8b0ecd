//! Checkpoints in files and directories.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lmc::{Base, ErrorKind};
use lmc_inspect::{Failed, Metric, StepsFrom, declared};
use serde_json::Value;

use super::directories::{Member, MemberKind, checkpoints, is_of_tensors};
use super::kept::Kept;
use crate::fs::guard::{Guard, Role};
use crate::fs::input::Source;
use crate::fs::names::is_dash;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, count};
use crate::ui::messages::Ui;
use crate::work::bases::{BaseFiles, Lack, Lacking, describe};
use crate::work::beside::Beside;
use crate::work::missing;
use crate::work::steps::steps;

/// Where Transformers' `Trainer` keeps its log, and the most bytes of it that are read.
const TRAINER_STATE: &str = "trainer_state.json";
const LOG: u64 = 1 << 24;

/// Checkpoints in files.
pub(super) struct Files {
    files: BaseFiles,
    /// The paths that were opened.
    found: Vec<Found>,
    places: Vec<Place>,
    steps: (Vec<u64>, StepsFrom),
    threads: usize,
    /// All files, if some checkpoints have deltas of others' files.
    linked: Option<Vec<Base<'static>>>,
    kept: Kept<Vec<Base<'static>>>,
}

/// Where a checkpoint is.
struct Place {
    name: PathBuf,
    /// The directory that the names of its files begin at.
    root: PathBuf,
    /// Which of all files it has.
    files: Range<usize>,
}

/// A path of a checkpoint: a file, or an index of several.
struct Found {
    checkpoint: usize,
    path: PathBuf,
    /// Of a file in a directory: its name there, and what it is to the checkpoint.
    of: Option<(String, MemberKind)>,
}

impl Files {
    pub(super) fn open(paths: &[PathBuf], threads: usize, ui: &Ui) -> Result<Self> {
        let (mut found, mut roots) = (Vec::new(), Vec::new());
        for path in paths {
            if is_dash(path) {
                let why = "analyze reads here and there in its files, not standard input: name a file";
                return Err(Failure::Usage(why.to_owned()));
            }
            if !path.is_dir() {
                found.push(Found { checkpoint: roots.len(), path: path.clone(), of: None });
                roots.push((path.clone(), path.parent().unwrap_or(Path::new("")).to_owned()));
                continue;
            }
            for one in checkpoints(path, ui)? {
                let root = if one.name.is_dir() { &one.name } else { one.name.parent().unwrap_or(path) };
                found.extend(one.files.into_iter().map(|Member { path: file, kind }| {
                    let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
                    Found { checkpoint: roots.len(), path: file, of: Some((name, kind)) }
                }));
                let root = root.to_owned();
                roots.push((one.name, root));
            }
        }
        let names: Vec<&PathBuf> = roots.iter().map(|(name, _)| name).collect();
        let steps = steps(&names)?;
        loop {
            let all: Vec<PathBuf> = found.iter().map(|f| f.path.clone()).collect();
            let files = BaseFiles::open(&all, true)?;
            let place = |(checkpoint, (name, root)): (usize, &(PathBuf, PathBuf))| {
                let before = |checkpoint| files.of(found.partition_point(|f| f.checkpoint < checkpoint)).start;
                let of = before(checkpoint)..before(checkpoint + 1);
                Place { name: name.clone(), root: root.clone(), files: of }
            };
            let places = roots.iter().enumerate().map(place).collect();
            let (steps, linked, kept) = (steps.clone(), None, Kept::default());
            let mut this = Self { files, found, places, steps, threads, linked, kept };
            let mut notes = Vec::new();
            match this.check(&mut notes)? {
                None => {
                    say(&notes, ui);
                    return Ok(this);
                }
                Some(lacking) => {
                    found = this.found;
                    if !add_beside(&mut found, &lacking, roots.len(), threads) {
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
            let counted = self.of_tensors(checkpoint, files);
            if counted.is_empty() {
                let why = "has no files with tensors, and is no store: name others to study";
                return Err(Failure::usage(&self.places[checkpoint].name, why));
            }
            // What cannot be read, such as a file that ends early, is an error of the study.
            for of in counted.iter().map(|file| (file, declared(file))).filter(|(_, of)| of.is_ok()) {
                let (file, of) = of;
                let name = self.places[checkpoint].root.join(file.name());
                notes.extend(missing::text(&of).map(|text| format!("{}: {text}", Name::path(&name))));
            }
            Ok(())
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

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn name(&self, checkpoint: usize) -> String {
        self.places[checkpoint].name.to_string_lossy().into_owned()
    }

    pub(super) fn step(&self, checkpoint: usize) -> u64 {
        self.steps.0[checkpoint]
    }

    pub(super) fn steps_from(&self) -> StepsFrom {
        self.steps.1
    }

    /// What the log of Transformers' `Trainer` beside the last checkpoint has: each number of its entries, by name.
    pub(super) fn log(&self) -> Vec<Metric> {
        let Some(root) = self.places.last().map(|p| &p.root) else { return vec![] };
        let text = read_at_most(&root.join(TRAINER_STATE), LOG).unwrap_or_default();
        // Python writes what is not finite, which JSON does not have.
        let mut text = String::from_utf8_lossy(&text).into_owned();
        for word in [": NaN", ": Infinity", ": -Infinity"] {
            text = text.replace(word, ": null");
        }
        let log: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut all: BTreeMap<&str, Vec<(u64, f64)>> = BTreeMap::new();
        for entry in log["log_history"].as_array().into_iter().flatten().filter_map(Value::as_object) {
            let Some(step) = entry.get("step").and_then(Value::as_u64) else { continue };
            for (name, value) in entry.iter().filter(|(name, _)| *name != "step") {
                value.as_f64().into_iter().for_each(|x| all.entry(name).or_default().push((step, x)));
            }
        }
        all.into_iter().map(|(name, points)| Metric::new(name.to_owned(), points)).collect()
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
                let name = self.found[self.files.number(file)].of.as_ref().map(|(name, _)| name.clone());
                let name = name.or_else(|| Some(self.files.path(file).file_name()?.to_string_lossy().into_owned()));
                Err(Failed::new(checkpoint, name, error))
            }
        })
    }

    /// Those of a checkpoint's files that count, by their names in the checkpoint.
    fn of_tensors(&self, checkpoint: usize, files: Vec<Base<'static>>) -> Vec<Base<'static>> {
        let has_tensors = |b: &Base<'_>| b.segments().iter().any(|s| s.name.is_some());
        let each = files.into_iter().zip(self.places[checkpoint].files.clone());
        let named = each.filter_map(|(b, file)| match &self.found[self.files.number(file)].of {
            None => Some(b),
            // A file that ends early, or is no model in spite of its name, has no tensors, and must be reported.
            Some((_, MemberKind::Candidate)) if !has_tensors(&b) && !self.should_have_tensors(file) => None,
            Some((name, _)) => Some(b.with_name(&**name)),
        });
        named.collect()
    }

    /// Whether a file without tensors is not whole, or not the model that its name promises.
    fn should_have_tensors(&self, file: usize) -> bool {
        let path = self.files.path(file);
        is_of_tensors(path) || Source::open(path).and_then(|source| source.truncated()).is_ok_and(|why| why.is_some())
    }

    /// The failure of a study.
    pub(super) fn failure(&self, failed: &Failed) -> Failure {
        if let Err(changed) = self.check_unchanged() {
            return changed;
        }
        let Some(place) = self.places.get(failed.checkpoint) else {
            return Failure::Usage(failed.error.to_string());
        };
        let path = failed.file.as_ref().map_or_else(|| place.name.clone(), |file| place.root.join(file));
        Failure::codec(&path, &failed.error)
    }

    pub(super) fn guard(&self) -> Guard {
        self.files.guard(Role::Input)
    }

    pub(super) fn check_unchanged(&self) -> Result {
        self.files.check_unchanged()
    }
}

/// The contents of a regular file, if it has at most so many bytes.
fn read_at_most(path: &Path, most: u64) -> Option<Vec<u8>> {
    // Opening a pipe would wait for a writer.
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let file = std::fs::File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file() && m.len() <= most))?;
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text).ok().map(|_| text)
}

/// Adds bases that lie beside their deltas as files of no checkpoint. Returns whether there were any.
fn add_beside(found: &mut Vec<Found>, Lacking(all): &Lacking, checkpoints: usize, threads: usize) -> bool {
    let (beside, before) = (Beside::default(), found.len());
    for Lack { path, wanted, .. } in all {
        for path in beside.find(path, std::slice::from_ref(wanted), |_| false, threads).unwrap_or_default() {
            if found.iter().all(|f| f.path != path) {
                found.push(Found { checkpoint: checkpoints, path, of: None });
            }
        }
    }
    found.len() > before
}

/// Leaves out deltas without their bases, with a warning; fails if one was named itself, or by metadata.
fn leave_out(found: &mut Vec<Found>, Lacking(all): &Lacking, ui: &Ui) -> Result {
    let is_optional = |f: &Found| matches!(f.of, Some((_, MemberKind::Candidate)));
    if let Some(Lack { path, wanted, .. }) = all.iter().find(|l| !is_optional(&found[l.number])) {
        let wanted = describe(wanted);
        let why = format!("is a delta, made from {wanted}: name that, too, as a checkpoint before this one");
        return Err(Failure::usage(path, why));
    }
    for Lack { path, wanted, .. } in all {
        let (path, wanted) = (Name::path(path), describe(wanted));
        ui.warn(format_args!(
            "{path}: left out: it is a delta, made from {wanted}, which is not among the checkpoints"
        ));
    }
    let numbers: HashSet<usize> = all.iter().map(|l| l.number).collect();
    let mut number = 0..;
    found.retain(|_| number.next().is_none_or(|n| !numbers.contains(&n)));
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
            assert!(files.files.in_use() <= 8, "{} after {checkpoint}", files.files.in_use());
        }
    }
}
