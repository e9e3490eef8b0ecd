//! The versions in a directory, and which of them are finished.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lmc_store::Step;

use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::shards::shards;

/// A directory or a file of a version.
#[derive(Debug, PartialEq)]
pub(super) struct Version {
    pub(super) step: Step,
    pub(super) path: PathBuf,
}

/// How one knows that a version is finished.
pub(super) enum Finished {
    /// It has a file of this name.
    Marker(String),
    /// Nothing in it has changed for this long.
    Settled(Duration),
}

/// The versions of a directory, by step.
pub(super) fn found(dir: &Path) -> Result<Vec<Version>> {
    let unreadable = |e| Failure::io(dir, "cannot read the directory", &e);
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>).map_err(unreadable)?;
    let mut versions = Vec::new();
    for entry in entries {
        let kind = entry.file_type().map_err(unreadable)?;
        let name = entry.file_name();
        let step = name.to_str().filter(|_| kind.is_dir() || kind.is_file()).and_then(|n| step_of(n, kind.is_file()));
        versions.extend(step.map(|step| Version { step, path: entry.path() }));
    }
    versions.sort_by(|a, b| (a.step, &a.path).cmp(&(b.step, &b.path)));
    if let Some(two) = versions.windows(2).find(|two| two[0].step == two[1].step) {
        let (other, step) = (Name::path(&two[1].path), two[0].step);
        return Err(Failure::at(&two[0].path, format_args!("is of step {step}, and so is {other}: move one away")));
    }
    Ok(versions)
}

/// The step at the end of a name, before the extension of a file.
fn step_of(name: &str, is_file: bool) -> Option<Step> {
    let lower = name.to_ascii_lowercase();
    if lower.starts_with('.') || lower.starts_with("tmp") || lower.ends_with("tmp") {
        return None;
    }
    let stem = if is_file { name.split_once('.').map_or(name, |(stem, _)| stem) } else { name };
    let digits = stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    Step::new(stem[digits..].parse().ok()?).ok()
}

impl Finished {
    /// Why a version is not finished; `None` if it is.
    pub(super) fn why_not(&self, version: &Version) -> Result<Option<String>> {
        let failed = |e| Failure::io(&version.path, "cannot read", &e);
        let m = fs::symlink_metadata(&version.path).map_err(failed)?;
        match self {
            Finished::Marker(name) if !version.path.join(name).exists() => {
                return Ok(Some(format!("it has no file {}", Name::text(name))));
            }
            Finished::Settled(settle) if !settle.is_zero() => {
                let changed = last_change(&version.path, &m).map_err(failed)?;
                // The clock of a server may be ahead: then it has just changed.
                let age = SystemTime::now().duration_since(changed).unwrap_or_default();
                if age < *settle {
                    let age = age.as_secs_f64();
                    return Ok(Some(format!("it changed {age:.1} s ago (--settle {})", settle.as_secs_f64())));
                }
            }
            _ => {}
        }
        if m.is_dir() { missing(&version.path) } else { Ok(None) }
    }
}

/// When anything at a path was written last.
fn last_change(path: &Path, m: &Metadata) -> io::Result<SystemTime> {
    let mut last = m.modified()?;
    if m.is_dir() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            last = last.max(last_change(&entry.path(), &entry.metadata()?)?);
        }
    }
    Ok(last)
}

/// What an index in a directory names, and is not there.
fn missing(dir: &Path) -> Result<Option<String>> {
    let failed = |e| Failure::io(dir, "cannot read the directory", &e);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let index = entry.map_err(failed)?.path();
        for name in shards(&index)?.into_iter().flatten() {
            if !dir.join(&name).is_file() {
                let index = index.file_name().unwrap_or_default().to_string_lossy();
                return Ok(Some(format!("{} names {}, which is missing", Name::text(&index), Name::text(&name))));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_step() {
        let step = |name, is_file| step_of(name, is_file).map(Step::get);
        for (name, n) in [("checkpoint-1000", 1000), ("global_step7", 7), ("weight_v000123", 123), ("0", 0), ("1.5", 5)]
        {
            assert_eq!(step(name, false), Some(n), "{name}");
        }
        for name in ["latest", "checkpoint-1000.bak", "", ".step1", "tmp-checkpoint-1", "TMP1", "99999999999999999999"]
        {
            assert_eq!(step(name, false), None, "{name}");
        }
        for (name, n) in [("model-300.safetensors", Some(300)), ("m7.tar.gz", Some(7)), ("300", Some(300)), ("x", None)]
        {
            assert_eq!(step(name, true), n, "{name}");
        }
        assert_eq!(step("model-300.safetensors.tmp", true), None);
    }
}
