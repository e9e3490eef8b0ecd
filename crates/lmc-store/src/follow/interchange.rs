//! Following versions that were written for receivers without a store: a full one, and deltas that are applied in order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::staged::{FollowOptions, Staged};
use super::version::StoredFile;
use crate::error::{Error, Result};
use crate::held::StoredExtent;
use crate::ids::{Hash, SaveId, Step};
use crate::interchange::{Chain, Checksum, Full, Header, Source, Start, open_regular};
use crate::ordered::each;
use crate::snapshot::Snapshot;

/// Bytes that are copied at once.
const COPY: u64 = 1 << 20;

/// The newest version, unless it is the one that is there.
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
    /// It is one of the current version's.
    old: Option<StoredFile>,
}

impl Work<'_> {
    /// Writes the files, one tensor per thread at a time. Every changed tensor is verified after each delta.
    pub(super) fn write(
        mut self,
        snapshot: &Snapshot,
        staged: &mut Staged,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<StoredFile>> {
        if self.chain.version != (snapshot.step, snapshot.id) {
            return Err(Error::damaged(format!("version {} was replaced by another one meanwhile", snapshot.step)));
        }
        let (weights, checksum, mut files) = match std::mem::replace(&mut self.chain.start, Start::Current) {
            Start::Current => {
                let weights = self.current()?;
                let others = self.before.iter().filter(|(f, _)| weights.iter().all(|w| w.name != f.name));
                let files = others.map(|(file, path)| self.link(file, path, staged)).collect::<Result<_>>()?;
                (weights, None, files)
            }
            Start::Full(full) => {
                let others = self.beside_weights(&full, staged)?;
                let files = full.files.into_iter();
                let weights = files.map(|(name, path, header)| Weights { name, path, header, old: None }).collect();
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
            progress(staged.linked_size + staged.written_size);
        }
        Ok(files)
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
            Ok(Weights { name: old.name.clone(), path: path.clone(), header, old: Some(old.clone()) })
        });
        weights.collect()
    }

    /// Writes what a full version has beside its weights.
    fn beside_weights(&self, full: &Full, staged: &mut Staged) -> Result<Vec<StoredFile>> {
        let mut files = vec![];
        for (name, path, expected) in &full.others {
            let unreadable = |e| Error::io(format_args!("{}: cannot read", path.display()), e);
            let (source, len) = open_regular(path, true)?;
            let mut file = self.create(name)?;
            let (mut buffer, mut hasher, mut offset) = (vec![0; COPY.min(len) as usize], blake3::Hasher::new(), 0);
            while offset < len {
                let part = &mut buffer[..COPY.min(len - offset) as usize];
                lmc::ReadAt::read_exact_at(&source, part, offset).map_err(unreadable)?;
                hasher.update(part);
                file.write_all(part).map_err(|e| self.failed(e))?;
                offset += part.len() as u64;
            }
            let hash = Hash::finish(&hasher);
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
        let synced = file.sync_all().and_then(|()| StoredFile::of(&self.staging.join(name), name, extents));
        synced.map_err(|e| self.failed(e))
    }

    /// Deltas change only what is there, once.
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
        let linked = fs::create_dir_all(to.parent().unwrap_or(self.staging)).and_then(|()| fs::hard_link(path, &to));
        linked.map_err(|e| self.failed(e))?;
        staged.linked_size += old.len;
        old.linked(&to).ok_or_else(|| Error::damaged(format!("{}: was changed", path.display())))
    }

    /// Writes a file of weights from the one of the base.
    fn rewrite(
        &self,
        w: &Weights,
        checksum: Option<Checksum>,
        staged: &mut Staged,
        progress: &mut dyn FnMut(u64),
    ) -> Result<StoredFile> {
        let unreadable = |e| Error::io(format_args!("{}: cannot read", w.path.display()), e);
        let source = match &w.old {
            Some(old) => old.open(&w.path).map_err(unreadable)?,
            None => open_regular(&w.path, true)?.0,
        };
        let header =
            if w.old.is_some() { w.header.bytes.clone() } else { w.header.with_metadata(&kept_metadata(&w.header)) };
        let output = self.create(&w.name)?;
        lmc::WriteAt::write_all_at(&output, &header, 0).map_err(|e| self.failed(e))?;
        let offset = header.len() as u64;
        let known = w.old.as_ref().filter(|_| self.options.verify).map(hashes_by_offset);
        let tensors = &w.header.tensors;
        let work = |i: usize| {
            let t = &tensors[i];
            let damaged = |why: String| Error::damaged(format!("{}: {:?}: {why}", w.path.display(), t.name));
            let mut bytes = crate::restore::zeroed(t.range.end - t.range.start)?;
            lmc::ReadAt::read_exact_at(&source, &mut bytes, w.header.len() + t.range.start).map_err(unreadable)?;
            let mut fetched = if w.old.is_none() { bytes.len() as u64 } else { 0 };
            if let Some(checksum) = checksum {
                checksum.verify(&bytes, &w.header.metadata[&t.name]).map_err(damaged)?;
            }
            let extent =
                known.as_ref().and_then(|known| known.get(&(w.header.len() + t.range.start, bytes.len() as u64)));
            if extent.is_some_and(|hash| Hash::of(&bytes) != *hash) {
                return Err(damaged("was changed: follow into an empty directory".into()));
            }
            for delta in &self.chain.deltas {
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
            progress(before + range.end);
            Ok(())
        })?;
        let stored = self.finished(&output, &w.name, extents)?;
        staged.written_size += stored.len;
        Ok(stored)
    }
}

/// The metadata of a full version's file without the checksums, which hold for that version alone.
fn kept_metadata(header: &Header) -> BTreeMap<String, String> {
    let kept = header.metadata.iter().filter(|(key, _)| header.tensor(key).is_none());
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The hashes of a file's parts, by their offset and length.
fn hashes_by_offset(file: &StoredFile) -> HashMap<(u64, u64), Hash> {
    let mut offset = 0;
    let whole = file.extents.iter().filter_map(|&(hash, from, len): &StoredExtent| {
        offset += len;
        (from == 0).then_some(((offset - len, len), hash))
    });
    whole.collect()
}
