//! Restoring: files, tensors and rows of a snapshot.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use lmc::{Segment, WriteAt};

use crate::catalog::{Catalog, SetId};
use crate::chain::{self, ChainDecoder};
use crate::error::{Error, Result};
use crate::layout;
use crate::manifest::part::{Extent, Ref};
use crate::ordered;
use crate::remote::Remote;
use crate::store::Snapshot;

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// Its name, without directories.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// Its format, as far as it was recognised: "safetensors", or "raw".
    pub layout: String,
    /// Its tensors, and what is between them; they cover it in order.
    pub segments: Vec<Segment>,
}

/// Where a range of a file is.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// Where it starts in the file.
    pub(crate) offset: u64,
    pub(crate) set: SetId,
    /// Where it starts in the set.
    pub(crate) from: u64,
    pub(crate) len: u64,
}

/// An open snapshot, of which any part can be read, by several threads at once.
///
/// Everything that is read is compared with the cryptographic hash that it had when it was saved.
pub struct SnapshotReader {
    remote: Arc<Remote>,
    catalog: Catalog,
    snapshot: Snapshot,
    files: Vec<FileInfo>,
    /// For each file, in order.
    extents: Vec<Vec<Located>>,
    threads: usize,
}

/// Block sets that are fetched and decoded side by side, if there are fewer cores: most of the time they wait for the store.
const SIDE_BY_SIDE: usize = 8;

/// A block set, and where its bytes go.
struct Job<T> {
    set: SetId,
    /// Bytes of the set, and their place.
    takes: Vec<(Range<usize>, T)>,
}

impl SnapshotReader {
    pub(crate) fn new(remote: Arc<Remote>, catalog: Catalog, snapshot: Snapshot) -> Result<Self> {
        let mut reader = Self { remote, catalog, snapshot, files: vec![], extents: vec![], threads: 0 };
        for id in reader.snapshot.parts.clone() {
            let part = reader.catalog.part(id)?.clone();
            for file in &part.files {
                let at = |e: Error| e.at(format_args!("{}: file {:?}", layout::part(id), file.name));
                if reader.files.iter().any(|f| f.name == file.name) {
                    return Err(at(Error::damaged("is in another part of the snapshot, too")));
                }
                let mut offset = 0;
                let mut segments = Vec::with_capacity(file.segments.len());
                for s in &file.segments {
                    segments.push(s.to_lmc(offset)?);
                    offset += s.len;
                }
                reader.extents.push(reader.locate(id, &file.extents).map_err(at)?);
                let (name, layout) = (file.name.clone(), file.layout.clone());
                reader.files.push(FileInfo { name, len: file.len, layout, segments });
            }
        }
        Ok(reader)
    }

