//! The versions in a directory, and which of them are finished.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lmc_store::Step;
use regex_lite::Regex;

use crate::fs::input::Source;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::work::files::{is_hidden, is_stale};
use crate::work::shards::{Fault, fault};
use crate::work::steps::{common, version_step};

/// A directory or a file of a version.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) step: Step,
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
}

/// Attributes that distinguish a directory or a file from another one of the same name: its inode, and when it was
/// created.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Identity(u64, Option<SystemTime>);

/// Files by their paths, as far as they can be read: when each was written to, and its length.
pub(super) type Files = BTreeMap<PathBuf, (SystemTime, u64)>;

/// The sign that a version is finished.
pub(super) enum Finished {
    /// It has a file of this name.
    Marker(String),
    /// Nothing in it has changed for this long.
    Settled(Duration),
}

/// Why a version is not finished.
pub(super) struct Why {
    pub(super) text: String,
    /// It is still written.
    pub(super) changes: bool,
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Self { text, changes: false }
    }
}

impl Version {
    /// Its files, as they are.
    pub(super) fn files(&self) -> Files {
        let mut found = Files::new();
        add_files(&self.path, &mut found);
        found
    }

    /// The first file that was written to, or added, since it had the files `before`. None if another version has its name now.
    pub(super) fn written(&self, before: &Files) -> Option<PathBuf> {
        let is_same = fs::symlink_metadata(&self.path).is_ok_and(|m| Identity::of(&m) == self.identity);
        let mut now = if is_same { self.files() } else { Files::new() }.into_iter();
        now.find(|(path, file)| before.get(path) != Some(file)).map(|(path, _)| path)
    }
}

impl Identity {
    fn of(m: &Metadata) -> Self {
        Self(m.ino(), m.created().ok())
    }
}

/// Adds the files at a path or below. What cannot be read is left out: it may have been removed just now.
fn add_files(path: &Path, found: &mut Files) {
    let Ok(m) = fs::symlink_metadata(path) else { return };
    if m.is_dir() {
        fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| add_files(&entry.path(), found));
    } else if let Ok(time) = m.modified() {
        found.insert(path.to_owned(), (time, m.len()));
    }
}

/// Suffixes of files with weights.
const FILES: [&str; 9] = [".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".gguf", ".onnx", ".lmc"];

/// Which names are those of versions.
pub(super) struct Names<'a> {
    /// How they begin.
    pub(super) prefix: &'a str,
    /// What finds their steps, in place of the rules for names that trainers give.
    pub(super) pattern: Option<&'a Regex>,
    pub(super) only_directories: bool,
}

/// The versions of a directory, by step.
pub(super) fn found(dir: &Path, names: &Names<'_>) -> Result<Vec<Version>> {
    let unreadable = |e| Failure::io(dir, "cannot read the directory", &e);
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>).map_err(unreadable)?;
    let mut versions = Vec::new();
    for entry in entries {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(names.prefix)) else { continue };
        let m = match entry.metadata() {
            // It was removed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            m => m.map_err(unreadable)?,
        };
        if m.is_dir() || (m.is_file() && !names.only_directories) {
            let identity = Identity::of(&m);
            let step = names.step(name, m.is_file());
            versions.extend(step.map(|step| Version { step, path: entry.path(), identity }));
        }
    }
    versions.sort_by(|a, b| (a.step, &a.path).cmp(&(b.step, &b.path)));
    Ok(versions)
}

/// The failure of a directory without versions.
pub(super) fn none(dir: &Path, names: &Names<'_>) -> Failure {
    let kinds = if names.only_directories { "a directory" } else { "a directory or a file with weights" };
    let with = match names.prefix {
        "" => String::new(),
        prefix => format!("begins with {} and ", Name::text(prefix)),
    };
    let has = if names.pattern.is_some() { "matches --step-pattern" } else { "has a step" };
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let above = match names.step(&name, false) {
        Some(_) => ": to save this one, name the directory that it is in",
        None => "",
    };
    Failure::at(dir, format_args!("has no version: {kinds} whose name {with}{has}{above}"))
}

