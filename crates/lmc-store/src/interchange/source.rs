//! The versions in a directory, and which of them lead from what a follower has to the newest one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::checksum::Checksum;
use super::header::Header;
use super::index::{self, FILE, INDEX, Index, Kind};
use super::read::{header_of, read};
use super::shards::Delta;
use crate::error::{Error, Result};
use crate::ids::{Hash, SaveId, Step};
use crate::manifest::names::check_name;

/// A directory of versions.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    /// The checkpoint that the first delta is against, if no version has it.
    base: Option<PathBuf>,
}

/// How to get to a version.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The number of the version, and its id.
    pub(crate) version: (Step, SaveId),
    pub(crate) start: Start,
    /// What is applied to it, in order.
    pub(crate) deltas: Vec<Delta>,
}

/// What deltas are applied to.
#[derive(Debug)]
pub(crate) enum Start {
    /// What the follower has.
    Current,
    /// A full version, or another checkpoint.
    Full(Full),
}

/// A whole checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Full {
    /// Files with tensors.
    pub(crate) files: Vec<(String, PathBuf, Header)>,
    /// Of the tensors, in the metadata of the files.
    pub(crate) checksum: Option<Checksum>,
    /// Other files, with their hashes, as far as known.
    pub(crate) others: Vec<(String, PathBuf, Option<Hash>)>,
    /// An index to be written.
    pub(crate) index: Option<(&'static str, Vec<u8>)>,
}

impl Source {
    pub(crate) fn new(path: &Path, base: Option<&Path>) -> Self {
        Self { path: path.to_owned(), base: base.map(Path::to_owned) }
    }

    /// The number and the id of the newest version, if there is any.
    pub(crate) fn newest(&self) -> Result<Option<(Step, SaveId)>> {
        self.versions()?.last().map(|&step| Ok((step, self.index(step)?.id))).transpose()
    }

