//! Restoring files, tensors and rows of a snapshot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lmc::{Segment, WriteAt};

use crate::chunks::alternatives::Alternatives;
use crate::chunks::catalog::Catalog;
use crate::chunks::cut::MAX_CHUNK;
use crate::chunks::gather::{Gather, Located, Origin, Sink, part};
use crate::chunks::held::{Held, StoredExtent};
use crate::error::{Error, Result};
use crate::format::keys;
use crate::format::manifest::names::check_together;
use crate::format::manifest::shard::{Extent, Ref};
use crate::objects::remote::Remote;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// Its name: a path below the directory to restore to, with slashes. No component is `.` or `..`.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// Its format, as far as recognised: "safetensors", or "raw".
    pub layout: String,
    /// Its tensors and the bytes between them; they cover the file in order.
    pub segments: Vec<Segment>,
}

/// An open snapshot. Any part of it can be read, by several threads at once.
///
/// Everything read is verified against the cryptographic hash recorded when it was saved.
pub struct SnapshotReader {
    remote: Arc<Remote>,
    threads: usize,
    opened: Arc<Opened>,
}

/// What the documents of a snapshot say.
struct Opened {
    catalog: Catalog,
    alternatives: Alternatives,
    snapshot: Snapshot,
    files: Vec<FileInfo>,
    /// The index of each file.
    names: BTreeMap<String, usize>,
    /// The first tensor of each name: index of the file, and of the segment there.
    tensors: HashMap<lmc::layout::Name, (usize, usize)>,
    /// Extents of each file.
    extents: Vec<Vec<Located>>,
}

/// A tensor, or some rows of it, with the buffer for its bytes.
#[derive(Debug)]
pub struct TensorBuffer<'a> {
    /// The name of the tensor.
    pub name: &'a str,
    /// Read only the elements whose first index is in this range; `None` for all.
    pub rows: Option<Range<u64>>,
    /// As long as the bytes to read.
    pub out: &'a mut [u8],
}

impl Store {
    /// Opens a snapshot for reading.
    ///
    /// # Errors
    /// `Store` when requests fail, `Damaged`, `Unsupported` or `Limit` when a shard is invalid.
    pub fn open_snapshot(&self, snapshot: &Snapshot) -> Result<SnapshotReader> {
        self.open_beside(snapshot, &Catalog::default())
    }

    /// [`Self::open_snapshot`], reusing shards that a catalog already has.
    pub(crate) fn open_beside(&self, snapshot: &Snapshot, other: &Catalog) -> Result<SnapshotReader> {
        let catalog = self.remote().wait(Catalog::load_beside(self.remote(), &snapshot.shards, other))?;
        SnapshotReader::new(self.remote().clone(), catalog, Alternatives::new(other), snapshot.clone())
    }
}

impl Opened {
    fn new(catalog: Catalog, alternatives: Alternatives, snapshot: Snapshot) -> Result<Self> {
        catalog.check_segments(&snapshot.shards)?;
        let (files, names, tensors, extents) = Default::default();
        let mut opened = Self { catalog, alternatives, snapshot, files, names, tensors, extents };
        for id in opened.snapshot.shards.clone() {
            let shard = opened.catalog.shard(id)?.clone();
            for file in &shard.files {
                let at = |e: Error| e.at(format_args!("{}: file {:?}", keys::shard(id), file.name));
                let mut offset = 0;
                let listed = opened.catalog.segments(id, file)?;
                let mut segments = Vec::with_capacity(listed.len());
                for s in listed {
                    let s = s.to_lmc(offset)?;
                    offset += s.len;
                    if let Some(name) = &s.name {
                        opened.tensors.entry(name.clone()).or_insert((opened.files.len(), segments.len()));
                    }
                    segments.push(s);
                }
                opened.extents.push(opened.locate(id, &file.extents).map_err(at)?);
                let (name, layout) = (file.name.clone(), file.layout.clone());
                opened.files.push(FileInfo { name, len: file.len, layout, segments });
            }
        }
        check_together(opened.files.iter().map(|f| &f.name[..]))
            .map_err(|why| Error::damaged(format!("step {}: {why}", opened.snapshot.step)))?;
        opened.names = opened.files.iter().enumerate().map(|(i, f)| (f.name.clone(), i)).collect();
        Ok(opened)
    }

