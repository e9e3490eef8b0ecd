//! Random access: tensors, rows and byte ranges of a file, reading only the blocks that hold them.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use crate::api::decompress::Buffers;
use crate::block::decode::BlockDecoder;
use crate::block::head::BlockHead;
use crate::file::access::{Access, Cache};
use crate::file::open::{self, BlockInfo, Opened};
use crate::format::bases::BaseInfo;
use crate::refs::base::{Base, resolve};
use crate::refs::budget::{Budget, ReadWithin};
use crate::refs::work::Work;
use crate::refs::workers::workers;
use crate::settings::limits::DecodeLimits;
use crate::settings::options::DecompressOptions;
use lmc_kernels::isa::Isa;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::{ReadAt, zeroed};
use lmc_layout::segment::Segment;
use lmc_layout::{Layout, Start};
use lmc_pool::Workers;

/// An open file with random access, for several threads at once.
///
/// Every block that is read is checked; the content hash is not, which needs the whole file.
///
/// A delta can be opened and listed alone; to read from it, it needs its bases ([`Self::with_bases`]). A reader is a [`ReadAt`]
/// over the raw bytes, and so can be compressed anew, or be the base of another delta ([`Base::lmc`]).
///
/// ```
/// use lmc::{CompressOptions, DecompressOptions, Dtype, Reader};
/// let o = CompressOptions::default().with_dtype(Dtype::U16);
/// let file = lmc::compress(&[1, 0, 2, 0, 3, 0], &o)?;
/// let reader = Reader::open(&file[..], &DecompressOptions::default())?;
/// let mut two = [0; 2];
/// reader.read_range(2, &mut two)?;
/// assert_eq!(two, [2, 0]);
/// assert_eq!(reader.read_rows("", 1..3)?, [2, 0, 3, 0]);
/// # Ok::<(), lmc::Error>(())
/// ```
pub struct Reader<'b, R> {
    src: R,
    opened: Opened,
    /// Parsed on first use: reading ranges does not need them.
    segments: OnceLock<Segments>,
    /// Whether there may be memory for segments that the index leaves out.
    finds_segments: bool,
    /// In the file's order; empty until they are given.
    bases: Vec<Base<'b>>,
    cache: Cache,
    isa: Isa,
    threads: usize,
    /// Started on first use: many files may be open at once.
    workers: OnceLock<Workers<BlockDecoder>>,
    max_work: Option<u64>,
    /// Buffers for records and for partly requested blocks.
    jobs: Mutex<Vec<Buffers>>,
}

struct Segments {
    /// In order.
    all: Vec<Segment>,
    /// Indices of the tensors, sorted by name.
    by_name: Vec<usize>,
}

#[derive(Default)]
struct Job<'a> {
    block: usize,
    /// Requested bytes of the block, and their destinations.
    parts: Vec<(Range<usize>, &'a mut [u8])>,
    buffers: Buffers,
}

impl<'b, R: ReadAt> Reader<'b, R> {
    /// Opens a file: reads its header, trailer and index.
    ///
    /// # Errors
    /// `Damaged` or `Unsupported` if `src` is not a whole `.lmc` file that this version can read, `Limit` when it is
    /// larger than the limits, `Usage` when the options do not fit this machine.
    pub fn open(src: R, o: &DecompressOptions) -> Result<Self> {
        let isa = o.isa.map_or_else(Isa::detect, Ok)?;
        let opened = Opened::open(&src, &o.limits)?;
        let (segments, bases, cache) = (OnceLock::new(), vec![], Cache::default());
        let finds_segments = o.limits.max_index_size >= DecodeLimits::default().max_index_size;
        let (threads, workers, max_work, jobs) = (o.threads, OnceLock::new(), o.limits.max_work, Mutex::default());
        Ok(Self { src, opened, segments, finds_segments, bases, cache, isa, threads, workers, max_work, jobs })
    }

    /// Gives a delta its bases, in any order. Their hashes are checked against those that the file names.
    ///
    /// # Errors
    /// `Base` when one is missing, is another file or is not needed; `Io` or `Base` when one cannot be read.
    pub fn with_bases(mut self, bases: Vec<Base<'b>>) -> Result<Self> {
        self.bases = resolve(&self.opened.sources.bases, &bases, self.workers())?;
        // Without them, segments may not have been found.
        self.segments = OnceLock::new();
        Ok(self)
    }

