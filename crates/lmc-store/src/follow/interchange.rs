//! Following versions that were written for receivers without a store: a full one, and deltas that are applied in order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::budget::Budget;
use super::staged::{FollowOptions, Staged};
use super::version::StoredFile;
use crate::error::{Error, Result};
use crate::files::{is_missing, sync_file};
use crate::held::StoredExtent;
use crate::identity::Identities;
use crate::ids::{Hash, SaveId, Step};
use crate::interchange::{Chain, Checksum, Full, Header, Source, Start, open_regular};
use crate::ordered::each;
use crate::snapshot::Snapshot;

/// Bytes that are copied at once.
const COPY: u64 = 1 << 20;
/// Bytes of tensors that change, and of their deltas, that all threads together have in memory; or those of one.
const IN_MEMORY: u64 = 4 << 30;

/// The newest version, unless it is the current one.
pub(super) fn newest(source: &Source, there: Option<(Step, SaveId)>) -> Result<Option<Snapshot>> {
    let Some((step, id)) = source.newest()?.filter(|(_, id)| there.is_none_or(|(_, there)| there != *id)) else {
        return Ok(None);
    };
    let (time, metadata, shards, raw_size, new_size) = Default::default();
    Ok(Some(Snapshot { step, id, time, metadata, shards, raw_size, new_size }))
}

/// A version that is to be written to a directory.
pub(super) struct Work<'w> {
    pub(super) chain: Chain,
    /// The files of the current version.
    pub(super) before: Vec<(StoredFile, PathBuf)>,
    pub(super) staging: &'w Path,
    pub(super) options: FollowOptions,
}

/// A file with tensors.
struct Weights {
    name: String,
    path: PathBuf,
    header: Header,
    /// The path may be a link.
    links: bool,
    /// It is one of the current version's.
    old: Option<StoredFile>,
}