    fn locate(&self, shard: crate::format::ids::ShardId, extents: &[Extent]) -> Result<Vec<Located>> {
        let mut offset = 0;
        let located = extents.iter().map(|&Extent(of, set, from, len)| {
            let set = self.catalog.resolve(shard, Ref(of, set))?;
            let raw_len = self.catalog.set(set)?.raw_len;
            if from.checked_add(len).is_none_or(|end| end > raw_len) {
                return Err(Error::damaged("has an extent that no block set holds"));
            }
            self.catalog.chain(set)?;
            offset += len;
            Ok(Located { offset: offset - len, set, from, len })
        });
        located.collect()
    }
}

impl SnapshotReader {
    fn new(remote: Arc<Remote>, catalog: Catalog, alternatives: Alternatives, snapshot: Snapshot) -> Result<Self> {
        Ok(Self { remote, threads: 0, opened: Arc::new(Opened::new(catalog, alternatives, snapshot)?) })
    }

    /// The same snapshot for work that may be given up, as [`Store::cancelled_by`].
    #[must_use]
    pub fn cancelled_by(&self, stop: Arc<AtomicBool>) -> Self {
        Self { remote: Arc::new(self.remote.cancelled_by(stop)), threads: self.threads, opened: self.opened.clone() }
    }

    /// Sets how many threads decode; 0, the default, for one per core.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The snapshot that is read.
    pub fn snapshot(&self) -> &Snapshot {
        &self.opened.snapshot
    }

    /// The files, in the order in which they were saved.
    pub fn files(&self) -> &[FileInfo] {
        &self.opened.files
    }

