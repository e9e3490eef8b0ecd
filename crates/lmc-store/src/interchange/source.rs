//! The versions in a directory, and those that lead from a follower's version to the newest one.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::json;

use super::checksum::Checksum;
use super::header::Header;
use super::index::{self, FILE, INDEX, Index, Kind};
use super::model::is_beside_weights;
use super::read::{header_of, note, read};
use super::shards::Delta;
use super::version::{MAX_HEADERS, Seen, Version};
use crate::error::{Error, Result};
use crate::identity::{Identities, Identity};
use crate::ids::{Hash, SaveId, Step};
use crate::manifest::names::check_name;

/// Bytes of all files beside the weights of a full version.
const MAX_OTHERS: u64 = 1 << 30;

/// A directory of versions.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    /// The checkpoint that the first delta is against, if no version has it, and its number.
    base: Option<(PathBuf, Step)>,
    /// The newest version at the last check.
    seen: Mutex<Option<Seen>>,
}

/// The way to a version.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The number of the version, and its id.
    pub(crate) version: (Step, SaveId),
    pub(crate) start: Start,
    /// The deltas to apply, in order.
    pub(crate) deltas: Vec<Delta>,
}

/// The start to which deltas are applied.
#[derive(Debug)]
pub(crate) enum Start {
    /// The follower's version.
    Current,
    /// A full version, or another checkpoint.
    Full(Full),
}

/// A whole checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Full {
    /// Files with tensors.
    pub(crate) files: Vec<(String, PathBuf, Header)>,
    /// Whether files may be links to others: in a checkpoint that was given by its path.
    pub(crate) links: bool,
    /// Of the tensors, in the metadata of the files.
    pub(crate) checksum: Option<Checksum>,
    /// Other files, with their hashes, as far as known.
    pub(crate) others: Vec<(String, PathBuf, Option<Hash>)>,
    /// An index to be written.
    pub(crate) index: Option<(&'static str, Vec<u8>)>,
    /// What was there before it was read: its directory, and the files that have no checksums.
    pub(crate) paths: Identities,
}

impl Source {
    pub(crate) fn new(path: &Path, base: Option<(&Path, Step)>) -> Self {
        let base = base.map(|(path, step)| (path.to_owned(), step));
        Self { path: path.to_owned(), base, seen: Mutex::new(None) }
    }

    /// The number and the id of the newest version, if there is any.
    pub(crate) fn newest(&self) -> Result<Option<(Step, SaveId)>> {
        let Some(&step) = self.versions()?.last() else { return Ok(None) };
        let mut seen = self.seen.lock().expect("no panic while it is held");
        let id = match seen.as_ref().and_then(|seen| seen.id(step)) {
            Some(id) => id,
            None => {
                let mut left = MAX_HEADERS;
                let version = self.version(step, &mut left)?;
                let id = version.id;
                *seen = Some(version.seen(step));
                id
            }
        };
        Ok(Some((step, id)))
    }

    /// The versions that have an index: others are not finished.
    pub(super) fn versions(&self) -> Result<BTreeSet<Step>> {
        let mut versions = BTreeSet::new();
        for step in self.directories()? {
            if self.has(step)? {
                versions.insert(step);
            }
        }
        Ok(versions)
    }

    /// The last directory, if its version is not finished: it has no index.
    pub(crate) fn unfinished(&self) -> Result<Option<PathBuf>> {
        let Some(&last) = self.directories()?.last() else { return Ok(None) };
        Ok(if self.has(last)? { None } else { Some(self.directory(last)) })
    }