    fn workers(&self) -> &Workers<BlockDecoder> {
        let isa = self.isa;
        self.workers.get_or_init(|| workers(self.threads, move || BlockDecoder::new(isa)))
    }

    /// The bases that a delta needs to be restored; none for any other file.
    pub fn bases(&self) -> &[BaseInfo] {
        &self.opened.sources.bases
    }

    /// Size of the raw file in bytes.
    pub fn raw_size(&self) -> u64 {
        self.opened.index.raw_size
    }

    /// Size of the compressed file in bytes.
    pub fn compressed_size(&self) -> u64 {
        self.opened.size
    }

    /// Hash of the raw file, as [`Summary`](crate::Summary) has it.
    pub fn content_hash(&self) -> [u8; 16] {
        self.opened.index.content_hash
    }

    /// The format of the raw file, as far as it was recognised: "safetensors", or "raw".
    pub fn layout(&self) -> &str {
        &self.opened.index.layout
    }

    /// The program that made the file, with its version and level.
    pub fn writer(&self) -> &str {
        &self.opened.index.writer
    }

    /// The names of the features that a decoder of the file must support, as its header has them: "ranges of bases", "ranges of the file
    /// itself", "grids". A file written as a stream may name more than its blocks need.
    pub fn required_features(&self) -> impl Iterator<Item = &'static str> {
        self.opened.features.names()
    }

    /// The segments of the raw file, in order; they cover it without gaps.
    ///
    /// An index leaves them out where they would take a notable part of the file, as very long names of tensors do. They are then found in
    /// the raw bytes, as far as these can be read (a delta needs its bases), and if
    /// [`DecodeLimits::max_index_size`](crate::DecodeLimits::max_index_size) is not below its default. Otherwise all bytes are opaque.
    pub fn segments(&self) -> &[Segment] {
        &self.taken_apart().all
    }

    fn taken_apart(&self) -> &Segments {
        self.segments.get_or_init(|| {
            let mut all = self.opened.index.segments.unpack();
            if all.iter().all(|s| s.dtype.is_none()) {
                all = self.found_segments().unwrap_or(all);
            }
            let mut by_name: Vec<usize> = (0..all.len()).filter(|&i| all[i].name.is_some()).collect();
            by_name.sort_by_key(|&i| &all[i].name);
            Segments { all, by_name }
        })
    }

    /// The segments of the layout that the index names, by the raw bytes.
    fn found_segments(&self) -> Option<Vec<Segment>> {
        if !self.finds_segments || self.raw_size() == 0 || !Layout::is_in_the_bytes(self.layout()) {
            return None;
        }
        let found = lmc_layout::detect(&mut Start::new(self, self.raw_size(), "the file"), None).ok()?;
        (found.name == self.layout()).then(|| found.covering(self.raw_size()).into_owned())
    }

    /// The tensor of this name; the first one if there are several.
    pub fn tensor(&self, name: &str) -> Option<&Segment> {
        let Segments { all, by_name } = self.taken_apart();
        let name_of = |i: usize| all[i].name.as_deref().expect("it is a tensor");
        let first = *by_name.get(by_name.partition_point(|&i| name_of(i) < name))?;
        (name_of(first) == name).then(|| &all[first])
    }

    /// Fills `out` with the raw bytes from `offset` on.
    ///
    /// # Errors
    /// `Usage` when the range ends after the file, `Base` when the file is a delta without its bases, `Damaged` when one of its blocks is
    /// damaged, `Io` when reading fails.
    pub fn read_range(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read(offset, out, None)
    }

    /// Reads several ranges of raw bytes, in any order: each slice is filled from its offset on. Every block is decoded once, all of them
    /// in parallel: use this to load many tensors.
    ///
    /// # Errors
    /// Those of [`Self::read_range`]. After an error the contents of the slices are unspecified.
    pub fn read_ranges<'o>(&self, ranges: impl IntoIterator<Item = (u64, &'o mut [u8])>) -> Result<()> {
        self.read_ranges_if(ranges, &|| Ok(()))
    }

    /// [`Self::read_ranges`], until `check` refuses to go on, which is called for each block.
    ///
    /// # Errors
    /// That of `check`, and those of [`Self::read_ranges`].
    pub fn read_ranges_if<'o>(
        &self,
        ranges: impl IntoIterator<Item = (u64, &'o mut [u8])>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.read_all(ranges, None, check)
    }

    /// Reads a tensor: its elements as the raw file has them, little-endian, the last dimension contiguous.
    ///
    /// # Errors
    /// Those of [`Self::read_range`], `Usage` when there is no such tensor, `Limit` when there is no memory for it.
    pub fn read_tensor(&self, name: &str) -> Result<Vec<u8>> {
        let t = self.find(name)?;
        let mut out = zeroed(t.len).map_err(|e| e.in_tensor(name))?;
        self.read(t.offset, &mut out, Some(name))?;
        Ok(out)
    }

    /// Reads a tensor into `out`, which must have exactly its length.
    ///
    /// # Errors
    /// Those of [`Self::read_tensor`], and `Usage` when `out` has another length.
    pub fn read_tensor_into(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let t = self.find(name)?;
        if out.len() as u64 != t.len {
            let e = Error::usage(format!("the output has room for {} bytes, and the tensor has {}", out.len(), t.len));
            return Err(e.in_tensor(name));
        }
        self.read(t.offset, out, Some(name))
    }

    /// Reads rows of a tensor: the elements whose first index is in `rows`.
    ///
    /// # Errors
    /// Those of [`Self::read_tensor`], and `Usage` when the tensor has no such rows, or when its elements have fewer
    /// than 8 bits and the rows do not begin and end with a byte.
    pub fn read_rows(&self, name: &str, rows: Range<u64>) -> Result<Vec<u8>> {
        let t = self.find(name)?;
        let usage = |m: String| Err(Error::usage(m).in_tensor(name));
        let Some(bytes) = t.bytes_of_rows(&rows) else {
            let (start, end) = (rows.start, rows.end);
            return usage(match t.shape.first() {
                None => "a tensor without dimensions has no rows".into(),
                Some(all) if start > end || end > *all => {
                    format!("rows {start}..{end} are not in a tensor of {all} rows")
                }
                Some(_) => format!("rows {start}..{end} do not begin and end with a byte"),
            });
        };
        let mut out = zeroed(bytes.end - bytes.start).map_err(|e| e.in_tensor(name))?;
        self.read(t.offset + bytes.start, &mut out, Some(name))?;
        Ok(out)
    }

    /// The places of the blocks, in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = BlockInfo> {
        (0..self.opened.blocks()).map(|i| self.opened.block(i))
    }

    /// The place of a block, and its head; nothing else of the block is read.
    pub(crate) fn block_head(&self, i: u64) -> Result<(BlockInfo, BlockHead)> {
        let Some(n) = usize::try_from(i).ok().filter(|&n| n < self.opened.blocks()) else {
            return Err(Error::usage(format!("there is no block {i}: the file has {}", self.opened.blocks())));
        };
        let b = self.opened.block(n);
        let head = open::read_block_head(&self.src, &self.opened.sources, &b).map_err(|e| self.opened.locate(e, n))?;
        Ok((b, head))
    }

    fn find(&self, name: &str) -> Result<&Segment> {
        self.tensor(name).ok_or_else(|| Error::usage("the file has no such tensor").in_tensor(name))
    }

    fn read(&self, offset: u64, out: &mut [u8], tensor: Option<&str>) -> Result<()> {
        self.read_all([(offset, out)], tensor, &|| Ok(()))
    }

    fn read_all<'o>(
        &self,
        ranges: impl IntoIterator<Item = (u64, &'o mut [u8])>,
        tensor: Option<&str>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let work = Work::new(self.max_work, 0);
        let mut parts = Vec::new();
        for (offset, mut rest) in ranges {
            if offset.checked_add(rest.len() as u64).is_none_or(|end| end > self.raw_size()) {
                let (len, size) = (rest.len(), self.raw_size());
                return Err(Error::usage(format!(
                    "{len} bytes from byte {offset} are not in a file of {size} raw bytes"
                )));
            }
            if rest.is_empty() {
                continue;
            }
            work.ask(rest.len() as u64);
            let mut block = self.opened.block_at(offset);
            let mut from = offset - self.opened.block(block).raw_offset;
            while !rest.is_empty() {
                let len = (self.opened.block(block).raw_len - from).min(rest.len() as u64) as usize;
                let out = rest.split_off_mut(..len).expect("it has as many");
                parts.push((block, from as usize..from as usize + len, out));
                (block, from) = (block + 1, 0);
            }
        }
        // A block of several ranges is decoded once.
        parts.sort_by_key(|&(block, ..)| block);
        let (workers, access) = (self.workers(), self.access()?);
        let blocks = parts.len();
        let mut parts = parts.into_iter().peekable();
        let mut jobs: Vec<Job<'_>> = Vec::new();
        jobs.resize_with(workers.in_flight().min(blocks.max(1)), Job::default);
        {
            let mut free = self.jobs.lock().expect("no panic while it is held");
            jobs.iter_mut().for_each(|j| j.buffers = free.pop().unwrap_or_default());
        }
        let read = workers.ordered(
            &mut jobs,
            |job| {
                let Some(&(block, ..)) = parts.peek() else { return Ok(None) };
                job.block = block;
                job.parts.clear();
                while let Some((_, part, out)) = parts.next_if(|&(b, ..)| b == block) {
                    job.parts.push((part, out));
                }
                let b = self.opened.block(block);
                Ok(Some((b.record_len + b.raw_len) as usize))
            },
            |decoder, job| self.read_block(decoder, &access, &work, job),
            |job, done| {
                check()?;
                done.map_err(|e| {
                    let e = if let Some(name) = tensor { e.in_tensor(name) } else { e };
                    self.opened.locate(e, job.block)
                })
            },
        );
        let mut free = self.jobs.lock().expect("no panic while it is held");
        free.extend(jobs.into_iter().map(|j| j.buffers));
        free.truncate(workers.in_flight());
        read
    }

    fn access(&self) -> Result<Access<'_>> {
        let Self { src, opened, bases, cache, .. } = self;
        Ok(Access { src, opened, bases, workers: self.workers(), cache })
    }

    fn read_block(
        &self,
        decoder: &mut BlockDecoder,
        access: &Access<'_>,
        work: &Work,
        job: &mut Job<'_>,
    ) -> Result<()> {
        let Buffers { record, raw } = &mut job.buffers;
        let len = self.opened.block(job.block).raw_len as usize;
        if let [(part, out)] = &mut job.parts[..]
            && part.len() == len
        {
            return access.decode(decoder, job.block, record, out, work);
        }
        raw.resize(len, 0);
        access.decode(decoder, job.block, record, raw, work)?;
        for (part, out) in &mut job.parts {
            out.copy_from_slice(&raw[part.clone()]);
        }
        Ok(())
    }
}

