//! Writes the snapshots of a store as versions for receivers that know no store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lmc::layout::safetensors;

use super::encoding::{checksum, encode};
use super::index::{self, FILE, INDEX, Kind, Own};
use super::model::{Model, read_header};
use super::shards::Writer;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{Hash, Step};
use crate::objects::files::{is_missing, lock, remove_if_there, sync, sync_file};
use crate::objects::ordered::each;
use crate::ops::restore::zeroed;
use crate::records::snapshot::{At, Snapshot};
use crate::records::store::Store;

const LOCK: &str = ".lmc-publish.lock";
/// A version that is being written.
const STAGING: &str = ".lmc-staging";
/// Another name of its directory.
const RENAMED: &str = ".lmc-staging.new";
/// Bytes of tensors that are read at once, but for longer ones: block sets that they share are decoded once.
const AT_ONCE: u64 = 64 << 20;

/// Options of writing versions for other receivers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct InterchangeOptions {
    /// The length that a file of deltas reaches before another one is begun, in bytes. It is kept in memory.
    pub file_size: u64,
    /// Threads; 0 for one per core.
    pub threads: usize,
}

impl Default for InterchangeOptions {
    fn default() -> Self {
        Self { file_size: 256 << 20, threads: 0 }
    }
}

/// A directory of versions that is written from a store: each is a full checkpoint, or the changes since the one before
/// it. One process at a time may write it.
///
/// ```no_run
/// use lmc_store::interchange::Interchange;
/// use lmc_store::{Location, Store};
/// let store = Store::open(&"runs/9".parse::<Location>()?, Default::default())?;
/// let mut versions = Interchange::open("/shared/versions".as_ref(), Default::default())?;
/// for snapshot in store.snapshots()? {
///     if versions.last().is_none_or(|last| snapshot.step > last) {
///         versions.write(&store, &snapshot, &mut |_| Ok(()))?;
///     }
/// }
/// # Ok::<(), lmc_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Interchange {
    directory: PathBuf,
    options: InterchangeOptions,
    last: Option<(Step, Own)>,
    /// Locked as long as it is open.
    _lock: File,
}

/// A version that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Its number: the step of the snapshot.
    pub step: Step,
    /// The version that it is a delta against; `None` for a full one.
    pub base: Option<Step>,
    /// Its directory.
    pub path: PathBuf,
    /// Tensors in it.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub total_size: u64,
    /// Bytes of them that changed.
    pub changed_size: u64,
    /// Bytes of its files but the index.
    pub written_size: u64,
}

impl Interchange {
    /// Opens a directory, and creates it if missing. Removes unfinished versions of an earlier process.
    ///
    /// # Errors
    /// `Usage` when the last version in it was not written by lmc; `Exists` when another process writes it; `Damaged`, `Io`.
    pub fn open(directory: &Path, options: InterchangeOptions) -> Result<Self> {
        let failed = |e| Error::io(format_args!("{}: cannot write versions", directory.display()), e);
        fs::create_dir_all(directory).map_err(failed)?;
        let real = directory.canonicalize().map_err(failed)?;
        sync(real.parent().unwrap_or(&real)).map_err(failed)?;
        let Some(lock) = lock(&directory.join(LOCK)).map_err(failed)? else {
            return Err(Error::exists(format!("{}: another process writes versions to it", directory.display())));
        };
        check_rename(directory)?;
        // A version that an earlier process renamed is the last one only if the rename is durable.
        sync(&real).map_err(failed)?;
        let last = match index::versions(directory).map_err(failed)?.last() {
            None => None,
            Some(&step) => {
                let version = directory.join(index::directory_of(step));
                let own = Own::parse(&fs::read(version.join(INDEX)).map_err(failed)?);
                let own = own.map_err(|e| e.at(version.display()))?.ok_or_else(|| {
                    Error::usage(format!("{}: was not written by lmc: name another directory", version.display()))
                })?;
                Some((step, own))
            }
        };
        Ok(Self { directory: directory.to_owned(), options, last, _lock: lock })
    }