/// Fails if versions cannot be those of one run: two have the same step, or they are named differently.
pub(super) fn check(versions: &[Version], names: &Names<'_>) -> Result {
    let named = |v: &Version| {
        let name = v.path.file_name().unwrap_or_default().to_string_lossy();
        common(name.trim_end_matches(suffix_of(&name)))
    };
    for two in versions.windows(2) {
        let (other, step) = (Name::path(&two[1].path), two[0].step);
        if two[0].step == two[1].step {
            let what = format_args!("is of step {step}, and so is {other}: move one away, or say which by --prefix");
            return Err(Failure::at(&two[0].path, what));
        }
        if names.pattern.is_none() && named(&two[0]) != named(&two[1]) {
            let what = format_args!("is not named as {other} is: say by --prefix which of them are versions");
            return Err(Failure::at(&two[0].path, what));
        }
    }
    Ok(())
}

/// The suffix of a file with weights, or nothing.
fn suffix_of(name: &str) -> &str {
    FILES.iter().find_map(|suffix| name.ends_with(suffix).then(|| &name[name.len() - suffix.len()..])).unwrap_or("")
}

impl Names<'_> {
    /// The step in the name of a version. Names of files that are not written to their end yet have none.
    fn step(&self, name: &str, is_file: bool) -> Option<Step> {
        let lower = name.to_ascii_lowercase();
        let is_temporary = lower.starts_with("tmp") || lower.ends_with("tmp") || lower.contains("-tmp-");
        if lower.starts_with('.') || is_temporary {
            return None;
        }
        if let Some(pattern) = self.pattern {
            let found = pattern.captures(name)?;
            return Step::new(found.get(1).or(found.get(0))?.as_str().parse().ok()?).ok();
        }
        let suffix = suffix_of(name);
        if is_file && suffix.is_empty() {
            return None;
        }
        Step::new(version_step(&name[..name.len() - suffix.len()])?).ok()
    }
}

impl Finished {
    /// Why a version is not finished; `None` if it is. `age`: for how long it has been seen as it is; a single look has only the times of
    /// its files.
    pub(super) fn why_not(&self, version: &Version, age: Option<Duration>) -> Result<Option<Why>> {
        let failed = |e| Failure::io(&version.path, "cannot read", &e);
        let m = match fs::symlink_metadata(&version.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some("it is gone".to_owned().into())),
            m => m.map_err(failed)?,
        };
        match (self, age) {
            (Finished::Marker(name), _) if !version.path.join(name).exists() => {
                return Ok(Some(format!("it has no file {}", Name::text(name)).into()));
            }
            (Finished::Settled(settle), Some(age)) if age < *settle => {
                let (age, settle) = (age.as_secs_f64(), settle.as_secs_f64());
                let text = format!("it is seen as it is for {age:.1} s (--settle {settle})");
                return Ok(Some(Why { text, changes: true }));
            }
            (Finished::Settled(settle), None) if !settle.is_zero() => {
                let changed = last_change(&version.path, &m).map_err(failed)?;
                let age = SystemTime::now().duration_since(changed);
                let text = match age {
                    Ok(age) if age >= *settle => None,
                    Err(e) if e.duration() > *settle => Some(format!(
                        "its time is {:.0} s from now, as of a clock that is ahead: look without --once, or use --marker or --settle 0",
                        e.duration().as_secs_f64()
                    )),
                    age => {
                        let age = age.unwrap_or_default().as_secs_f64();
                        Some(format!("it changed {age:.1} s ago (--settle {})", settle.as_secs_f64()))
                    }
                };
                if let Some(text) = text {
                    return Ok(Some(Why { text, changes: true }));
                }
            }
            _ => {}
        }
        if !m.is_dir() {
            return Ok(truncated(&version.path)?.map(Why::from));
        }
        // A run may have died before it wrote the first one.
        if is_empty(&version.path).map_err(failed)? {
            return Ok(Some("it has no files".to_owned().into()));
        }
        Ok(missing(&version.path, &version.path)?.map(Why::from))
    }
}

/// When anything at a path was written last.
fn last_change(path: &Path, m: &Metadata) -> io::Result<SystemTime> {
    let mut last = m.modified()?;
    if m.is_dir() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            last = last.max(match entry.metadata().and_then(|m| last_change(&entry.path(), &m)) {
                // It was removed just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => SystemTime::now(),
                changed => changed?,
            });
        }
    }
    Ok(last)
}