/// Raw bytes, decoded on the calling thread. The last blocks are cached: sequential reads decode every block once.
impl<R: ReadAt> ReadAt for Reader<'_, R> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match offset.checked_add(buf.len() as u64) {
            Some(end) if end <= self.raw_size() => {
                let work = Work::new(self.max_work, buf.len() as u64);
                self.access().and_then(|access| access.read(offset, buf, &work)).map_err(io::Error::from)
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.raw_size())
    }
}

impl<'a> Base<'a> {
    /// A compressed base: an open `.lmc` file. A delta must have its own bases ([`Reader::with_bases`]).
    pub fn lmc<R: ReadAt + Send + 'a>(reader: Reader<'a, R>) -> Self {
        let reader = Arc::new(reader);
        let (raw_size, hash) = (reader.raw_size(), reader.content_hash());
        Self::compressed(reader.clone(), raw_size, reader.layout(), reader.segments(), hash)
    }
}

impl<R: ReadAt + Send> ReadWithin for Reader<'_, R> {
    fn read_within(&self, offset: u64, buf: &mut [u8], budget: Budget<'_>) -> Result<()> {
        match offset.checked_add(buf.len() as u64) {
            Some(end) if end <= self.raw_size() => self.access()?.read_within(offset, buf, budget),
            _ => Err(Error::usage("a range is not in the file")),
        }
    }
}

impl<R> std::fmt::Debug for Reader<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("layout", &self.opened.index.layout).finish_non_exhaustive()
    }
}