    /// The file with a name.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn file(&self, name: &str) -> Result<&FileInfo> {
        Ok(&self.opened.files[self.index(name)?])
    }

    /// The files with these names; a directory's name selects all files in it. Each once, in the order of `names`.
    ///
    /// # Errors
    /// `NotFound` when there is neither a file nor a directory of a name.
    pub fn files_of<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<&FileInfo>> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for name in names.iter().map(AsRef::as_ref) {
            let directory = format!("{}/", name.trim_end_matches('/'));
            let in_it =
                self.opened.names.range(directory.clone()..).take_while(|(name, _)| name.starts_with(&directory));
            let mut of_name: Vec<usize> = in_it.map(|(_, &i)| i).collect();
            if of_name.is_empty() {
                of_name.push(self.index(name)?);
            }
            // In the order in which they were saved.
            of_name.sort_unstable();
            found.extend(of_name.into_iter().filter(|&i| seen.insert(i)).map(|i| &self.opened.files[i]));
        }
        Ok(found)
    }

    /// The first tensor with a name, and its file.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn tensor(&self, name: &str) -> Result<(&FileInfo, &Segment)> {
        let (file, s) = self.tensor_number(name)?;
        Ok((&self.opened.files[file], &self.opened.files[file].segments[s]))
    }

    /// Restores a file to a destination that is written at any offset, by several threads at once. `progress` is called with the number of
    /// bytes written so far, and ends the work if it fails.
    ///
    /// # Errors
    /// `NotFound` when there is no such file, `Damaged` when something of it is missing or damaged, `Store` when requests fail, `Io` when
    /// writing does.
    pub fn restore_file(
        &self,
        name: &str,
        dst: &dyn WriteAt,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.restore_file_from(name, &Held::default(), dst, progress).map(|_| ())
    }

    /// [`Self::restore_file`], with block sets that need not be fetched. Returns how many bytes were.
    pub(crate) fn restore_file_from(
        &self,
        name: &str,
        held: &Held<'_>,
        dst: &dyn WriteAt,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let file = self.index(name)?;
        let mut gather = Gather::new();
        gather.add(&self.opened.extents[file], 0..self.opened.files[file].len, |offset, _| offset);
        let put = |at, bytes: &[u8]| dst.write_all_at(bytes, at).map_err(|e| Error::io("cannot write", e));
        gather
            .run(self.origin(), held, &put, progress)
            .map_err(|e| e.at(format_args!("step {}, {name}", self.opened.snapshot.step)))
    }

    /// Reads a file into memory, replacing the contents of `out`.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn read_file(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        let len = self.opened.files[self.index(name)?].len;
        *out = zeroed(len)?;
        self.read_range(name, 0, out)
    }

    /// Fills `out` with the bytes of a file from `offset` on.
    ///
    /// # Errors
    /// `Usage` when the file is shorter; otherwise those of [`Self::restore_file`], and `Limit` when memory runs out.
    pub fn read_range(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
        let file = self.index(name)?;
        let range = self.range(file, offset, out.len())?;
        self.fill([(file, range, out)]).map_err(|e| e.at(format_args!("step {}, {name}", self.opened.snapshot.step)))
    }

    /// Fills buffers with the bytes of files from offsets on, in parallel. Block sets that they share are fetched and
    /// decoded once. After an error the contents of the buffers are unspecified.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn read_ranges<'a>(&self, wanted: impl IntoIterator<Item = (&'a str, u64, &'a mut [u8])>) -> Result<()> {
        let parts = wanted.into_iter().map(|(name, offset, out)| {
            let file = self.index(name)?;
            Ok((file, self.range(file, offset, out.len())?, out))
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        self.fill(parts).map_err(|e| e.at(format_args!("step {}", self.opened.snapshot.step)))
    }

    /// Where the parts of a file end that are best read one by one: what belongs together in a block set, which is fetched and decoded
    /// whole, but at most 16 MiB. They are in order, and the last one ends with the file.
    ///
    /// # Errors
    /// `NotFound` when there is no such file.
    pub fn block_ends(&self, name: &str) -> Result<Vec<u64>> {
        let mut ends: Vec<u64> = Vec::new();
        let (mut start, mut last) = (0, None);
        for e in &self.opened.extents[self.index(name)?] {
            let end = e.offset + e.len;
            match ends.last_mut().filter(|_| last == Some(e.set) && end - start <= MAX_CHUNK) {
                Some(before) => *before = end,
                None if e.len > 0 => {
                    (start, last) = (e.offset, Some(e.set));
                    ends.push(end);
                }
                None => {}
            }
        }
        Ok(ends)
    }

    /// The range of `len` bytes of a file, which is given by index.
    fn range(&self, file: usize, offset: u64, len: usize) -> Result<Range<u64>> {
        let file = &self.opened.files[file];
        let end = offset.checked_add(len as u64).filter(|&end| end <= file.len);
        let missing = || Error::usage(format!("{len} bytes from byte {offset} are not in a file of {}", file.len));
        Ok(offset..end.ok_or_else(missing)?)
    }

    /// Reads a tensor's elements as in the file: little-endian, the last dimension contiguous.
    ///
    /// # Errors
    /// Those of [`Self::tensor`] and [`Self::read_range`].
    pub fn read_tensor(&self, name: &str) -> Result<Vec<u8>> {
        let (_, s) = self.tensor(name)?;
        let mut out = zeroed(s.len)?;
        self.read_tensors([TensorBuffer { name, rows: None, out: &mut out }])?;
        Ok(out)
    }

    /// Reads rows of a tensor: the elements whose first index is in `rows`.
    ///
    /// # Errors
    /// Those of [`Self::read_tensor`], and `Usage` when the tensor has no such rows, or when they do not begin and end at a byte boundary.
    pub fn read_rows(&self, name: &str, rows: Range<u64>) -> Result<Vec<u8>> {
        let (_, s) = self.tensor(name)?;
        let bytes = row_range(s, &rows)?;
        let mut out = zeroed(bytes.end - bytes.start)?;
        self.read_tensors([TensorBuffer { name, rows: Some(rows), out: &mut out }])?;
        Ok(out)
    }

    /// Reads tensors, or rows of them, into buffers, in parallel. Block sets that they share are fetched and decoded once: this is how to
    /// load a model. After an error the contents of the buffers are unspecified.
    ///
    /// # Errors
    /// Those of [`Self::read_rows`], and `Usage` when a buffer does not have the length of its tensor or rows.
    pub fn read_tensors<'a>(&self, wanted: impl IntoIterator<Item = TensorBuffer<'a>>) -> Result<()> {
        let mut parts = Vec::new();
        for TensorBuffer { name, rows, out } in wanted {
            let (file, s) = self.tensor_number(name)?;
            let s = &self.opened.files[file].segments[s];
            let bytes = match &rows {
                Some(rows) => row_range(s, rows)?,
                None => 0..s.len,
            };
            if bytes.end - bytes.start != out.len() as u64 {
                return Err(Error::usage(format!(
                    "{} bytes of the tensor {name:?} do not fit a buffer of {}",
                    bytes.end - bytes.start,
                    out.len()
                )));
            }
            parts.push((file, s.offset + bytes.start..s.offset + bytes.end, out));
        }
        self.fill(parts).map_err(|e| e.at(format_args!("step {}", self.opened.snapshot.step)))
    }

    /// A tensor, and where its bytes are: offsets count from its first one.
    pub(crate) fn tensor_extents(&self, name: &str) -> Result<(&Segment, Vec<Located>)> {
        let (file, s) = self.tensor_number(name)?;
        let s = &self.opened.files[file].segments[s];
        Ok((s, part(&self.opened.extents[file], s.offset, s.len)))
    }

    /// Runs [`Gather`] on the block sets of this snapshot.
    pub(crate) fn gather<T: Send>(
        &self,
        gather: Gather<T>,
        held: &Held<'_>,
        sink: &impl Sink<T>,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let done = gather.run(self.origin(), held, sink, progress);
        done.map_err(|e| e.at(format_args!("step {}", self.opened.snapshot.step)))
    }

    fn origin(&self) -> Origin<'_> {
        let Opened { catalog, alternatives, .. } = &*self.opened;
        Origin { remote: &self.remote, catalog, alternatives, threads: self.threads }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.opened.catalog
    }

    /// The extents of a file, by its index.
    pub(crate) fn stored_extents(&self, file: usize) -> Result<Vec<StoredExtent>> {
        self.stored_part(file, 0..self.opened.files[file].len)
    }

    /// The extents of a range of a file, by its index.
    pub(crate) fn stored_part(&self, file: usize, range: Range<u64>) -> Result<Vec<StoredExtent>> {
        let part = part(&self.opened.extents[file], range.start, range.end - range.start);
        part.iter().map(|e| Ok((self.opened.catalog.set(e.set)?.raw_hash, e.from, e.len))).collect()
    }

    /// The extents of each file.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (&FileInfo, &[Located])> {
        self.opened.files.iter().zip(self.opened.extents.iter().map(|e| &e[..]))
    }

    fn tensor_number(&self, name: &str) -> Result<(usize, usize)> {
        self.opened.tensors.get(&name.into()).copied().ok_or_else(|| {
            Error::not_found(format!("the snapshot of step {} has no tensor {name:?}", self.opened.snapshot.step))
        })
    }

    fn index(&self, name: &str) -> Result<usize> {
        self.opened.names.get(name).copied().ok_or_else(|| {
            Error::not_found(format!("the snapshot of step {} has no file {name:?}", self.opened.snapshot.step))
        })
    }

    /// Fills buffers with ranges of files, which are given by index and have the buffers' lengths.
    pub(crate) fn fill<'a>(&self, parts: impl IntoIterator<Item = (usize, Range<u64>, &'a mut [u8])>) -> Result<()> {
        let mut gather = Gather::new();
        for (file, range, mut rest) in parts {
            gather.add(&self.opened.extents[file], range, |_, len| {
                rest.split_off_mut(..len).expect("extents cover the range")
            });
        }
        let copy = |to: &mut [u8], bytes: &[u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        gather.run(self.origin(), &Held::default(), &copy, &mut |_| Ok(()))?;
        Ok(())
    }
}

impl std::fmt::Debug for SnapshotReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotReader").field("snapshot", &self.opened.snapshot).finish_non_exhaustive()
    }
}

/// Byte range of rows within their tensor.
fn row_range(s: &Segment, rows: &Range<u64>) -> Result<Range<u64>> {
    s.bytes_of_rows(rows).ok_or_else(|| {
        Error::usage(format!(
            "the tensor {:?} of shape {:?} has no rows {}..{} of whole bytes",
            s.name.as_deref().unwrap_or_default(),
            s.shape,
            rows.start,
            rows.end
        ))
    })
}

/// Allocates `len` bytes, or fails.
pub(crate) fn zeroed(len: u64) -> Result<Vec<u8>> {
    let too_much = || Error::limit(format!("out of memory for {len} bytes; restore to a file instead"));
    let len = usize::try_from(len).map_err(|_| too_much())?;
    Vec::<u8>::new().try_reserve_exact(len).map_err(|_| too_much())?;
    Ok(vec![0; len])
}