    /// The versions that have an index: others are not finished.
    pub(super) fn versions(&self) -> Result<BTreeSet<Step>> {
        let failed = |e| Error::io(format_args!("{}: cannot list", self.path.display()), e);
        let mut versions = BTreeSet::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let step = entry.file_name().to_str().and_then(index::parse_directory);
            versions.extend(step.filter(|_| entry.path().join(INDEX).exists()));
        }
        Ok(versions)
    }

    fn directory(&self, step: Step) -> PathBuf {
        self.path.join(index::directory_of(step))
    }

    pub(super) fn index(&self, step: Step) -> Result<Index> {
        let directory = self.directory(step);
        let bytes = read(&directory.join(INDEX), index::MAX)?;
        Index::parse(&bytes, step).map_err(|e| e.at(directory.display()))
    }

    /// How to get to the newest version from the one that is there, if any; or from nothing.
    ///
    /// With `rewind` it need not be a later one of the same line.
    pub(crate) fn chain(&self, to: Step, there: Option<(Step, SaveId)>, rewind: bool) -> Result<Chain> {
        let newest = self.index(to)?;
        let version = (to, newest.id);
        let (mut deltas, mut at, mut of) = (vec![], to, newest);
        let start = loop {
            let Kind::Delta { base, .. } = of.kind else {
                if let Some((step, _)) = there.filter(|(step, _)| *step > at && !rewind) {
                    return Err(Error::usage(format!(
                        "{}: comes from version {at}, and version {step} is followed: if the run was rewound, ask for it",
                        self.directory(to).display()
                    )));
                }
                break Start::Full(self.full(at, &of)?);
            };
            deltas.push(Delta::open(self.directory(at), &of)?);
            let exists = self.directory(base).join(INDEX).exists();
            if let Some((_, id)) = there.filter(|(step, _)| *step == base) {
                if exists && self.index(base)?.id != id {
                    return Err(Error::damaged(format!(
                        "{}: is not the version {base} that is followed: the run began anew; follow into an empty directory",
                        self.directory(base).display()
                    )));
                }
                break Start::Current;
            }
            if !exists {
                break Start::Full(self.checkpoint_before(at, base, there)?);
            }
            (at, of) = (base, self.index(base)?);
        };
        deltas.reverse();
        Ok(Chain { version, start, deltas })
    }

    /// The checkpoint that the first delta is against, if it is known by other means.
    fn checkpoint_before(&self, first: Step, base: Step, there: Option<(Step, SaveId)>) -> Result<Full> {
        let first = self.directory(first);
        let what = format!("{}: is a delta against version {base}, which is not there", first.display());
        match (there, &self.base) {
            (None, Some(path)) => checkpoint(path),
            (None, None) => Err(Error::damaged(format!(
                "{what}: give the checkpoint that the run began with, or wait for a full version"
            ))),
            (Some((step, _)), _) => Err(Error::damaged(format!(
                "{what}, and version {step} is followed: restore the versions between, or wait for a full one"
            ))),
        }
    }

    /// A full version.
    fn full(&self, step: Step, index: &Index) -> Result<Full> {
        let directory = self.directory(step);
        let Kind::Full { checksum } = index.kind else { unreachable!("the caller has looked") };
        if index.weight_map.is_empty() {
            return Err(Error::damaged(format!("{}: is a full version without tensors", directory.display())));
        }
        let mut full = Full { checksum, ..others_in(&directory, false)? };
        let mut total_size = 0;
        for (file, names) in index.files() {
            let header = index.header(&directory, file, &names)?;
            if let Some(t) =
                header.tensors.iter().find(|t| checksum.is_some() && !header.metadata.contains_key(&t.name))
            {
                let place = directory.join(file);
                return Err(Error::damaged(format!("{}: has no checksum of {:?}", place.display(), t.name)));
            }
            total_size += header.tensors.iter().map(|t| t.range.end - t.range.start).sum::<u64>();
            full.files.push((file.to_owned(), directory.join(file), header));
        }
        if let Some(own) = &index.own {
            for (name, _, hash) in &mut full.others {
                *hash = own.files.get(name).copied();
            }
            let is_there =
                |name: &String| full.others.iter().any(|(n, ..)| n == name) || index.files().contains_key(&name[..]);
            if let Some(missing) = own.files.keys().find(|name| !is_there(name)) {
                return Err(Error::damaged(format!("{}: has no file {missing:?}", directory.display())));
            }
        }
        // Checksums are those of this version: what is followed has no use for them.
        let clean = json!({ "metadata": { "total_size": total_size }, "weight_map": index.weight_map });
        full.index = Some((INDEX, clean.to_string().into_bytes()));
        Ok(full)
    }
}

/// A checkpoint in a directory that is no version.
pub(crate) fn checkpoint(path: &Path) -> Result<Full> {
    let mut full = others_in(path, true)?;
    let failed = |e| Error::io(format_args!("{}: cannot list", path.display()), e);
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(name) = name.to_str().filter(|name| index::is_file_of_tensors(name)) {
            let file = path.join(name);
            full.files.push((name.to_owned(), file.clone(), header_of(&file, true)?));
        }
    }
    full.files.sort_by(|a, b| a.0.cmp(&b.0));
    match full.files.is_empty() {
        true => Err(Error::usage(format!("{}: has no {FILE} files", path.display()))),
        false => Ok(full),
    }
}

/// The files beside the weights in a directory. What is hidden, a directory or no regular file is left out.
fn others_in(directory: &Path, links: bool) -> Result<Full> {
    let failed = |e| Error::io(format_args!("{}: cannot list", directory.display()), e);
    let mut full = Full::default();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let m = if links { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let name = entry.file_name().into_string().ok();
        let wanted = |name: &String| {
            check_name(name).is_ok() && !name.starts_with('.') && !name.ends_with(FILE) && (links || name != INDEX)
        };
        if let Some(name) = name.filter(wanted)
            && m.is_ok_and(|m| m.is_file())
        {
            full.others.push((name, path, None));
        }
    }
    full.others.sort();
    Ok(full)
}