    /// The numbers of all directories, finished or not.
    fn directories(&self) -> Result<BTreeSet<Step>> {
        let failed = |e| Error::io(format_args!("{}: cannot list", self.path.display()), e);
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            found.extend(entry.map_err(failed)?.file_name().to_str().and_then(index::parse_directory));
        }
        Ok(found)
    }

    fn directory(&self, step: Step) -> PathBuf {
        self.path.join(index::directory_of(step))
    }

    /// Fails if a version's directory is a link that leads elsewhere: whoever may write versions may not choose what else is read.
    fn check_inside(&self, step: Step) -> Result<()> {
        let directory = self.directory(step);
        if !directory.is_symlink() {
            return Ok(());
        }
        let failed = |e| Error::io(format_args!("{}: cannot open", directory.display()), e);
        let (real, all) = (directory.canonicalize().map_err(failed)?, self.path.canonicalize().map_err(failed)?);
        match real.starts_with(all) {
            true => Ok(()),
            false => Err(Error::damaged(format!(
                "{}: is a link to {}, and versions are followed only inside of their directory: put it there itself",
                directory.display(),
                real.display()
            ))),
        }
    }

    /// Whether a version exists and is finished. An unreadable version is not missing.
    fn has(&self, step: Step) -> Result<bool> {
        let path = self.directory(step).join(INDEX);
        match fs::symlink_metadata(&path) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(Error::io(format_args!("{}: cannot look at it", path.display()), e)),
        }
    }

    pub(super) fn index(&self, step: Step) -> Result<Index> {
        self.check_inside(step)?;
        let directory = self.directory(step);
        let bytes = read(&directory.join(INDEX), index::MAX)?;
        Index::parse(&bytes, step).map_err(|e| e.at(directory.display()))
    }

    fn version(&self, step: Step, left: &mut u64) -> Result<Version> {
        self.check_inside(step)?;
        Version::read(&self.directory(step), step, left)
    }

    /// The way to the newest version from the follower's, if it has one; or from nothing.
    ///
    /// With `rewind` it need not be a later one of the same line.
    pub(crate) fn chain(&self, to: Step, there: Option<(Step, SaveId)>, rewind: bool) -> Result<Chain> {
        let mut left = MAX_HEADERS;
        let newest = self.version(to, &mut left)?;
        let version = (to, newest.id);
        let (mut deltas, mut at, mut of) = (vec![], to, newest);
        let start = loop {
            let Kind::Delta { base, .. } = of.index.kind else {
                if let Some((step, _)) = there.filter(|(step, _)| *step > at && !rewind) {
                    return Err(Error::usage(format!(
                        "{}: comes from version {at}, and version {step} is followed: if the run was rewound, allow it (--rewind, rewind=True)",
                        self.directory(to).display()
                    )));
                }
                break Start::Full(self.full(at, of)?);
            };
            deltas.push(Delta::open(self.directory(at), &of)?);
            let before = if self.has(base)? { Some(self.version(base, &mut left)?) } else { None };
            if let Some((_, id)) = there.filter(|(step, _)| *step == base) {
                if before.as_ref().is_none_or(|before| before.id == id) {
                    break Start::Current;
                }
                if !rewind {
                    return Err(Error::usage(format!(
                        "{}: is not the version {base} that is followed: if the run was rewound, or began anew, allow it (--rewind, rewind=True)",
                        self.directory(base).display()
                    )));
                }
            }
            let Some(before) = before else {
                break Start::Full(self.checkpoint_before(at, base, there.filter(|_| !rewind))?);
            };
            (at, of) = (base, before);
        };
        deltas.reverse();
        Ok(Chain { version, start, deltas })
    }

    /// The checkpoint that the first version is a delta against, if it is known by other means.
    fn checkpoint_before(&self, at: Step, base: Step, there: Option<(Step, SaveId)>) -> Result<Full> {
        let what = format!("{}: is a delta against version {base}, which is not there", self.directory(at).display());
        if let Some((step, _)) = there {
            return Err(Error::damaged(format!(
                "{what}, and version {step} is followed: restore the versions between, or wait for a full one"
            )));
        }
        let Some((path, number)) = &self.base else {
            return Err(Error::damaged(format!(
                "{what}: give the checkpoint that the run began with, or wait for a full version"
            )));
        };
        // In any other gap, versions were removed: tensors that only these changed would not be checked.
        if *number != base {
            return Err(Error::damaged(format!(
                "{what}, and the checkpoint {} is given as version {number}: if it is version {base}, say so; or wait for a full version",
                path.display()
            )));
        }
        if let Some(first) = self.directories()?.first().filter(|first| **first < at) {
            return Err(Error::damaged(format!(
                "{what}, and {} is: a checkpoint stands only for what comes before the first version",
                index::directory_of(*first)
            )));
        }
        checkpoint(path)
    }

    /// A full version.
    fn full(&self, step: Step, version: Version) -> Result<Full> {
        let Version { index, headers, paths, .. } = version;
        let directory = self.directory(step);
        let Kind::Full { checksum } = index.kind else { unreachable!("the caller has looked") };
        if index.weight_map.is_empty() {
            return Err(Error::damaged(format!("{}: is a full version without tensors", directory.display())));
        }
        let hashes = index.own.as_ref().map(|own| &own.files);
        let has_hash = |name: &str| hashes.is_some_and(|files| files.contains_key(name));
        // What has checksums is compared with these, and may be deleted when it was read.
        let paths = if checksum.is_none() { paths } else { Identities::default() };
        let mut full = Full { checksum, ..others_in(&directory, false, paths, has_hash)? };
        let mut total_size = 0;
        for (file, header) in headers {
            if let Some(t) =
                header.tensors.iter().find(|t| checksum.is_some() && !header.metadata.contains_key(&t.name))
            {
                let place = directory.join(&file);
                return Err(Error::damaged(format!("{}: has no checksum of {:?}", place.display(), t.name)));
            }
            total_size += header.tensors.iter().map(|t| t.range.end - t.range.start).sum::<u64>();
            let path = directory.join(&file);
            full.files.push((file, path, header));
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
        // Checksums are those of this version: the followed directory has no use for them.
        let clean = json!({ "metadata": { "total_size": total_size }, "weight_map": index.weight_map });
        full.index = Some((INDEX, clean.to_string().into_bytes()));
        Ok(full)
    }
}