impl Work<'_> {
    /// Writes the files, one tensor per thread at a time. Every changed tensor is verified after each delta.
    pub(super) fn write(
        mut self,
        snapshot: &Snapshot,
        staged: &mut Staged,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<StoredFile>> {
        if self.chain.version != (snapshot.step, snapshot.id) {
            return Err(Error::damaged(format!("version {} was replaced by another one meanwhile", snapshot.step)));
        }
        let mut read = Identities::default();
        let (weights, checksum, mut files) = match std::mem::replace(&mut self.chain.start, Start::Current) {
            Start::Current => {
                let weights = self.current()?;
                let others = self.before.iter().filter(|(f, _)| weights.iter().all(|w| w.name != f.name));
                let link = |(file, path): &(StoredFile, PathBuf)| {
                    if self.options.verify {
                        verify(file, path)?;
                    }
                    self.link(file, path, staged)
                };
                let files = others.map(link).collect::<Result<_>>()?;
                (weights, None, files)
            }
            Start::Full(mut full) => {
                read = std::mem::take(&mut full.paths);
                let others = self.beside_weights(&full, staged)?;
                let (files, links) = (full.files.into_iter(), full.links);
                let weights = files.map(|(name, path, header)| Weights { name, path, header, links, old: None });
                let weights = weights.collect();
                (weights, full.checksum, others)
            }
        };
        self.check_names(&weights)?;
        for w in &weights {
            let changes = w.header.tensors.iter().any(|t| self.chain.deltas.iter().any(|d| d.changes(&t.name)));
            files.push(match &w.old {
                Some(old) if !changes && !self.options.verify => self.link(old, &w.path, staged)?,
                _ => self.rewrite(w, checksum, staged, progress)?,
            });
            progress(staged.linked_size + staged.written_size)?;
        }
        match read.changed() {
            None => Ok(files),
            Some(path) => Err(Error::damaged(format!(
                "{}: changed while it was read: it is followed when nothing writes to it",
                path.display()
            ))),
        }
    }

    fn failed(&self, e: io::Error) -> Error {
        Error::io(format_args!("{}: cannot write", self.staging.display()), e)
    }

    /// The weights of the current version.
    fn current(&self) -> Result<Vec<Weights>> {
        let of_tensors = self.before.iter().filter(|(f, _)| f.name.ends_with(".safetensors") && !f.name.contains('/'));
        let weights = of_tensors.map(|(old, path)| {
            let failed = |e| Error::io(format_args!("{}: cannot read", path.display()), e);
            let file = old.open(path).map_err(failed)?;
            let header = Header::read(old.len, |buf, at| lmc::ReadAt::read_exact_at(&file, buf, at).map_err(failed))?;
            Ok(Weights { name: old.name.clone(), path: path.clone(), header, links: false, old: Some(old.clone()) })
        });
        weights.collect()
    }

    /// Writes the files that a full version has beside its weights.
    fn beside_weights(&self, full: &Full, staged: &mut Staged) -> Result<Vec<StoredFile>> {
        let mut files = vec![];
        for (name, path, expected) in &full.others {
            let unreadable = |e| Error::io(format_args!("{}: cannot read", path.display()), e);
            let (source, len) = open_regular(path, full.links)?;
            let mut file = self.create(name)?;
            let hash =
                hash_of(&source, 0..len, unreadable, |part, _| file.write_all(part).map_err(|e| self.failed(e)))?;
            if let Some(expected) = expected.filter(|expected| *expected != hash) {
                return Err(Error::damaged(format!("{}: has the hash {hash} instead of {expected}", path.display())));
            }
            files.push(self.finished(&file, name, vec![(hash, 0, len)])?);
            staged.fetched_size += len;
        }
        if let Some((name, bytes)) = &full.index {
            let mut file = self.create(name)?;
            file.write_all(bytes).map_err(|e| self.failed(e))?;
            files.push(self.finished(&file, name, vec![(Hash::of(bytes), 0, bytes.len() as u64)])?);
        }
        staged.written_size += files.iter().map(|f| f.len).sum::<u64>();
        Ok(files)
    }

    fn create(&self, name: &str) -> Result<File> {
        File::create_new(self.staging.join(name)).map_err(|e| self.failed(e))
    }

    /// A file that was written, and is on disk.
    fn finished(&self, file: &File, name: &str, extents: Vec<StoredExtent>) -> Result<StoredFile> {
        let path = self.staging.join(name);
        let synced = sync_file(file, &path).and_then(|()| StoredFile::of(&path, name, extents));
        synced.map_err(|e| self.failed(e))
    }

    /// Fails if a tensor is in two files, or if a delta changes a tensor that does not exist.
    fn check_names(&self, weights: &[Weights]) -> Result<()> {
        let mut names = HashSet::new();
        for w in weights {
            if let Some(twice) = w.header.tensors.iter().find(|t| !names.insert(&t.name[..])) {
                return Err(Error::damaged(format!("{}: has {:?}, as another file has", w.path.display(), twice.name)));
            }
        }
        for delta in &self.chain.deltas {
            if let Some(name) = delta.names().find(|name| !names.contains(name)) {
                return Err(Error::damaged(format!(
                    "version {}: changes {name:?}, which its base has not: another model, or it needs a full version",
                    delta.step
                )));
            }
        }
        Ok(())
    }

    fn link(&self, old: &StoredFile, path: &Path, staged: &mut Staged) -> Result<StoredFile> {
        let to = self.staging.join(&old.name);
        fs::create_dir_all(to.parent().unwrap_or(self.staging)).map_err(|e| self.failed(e))?;
        let changed = || Error::damaged(format!("{}: was changed", path.display()));
        match fs::hard_link(path, &to) {
            Err(e) if is_missing(&e) => {
                let unreadable = |e| Error::io(format_args!("{}: cannot read", path.display()), e);
                let (mut source, mut copy) = (old.open(path).map_err(unreadable)?, self.create(&old.name)?);
                io::copy(&mut source, &mut copy).map_err(|e| self.failed(e))?;
                staged.written_size += old.len;
                let copied = self.finished(&copy, &old.name, old.extents.clone())?;
                if is_same(old, &to) { Ok(copied) } else { Err(changed()) }
            }
            linked => {
                linked.map_err(|e| self.failed(e))?;
                staged.linked_size += old.len;
                old.linked(&to).ok_or_else(changed)
            }
        }
    }

    /// Writes a file of weights from the one of the base.
    fn rewrite(
        &self,
        w: &Weights,
        checksum: Option<Checksum>,
        staged: &mut Staged,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<StoredFile> {
        let unreadable = |e| Error::io(format_args!("{}: cannot read", w.path.display()), e);
        let source = match &w.old {
            Some(old) => old.open(&w.path).map_err(unreadable)?,
            None => open_regular(&w.path, w.links)?.0,
        };
        let header =
            if w.old.is_some() { w.header.bytes.clone() } else { w.header.with_metadata(&kept_metadata(&w.header)) };
        let output = self.create(&w.name)?;
        lmc::WriteAt::write_all_at(&output, &header, 0).map_err(|e| self.failed(e))?;
        let offset = header.len() as u64;
        let known = w.old.as_ref().map(hashes_by_offset);
        // A tensor that is the same as in the version before is compared with its recorded hash.
        let check = |start: u64, len: u64, hash: Hash, what: &str| match &known {
            Some(known) if len != 0 && known.get(&(start, len)) != Some(&hash) => Err(Error::damaged(format!(
                "{}: {what}: was changed: follow into an empty directory",
                w.path.display()
            ))),
            _ => Ok(()),
        };
        check(0, w.header.len(), Hash::of(&w.header.bytes), "the header")?;
        let tensors = &w.header.tensors;
        let budget = Budget::new(IN_MEMORY);
        let work = |i: usize| {
            let t = &tensors[i];
            let damaged = |why: String| Error::damaged(format!("{}: {:?}: {why}", w.path.display(), t.name));
            let (start, len) = (w.header.len() + t.range.start, t.range.end - t.range.start);
            let mut fetched = if w.old.is_none() { len } else { 0 };
            let changes = || self.chain.deltas.iter().filter(|delta| delta.changes(&t.name));
            if changes().next().is_none() {
                let mut sum = checksum.map(Checksum::begin);
                let hash = hash_of(&source, start..start + len, unreadable, |part, at| {
                    if let Some(sum) = &mut sum {
                        sum.update(part);
                    }
                    lmc::WriteAt::write_all_at(&output, part, offset + t.range.start + (at - start))
                        .map_err(|e| self.failed(e))
                })?;
                if let (Some(checksum), Some(sum)) = (checksum, sum) {
                    checksum.compare(&sum.finish(), &w.header.metadata[&t.name]).map_err(damaged)?;
                }
                check(start, len, hash, &format!("{:?}", t.name))?;
                return Ok((hash, fetched));
            }
            let memory = changes().map(|delta| delta.memory(&t.name, len)).max().unwrap_or(0);
            let _taken = budget.take(len.saturating_add(memory));
            let mut bytes = crate::restore::zeroed(len)?;
            lmc::ReadAt::read_exact_at(&source, &mut bytes, start).map_err(unreadable)?;
            if let Some(checksum) = checksum {
                checksum.verify(&bytes, &w.header.metadata[&t.name]).map_err(damaged)?;
            }
            if self.options.verify {
                check(start, len, Hash::of(&bytes), &format!("{:?}", t.name))?;
            }
            for delta in changes() {
                fetched += delta.apply(&t.name, &mut bytes)?;
            }
            lmc::WriteAt::write_all_at(&output, &bytes, offset + t.range.start).map_err(|e| self.failed(e))?;
            Ok((Hash::of(&bytes), fetched))
        };
        let mut extents = vec![(Hash::of(&header), 0, offset)];
        let before = staged.linked_size + staged.written_size;
        each(self.options.threads, tensors.len(), work, |i, (hash, fetched)| {
            let range = &tensors[i].range;
            if !range.is_empty() {
                extents.push((hash, 0, range.end - range.start));
            }
            staged.fetched_size += fetched;
            progress(before + range.end)
        })?;
        let stored = self.finished(&output, &w.name, extents)?;
        staged.written_size += stored.len;
        Ok(stored)
    }
}

/// Reads a part of a file in pieces: `take` has each, and its offset. Returns the hash.
fn hash_of(
    file: &File,
    range: Range<u64>,
    unreadable: impl Fn(io::Error) -> Error,
    mut take: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<Hash> {
    let mut buffer = vec![0; COPY.min(range.end - range.start) as usize];
    let (mut hasher, mut at) = (blake3::Hasher::new(), range.start);
    while at < range.end {
        let part = &mut buffer[..COPY.min(range.end - at) as usize];
        lmc::ReadAt::read_exact_at(file, part, at).map_err(&unreadable)?;
        hasher.update(part);
        take(part, at)?;
        at += part.len() as u64;
    }
    Ok(Hash::finish(&hasher))
}

/// Compares a file of the version before with the hash recorded when it was written.
fn verify(file: &StoredFile, path: &Path) -> Result<()> {
    let unreadable = |e| Error::io(format_args!("{}: cannot read", path.display()), e);
    let (source, mut at) = (file.open(path).map_err(unreadable)?, 0);
    for &(hash, _, len) in &file.extents {
        if hash_of(&source, at..at + len, unreadable, |_, _| Ok(()))? != hash {
            let place = path.display();
            return Err(Error::damaged(format!("{place}: was changed: follow into an empty directory")));
        }
        at += len;
    }
    Ok(())
}

/// Whether a file has the bytes that were written. One that cannot be read has not.
pub(super) fn is_same(file: &StoredFile, path: &Path) -> bool {
    let is_regular = fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() == file.len);
    let Some(local) = is_regular.then(|| File::open(path).ok()).flatten() else { return false };
    let mut at = 0;
    file.extents.iter().all(|&(hash, _, len)| {
        at += len;
        let unreadable = |e| Error::io("cannot read", e);
        hash_of(&local, at - len..at, unreadable, |_, _| Ok(())).is_ok_and(|found| found == hash)
    })
}

/// The metadata of a full version's file without the checksums, which hold for that version alone.
fn kept_metadata(header: &Header) -> BTreeMap<String, String> {
    let kept = header.metadata.iter().filter(|(key, _)| header.tensor(key).is_none());
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The hashes of a file's parts, by their offset and length: of the header, and of each tensor.
fn hashes_by_offset(file: &StoredFile) -> HashMap<(u64, u64), Hash> {
    let mut offset = 0;
    let parts = file.extents.iter().map(|&(hash, _, len): &StoredExtent| {
        offset += len;
        ((offset - len, len), hash)
    });
    parts.collect()
}