    /// Checks that the versions in the directory are of the run whose store this is: that it has the last one's snapshot, or later ones.
    ///
    /// # Errors
    /// `Usage` when they are of another run; those of [`Store::find`].
    pub fn check(&self, store: &Store) -> Result<()> {
        let Some((last, own)) = &self.last else { return Ok(()) };
        let find = |at| match store.find(at) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        };
        if find(At::Step(*last))?.is_some_and(|s| s.id == own.snapshot)
            || find(At::Latest)?.is_some_and(|s| s.step > *last)
        {
            return Ok(());
        }
        Err(Error::usage(format!(
            "{}: holds versions of another run, up to {last}, whose snapshot {} the store has not: name another directory",
            self.directory.display(),
            own.snapshot
        )))
    }

    /// The last version in the directory.
    pub fn last(&self) -> Option<Step> {
        self.last.as_ref().map(|(step, _)| *step)
    }

    /// Writes a snapshot as the next version: a delta against the last one, if that is in the store, undamaged, and has the same tensors, and
    /// a full one otherwise. It appears whole, by a rename, when all of it is on disk; only then the next one is a delta against it.
    ///
    /// A delta has the weights alone. A full version has the JSON and text files beside them, too.
    ///
    /// # Errors
    /// `Usage` when the snapshot is not later than the last version, or has no safetensors files, or some in directories; those of
    /// [`Store::open_snapshot`] and of reading it; after these another snapshot may be written. `Io`, also when the directory has this version:
    /// open the directory anew then.
    pub fn write(
        &mut self,
        store: &Store,
        snapshot: &Snapshot,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Exported> {
        let step = snapshot.step;
        if let Some((last, _)) = self.last.as_ref().filter(|(last, _)| *last >= step) {
            let place = self.directory.display();
            return Err(Error::usage(format!("{place}: has version {last}, and step {step} is not later")));
        }
        let new = Model::open(store, snapshot, self.options.threads)?;
        let base = self.base(store)?.filter(|(_, base)| base.has_tensors_of(&new));
        let path = self.directory.join(index::directory_of(step));
        let staging = self.directory.join(STAGING);
        let failed = |e| Error::io(format_args!("{}: cannot write", path.display()), e);
        let begin = || remove_if_there(&staging).and_then(|()| fs::create_dir(&staging)).map_err(failed);
        begin()?;
        let len = |range: Range<u64>| range.end - range.start;
        let total_size = new.tensors.keys().map(|name| len(new.place(name).1)).sum();
        let (tensors, changed_size, written_size) = (new.tensors.len(), total_size, 0);
        let full = Exported { step, base: None, path: path.clone(), tensors, total_size, changed_size, written_size };
        let own_of_full = Own { snapshot: snapshot.id, files: BTreeMap::new() };
        let (mut exported, mut own) = (full.clone(), own_of_full.clone());
        let delta = base.map(|(of, base)| {
            exported.base = Some(of);
            self.write_delta(&new, &base, &staging, &mut exported, &mut own, progress)
        });
        let written = match delta {
            Some(Ok(written)) => Ok(written),
            Some(Err(e)) if e.kind() != ErrorKind::Damaged => Err(e),
            // The base may be damaged in the store.
            _ => {
                (exported, own) = (full, own_of_full);
                begin().and_then(|()| self.write_full(&new, &staging, &mut exported, &mut own, progress))
            }
        };
        let done = written.and_then(|weight_map| {
            let kind = exported.base.map_or(Kind::Full, |base| Kind::Delta { version: step, base });
            let index = index::index(kind, total_size, &weight_map, &own);
            let failed = |e| Error::io(format_args!("{}: cannot write", exported.path.display()), e);
            create(&staging.join(INDEX), &index).map_err(failed)?;
            sync(&staging).map_err(failed)?;
            check_written(&staging, &own)?;
            // Fails if it exists and is not empty: nothing is replaced.
            fs::rename(&staging, &exported.path).map_err(failed)?;
            sync(&self.directory).map_err(failed)
        });
        if let Err(e) = done {
            _ = remove_if_there(&staging);
            return Err(e);
        }
        self.last = Some((step, own));
        Ok(exported)
    }

    /// The last version, as it is in the store, if it is there.
    fn base(&self, store: &Store) -> Result<Option<(Step, Model)>> {
        let Some((step, own)) = &self.last else { return Ok(None) };
        let found = store.find(At::Step(*step)).and_then(|s| match s.id == own.snapshot {
            true => Model::open(store, &s, self.options.threads).map(Some),
            false => Ok(None),
        });
        match found {
            Ok(base) => Ok(base.map(|base| (*step, base))),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn write_delta(
        &self,
        new: &Model,
        base: &Model,
        staging: &Path,
        exported: &mut Exported,
        own: &mut Own,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<BTreeMap<String, String>> {
        let InterchangeOptions { file_size, threads } = self.options;
        let mut changed = vec![];
        for name in new.tensors.keys() {
            if new.content(name)? != base.content(name)? {
                changed.push(&name[..]);
            }
        }
        let mut writer = Writer::new(staging, file_size);
        (exported.tensors, exported.changed_size) = (0, 0);
        let mut done = 0;
        for names in batches(&changed, |name| new.place(name).1) {
            let (now, before) = (read(new, names)?, read(base, names)?);
            let encode =
                |i: usize| Ok(encode(&now[i], &before[i])?.map(|(frame, changed)| (frame, changed, checksum(&now[i]))));
            each(threads, names.len(), encode, |i, encoded| {
                done += now[i].len() as u64;
                progress(done)?;
                let Some((frame, changed, sum)) = encoded else { return Ok(()) };
                exported.tensors += 1;
                exported.changed_size += changed;
                writer.add(names[i], frame, sum)
            })?;
        }
        let written = writer.finish()?;
        (own.files, exported.written_size) = (written.files, written.size);
        Ok(written.weight_map)
    }

    fn write_full(
        &self,
        new: &Model,
        staging: &Path,
        exported: &mut Exported,
        own: &mut Own,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<BTreeMap<String, String>> {
        let threads = self.options.threads;
        let failed = |e| Error::io(format_args!("{}: cannot write", staging.display()), e);
        let mut weight_map = BTreeMap::new();
        let mut done = 0;
        for (&file, header) in &new.files {
            let name = &new.reader.files()[file].name;
            let names: Vec<&str> = header.tensors.iter().filter_map(|t| t.name.as_deref()).collect();
            let tensors = || header.tensors.iter().filter_map(|t| Some((t.name.as_deref()?, t.dtype?, &t.shape[..])));
            let header_of =
                |metadata: &BTreeMap<_, _>| safetensors::header(tensors(), Some(metadata)).map_err(Error::codec);
            // Checksums have one length: the header is written again when they are known.
            let mut metadata: BTreeMap<_, _> = header.metadata.iter().flatten().cloned().collect();
            metadata.extend(names.iter().map(|name| (String::from(*name), checksum(&[]))));
            let len = header_of(&metadata)?.len() as u64;
            let mut output = File::create_new(staging.join(name)).map_err(failed)?;
            io::Seek::seek(&mut output, io::SeekFrom::Start(len)).map_err(failed)?;
            for names in batches(&names, |name| new.place(name).1) {
                let tensors = read(new, names)?;
                each(
                    threads,
                    names.len(),
                    |i| Ok(checksum(&tensors[i])),
                    |i, sum| {
                        metadata.insert(names[i].to_owned(), sum);
                        done += tensors[i].len() as u64;
                        progress(done)?;
                        io::Write::write_all(&mut output, &tensors[i]).map_err(failed)
                    },
                )?;
            }
            let header = header_of(&metadata)?;
            let written = lmc::WriteAt::write_all_at(&output, &header, 0);
            written.and_then(|()| sync_file(&output, staging)).map_err(failed)?;
            own.files.insert(name.clone(), Hash::of(&header));
            weight_map.extend(names.iter().map(|of| (String::from(*of), name.clone())));
        }
        for name in new.others.iter().filter(|name| *name != INDEX) {
            let mut bytes = vec![];
            new.reader.read_file(name, &mut bytes)?;
            create(&staging.join(name), &bytes).map_err(failed)?;
            own.files.insert(name.clone(), Hash::of(&bytes));
            exported.written_size += bytes.len() as u64;
        }
        exported.written_size += done;
        Ok(weight_map)
    }
}

/// Fails unless a version's directory has the files that its index names, as they were written: another process may have removed them
/// where locks do not hold, as on some mounts.
fn check_written(staging: &Path, own: &Own) -> Result<()> {
    for (name, hash) in &own.files {
        let path = staging.join(name);
        let failed = |e| Error::io(format_args!("{}: cannot read", path.display()), e);
        let bytes = match name.ends_with(FILE) {
            true => {
                let file = File::open(&path).map_err(failed)?;
                let len = file.metadata().map_err(failed)?.len();
                let read = |buf: &mut [u8], at| lmc::ReadAt::read_exact_at(&file, buf, at).map_err(failed);
                read_header(len, read).map_err(|e| e.at(path.display()))?.0
            }
            false => fs::read(&path).map_err(failed)?,
        };
        if Hash::of(&bytes) != *hash {
            return Err(Error::damaged(format!("{}: was changed by another process: write it again", path.display())));
        }
    }
    Ok(())
}

/// Parts of a list of tensors that are read at once.
fn batches<'n>(names: &'n [&'n str], place: impl Fn(&str) -> Range<u64>) -> Vec<&'n [&'n str]> {
    let (mut batches, mut first, mut size) = (vec![], 0, 0);
    for (i, name) in names.iter().enumerate() {
        let range = place(name);
        let len = range.end - range.start;
        if size + len > AT_ONCE && i > first {
            batches.push(&names[first..i]);
            (first, size) = (i, 0);
        }
        size += len;
    }
    if first < names.len() {
        batches.push(&names[first..]);
    }
    batches
}

/// Reads tensors.
fn read(model: &Model, names: &[&str]) -> Result<Vec<Vec<u8>>> {
    let places: Vec<_> = names.iter().map(|name| model.place(name)).collect();
    let mut buffers = places.iter().map(|(_, range)| zeroed(range.end - range.start)).collect::<Result<Vec<_>>>()?;
    model.reader.fill(places.into_iter().zip(&mut buffers).map(|((file, range), out)| (file, range, &mut out[..])))?;
    Ok(buffers)
}

/// Fails where no version could get its name, before one is written. Removes an unfinished one.
fn check_rename(directory: &Path) -> Result<()> {
    let [staging, renamed] = [STAGING, RENAMED].map(|name| directory.join(name));
    let checked = [&staging, &renamed].into_iter().try_for_each(|path| remove_if_there(path));
    let checked = checked.and_then(|()| fs::create_dir(&staging)).and_then(|()| {
        let moved = fs::rename(&staging, &renamed);
        fs::remove_dir(if moved.is_ok() { &renamed } else { &staging })?;
        moved
    });
    checked.map_err(|e| {
        let place = directory.display();
        match is_missing(&e) {
            true => Error::unsupported(format!(
                "{place}: its file system cannot rename directories, and versions appear so: write them to another file system"
            )),
            false => Error::io(format_args!("{place}: cannot write versions"), e),
        }
    })
}

/// Writes a file that is on disk when it returns.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    io::Write::write_all(&mut file, bytes)?;
    sync_file(&file, path)
}