    fn locate(&self, part: crate::ids::PartId, extents: &[Extent]) -> Result<Vec<Located>> {
        let mut offset = 0;
        let located = extents.iter().map(|&Extent(of, set, from, len)| {
            let set = self.catalog.resolve(part, Ref(of, set))?;
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

    /// Sets how many threads decode; 0, which is what it begins with, for as many as the machine has.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// What it is the contents of.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The files, in the order in which they were saved.
    pub fn files(&self) -> &[FileInfo] {
        &self.files
    }

    /// The file of a name.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn file(&self, name: &str) -> Result<&FileInfo> {
        Ok(&self.files[self.index(name)?])
    }

    /// The first tensor of a name, and the file that it is in.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn tensor(&self, name: &str) -> Result<(&FileInfo, &Segment)> {
        let found =
            self.files.iter().find_map(|f| f.segments.iter().find(|s| s.name.as_deref() == Some(name)).map(|s| (f, s)));
        found.ok_or_else(|| {
            Error::not_found(format!("the snapshot of step {} has no tensor {name:?}", self.snapshot.step))
        })
    }

    /// Restores a file to a destination that is written at any offset, by several threads at once. `progress` is called with the number of bytes
    /// that were written so far.
    ///
    /// # Errors
    /// `NotFound` when there is no such file, `Damaged` when something of it is missing or damaged, `Store` when requests fail, `Io` when writing does.
    pub fn restore_file(&self, name: &str, dst: &dyn WriteAt, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let file = self.index(name)?;
        let put = |at, bytes: &[u8]| dst.write_all_at(bytes, at).map_err(|e| Error::io("cannot write", e));
        self.read(file, 0..self.files[file].len, |offset, _| offset, put, progress)
    }

    /// Reads a file into memory; `out` holds nothing else afterwards.
    ///
    /// # Errors
    /// Those of [`Self::read_range`].
    pub fn read_file(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        let len = self.files[self.index(name)?].len;
        *out = zeroed(len)?;
        self.read_range(name, 0, out)
    }

    /// Reads the bytes of a file from `offset` on that fill `out`.
    ///
    /// # Errors
    /// `Usage` when the file does not have them; otherwise those of [`Self::restore_file`], and `Limit` when there is no memory.
    pub fn read_range(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
        let file = self.index(name)?;
        let len = self.files[file].len;
        let Some(end) = offset.checked_add(out.len() as u64).filter(|&end| end <= len) else {
            return Err(Error::usage(format!("{} bytes from byte {offset} are not in a file of {len}", out.len())));
        };
        let mut rest = out;
        let copy = |to: &mut [u8], bytes: &[u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        self.read(
            file,
            offset..end,
            |_, len| rest.split_off_mut(..len).expect("extents cover the range"),
            copy,
            &mut |_| {},
        )
    }

    /// Reads a tensor: its elements as the file has them, little-endian, the last dimension contiguous.
    ///
    /// # Errors
    /// Those of [`Self::tensor`] and [`Self::read_range`].
    pub fn read_tensor(&self, name: &str) -> Result<Vec<u8>> {
        let (file, s) = self.tensor(name)?;
        let mut out = zeroed(s.len)?;
        self.read_range(&file.name, s.offset, &mut out)?;
        Ok(out)
    }

    /// Reads rows of a tensor: the elements whose first index is in `rows`.
    ///
    /// # Errors
    /// Those of [`Self::read_tensor`], and `Usage` when the tensor has no such rows, or when they do not begin and end with a byte.
    pub fn read_rows(&self, name: &str, rows: Range<u64>) -> Result<Vec<u8>> {
        let (file, s) = self.tensor(name)?;
        let bytes = row_range(s, &rows).ok_or_else(|| {
            Error::usage(format!(
                "the tensor {name:?} of shape {:?} has no rows {}..{} of whole bytes",
                s.shape, rows.start, rows.end
            ))
        })?;
        let mut out = zeroed(bytes.end - bytes.start)?;
        self.read_range(&file.name, s.offset + bytes.start, &mut out)?;
        Ok(out)
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// For each file, where its bytes are.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (&FileInfo, &[Located])> {
        self.files.iter().zip(self.extents.iter().map(|e| &e[..]))
    }

    fn index(&self, name: &str) -> Result<usize> {
        self.files.iter().position(|f| f.name == name).ok_or_else(|| {
            Error::not_found(format!("the snapshot of step {} has no file {name:?}", self.snapshot.step))
        })
    }

    /// Reads a range of a file. `place` says where the bytes from an offset on go, in order; `put` takes them there, in any order.
    fn read<T: Send>(
        &self,
        file: usize,
        range: Range<u64>,
        mut place: impl FnMut(u64, usize) -> T,
        put: impl Fn(T, &[u8]) -> Result<()> + Sync,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let extents = &self.extents[file];
        let mut jobs: Vec<Job<T>> = Vec::new();
        let mut known: HashMap<SetId, usize> = HashMap::new();
        let first = extents.partition_point(|e| e.offset + e.len <= range.start);
        for e in extents[first..].iter().take_while(|e| e.offset < range.end) {
            let start = e.offset.max(range.start);
            let end = (e.offset + e.len).min(range.end);
            let from = (e.from + (start - e.offset)) as usize;
            let len = (end - start) as usize;
            let job = *known.entry(e.set).or_insert_with(|| {
                jobs.push(Job { set: e.set, takes: vec![] });
                jobs.len() - 1
            });
            jobs[job].takes.push((from..from + len, place(start, len)));
        }
        let jobs: Vec<Mutex<Option<Job<T>>>> = jobs.into_iter().map(|j| Mutex::new(Some(j))).collect();
        let threads = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let mut done = 0;
        ordered::run(
            threads.max(SIDE_BY_SIDE),
            jobs.len(),
            ChainDecoder::new,
            |decoder, i| {
                let job = jobs[i].lock().unwrap_or_else(PoisonError::into_inner).take().expect("a job is done once");
                let chain = self.catalog.chain(job.set)?;
                let stored = self.remote.wait(chain::fetch(&self.remote, &self.catalog, &chain))?;
                let (raw, _) = decoder.decode(&self.catalog, &chain, &stored, false)?;
                let mut n = 0;
                for (range, to) in job.takes {
                    n += range.len() as u64;
                    put(to, &raw[range])?;
                }
                Ok(n)
            },
            |_, n| {
                done += n;
                progress(done);
                Ok(())
            },
        )
        .map_err(|e| e.at(format_args!("step {}, {}", self.snapshot.step, self.files[file].name)))
    }
}

impl std::fmt::Debug for SnapshotReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotReader").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}

/// Bytes of rows within their tensor; `None` if it does not have them, or if they do not begin and end with a byte.
fn row_range(s: &Segment, rows: &Range<u64>) -> Option<Range<u64>> {
    let all = *s.shape.first()?;
    if rows.start > rows.end || rows.end > all {
        return None;
    }
    if s.len == 0 {
        return Some(0..0);
    }
    // The length in bits is a multiple of the number of rows, and 128 bits hold every product.
    let row_bits = u128::from(s.len) * 8 / u128::from(all);
    let byte = |row: u64| {
        let bits = row_bits * u128::from(row);
        (bits % 8 == 0).then_some((bits / 8) as u64)
    };
    Some(byte(rows.start)?..byte(rows.end)?)
}

/// Memory for `len` bytes, or an error where there is none.
fn zeroed(len: u64) -> Result<Vec<u8>> {
    let too_much = || Error::limit(format!("there is no memory for {len} bytes; restore to a file instead"));
    let len = usize::try_from(len).map_err(|_| too_much())?;
    Vec::<u8>::new().try_reserve_exact(len).map_err(|_| too_much())?;
    Ok(vec![0; len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc::Dtype;

    #[test]
    fn rows_are_whole_bytes() {
        let tensor = |dtype: Dtype, shape: &[u64], len| {
            Segment::new(Some("t".into()), Some(dtype), shape.into(), 0, len).unwrap()
        };
        let t = tensor(Dtype::Bf16, &[5, 3], 30);
        assert_eq!(row_range(&t, &(1..3)), Some(6..18));
        assert_eq!(row_range(&t, &(5..5)), Some(30..30));
        #[allow(clippy::reversed_empty_ranges, reason = "it is one that a caller may give")]
        let reversed = 3..2;
        assert_eq!((row_range(&t, &(4..6)), row_range(&t, &reversed)), (None, None));
        assert_eq!(row_range(&tensor(Dtype::F32, &[], 4), &(0..0)), None);
        assert_eq!(row_range(&tensor(Dtype::F32, &[9, 0], 0), &(2..7)), Some(0..0));
        let halves = tensor(Dtype::F4, &[4, 3], 6);
        assert_eq!((row_range(&halves, &(0..2)), row_range(&halves, &(0..1))), (Some(0..3), None));
    }
}