/// A checkpoint in a directory that is no version.
pub(crate) fn checkpoint(path: &Path) -> Result<Full> {
    let mut paths = Identities::default();
    note(&mut paths, path, true)?;
    let mut full = Full { links: true, ..others_in(path, true, paths, |_| false)? };
    let failed = |e| Error::io(format_args!("{}: cannot list", path.display()), e);
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(name) = name.to_str().filter(|name| index::is_file_of_tensors(name)) {
            let file = path.join(name);
            note(&mut full.paths, &file, true)?;
            full.files.push((name.to_owned(), file.clone(), header_of(&file, true)?));
        }
    }
    full.files.sort_by(|a, b| a.0.cmp(&b.0));
    match full.files.is_empty() {
        true => Err(Error::usage(format!("{}: has no {FILE} files", path.display()))),
        false => Ok(full),
    }
}

/// The files beside the weights in a directory. Hidden files, directories and files that are not regular are left out;
/// of a version, whose directory other programs may write, also all files that serving programs do not read. `paths` gets those of which
/// no hash is known.
fn others_in(directory: &Path, links: bool, paths: Identities, has_hash: impl Fn(&str) -> bool) -> Result<Full> {
    let failed = |e| Error::io(format_args!("{}: cannot list", directory.display()), e);
    let (mut full, mut size) = (Full { paths, ..Full::default() }, 0u64);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let m = if links { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let name = entry.file_name().into_string().ok();
        let wanted = |name: &String| {
            let beside = links || (is_beside_weights(name) && name != INDEX);
            check_name(name).is_ok() && !name.starts_with('.') && !name.ends_with(FILE) && beside
        };
        if let Some(name) = name.filter(wanted)
            && let Ok(m) = m
            && m.is_file()
        {
            size = size.saturating_add(m.len());
            if size > MAX_OTHERS && !links {
                return Err(Error::limit(format!(
                    "{}: the files beside its weights have more than {MAX_OTHERS} bytes",
                    directory.display()
                )));
            }
            if !has_hash(&name) {
                full.paths.note_known(&path, links, Identity::of(&m));
            }
            full.others.push((name, path, None));
        }
    }
    full.others.sort();
    Ok(full)
}