/// Whether a directory has no files, nor have those in it.
fn is_empty(dir: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(dir) {
        // It was removed meanwhile.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if !(entry.file_type()?.is_dir() && is_empty(&entry.path())?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Suffixes of files whose beginning says where they end.
const SIZED: [&str; 2] = [".safetensors", ".gguf"];
/// The length of the number that a safetensors file begins with.
const SAFETENSORS_START: u64 = 8;

/// Why a file ends before its tensors do, if it does.
fn truncated(path: &Path) -> Result<Option<String>> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    if !SIZED.iter().any(|suffix| name.ends_with(suffix)) || !path.is_file() {
        return Ok(None);
    }
    let source = Source::open(path)?;
    let why = match source.metadata().len() {
        n @ ..SAFETENSORS_START => Some(format!("it has {n} bytes: it ends early")),
        _ => source.truncated()?,
    };
    Ok(why.map(|why| format!("{}: {why}", Name::path(path))))
}

/// What is missing in a directory of a version, or below: a file that an index names, also compressed, or the end of one.
fn missing(dir: &Path, version: &Path) -> Result<Option<String>> {
    let failed = |e| Failure::io(dir, "cannot read the directory", &e);
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>).map_err(failed)?;
    let all: Vec<PathBuf> = entries.iter().map(DirEntry::path).collect();
    for (entry, path) in entries.iter().zip(&all) {
        if entry.file_type().map_err(failed)?.is_dir() {
            if let Some(why) = missing(path, version)? {
                return Ok(Some(why));
            }
            continue;
        }
        if is_hidden(path, version) {
            continue;
        }
        let why = match fault(path, |names| is_stale(path, names, all.iter().map(|path| &**path)))? {
            Some(Fault::Unfinished(failure)) => Some(failure.to_string()),
            // It is saved as it is.
            Some(Fault::Other(_)) => None,
            None => truncated(path)?,
        };
        if why.is_some() {
            return Ok(why);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> = Names { prefix: "", pattern: None, only_directories: false };

    #[test]
    fn versions_have_steps_in_their_names() {
        let step = |names: &Names<'_>, name, is_file| names.step(name, is_file).map(Step::get);
        for (name, is_file, n) in [
            ("checkpoint-1000", false, Some(1000)),
            ("epoch=0-step=16.ckpt", true, Some(16)),
            ("m--val_loss=2.31-step=100-consumed_samples=800.0.ckpt", true, Some(100)),
            ("ep0-ba100-rank0.pt", true, Some(100)),
            ("model-300.safetensors", true, Some(300)),
            ("7.pt", true, Some(7)),
            ("300", true, None),
            ("loss-7.png", true, None),
            ("m7.tar.gz", true, None),
            ("m-300.safetensors.tmp", true, None),
            ("model-00001-of-00002.safetensors", true, None),
            (".step1", false, None),
            ("tmp-1", false, None),
            ("TMP1", false, None),
            ("100.orbax-checkpoint-tmp-7", false, None),
        ] {
            assert_eq!(step(&NAMES, name, is_file), n, "{name}");
        }
        let pattern = Regex::new(r"^s(\d+)-").unwrap();
        let names = Names { pattern: Some(&pattern), ..NAMES };
        for (name, n) in [("s12-x7", Some(12)), ("step-7", None), ("s99999999999999999999-", None)] {
            assert_eq!((step(&names, name, false), step(&names, name, true)), (n, n), "{name}");
        }
    }

    #[test]
    fn versions_of_one_run_are_named_alike() {
        let version = |&name: &&str| {
            let step = NAMES.step(name, name.contains(".pt")).unwrap();
            Version { step, path: Path::new("d").join(name), identity: Identity(0, None) }
        };
        let checked = |names: &[&str]| {
            let mut versions: Vec<Version> = names.iter().map(version).collect();
            versions.sort_by_key(|v| v.step);
            check(&versions, &NAMES).map_err(|e| e.to_string())
        };
        assert_eq!(checked(&["step-7", "step-08", "step-900"]), Ok(()));
        assert_eq!(checked(&["m1.pt", "m2.pt"]), Ok(()));
        assert_eq!(checked(&["epoch=0-step=16-loss=2.5", "epoch=1-step=32-loss=0.25"]), Ok(()));
        assert!(checked(&["step-7", "step-007"]).unwrap_err().contains("is of step 7, and so is"));
        assert!(checked(&["step-7", "backup_20241126"]).unwrap_err().contains("is not named as"));
    }
}
