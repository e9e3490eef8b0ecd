//! Bases: the files that deltas are made from.

use std::sync::{Arc, OnceLock};

use crate::format::bases::BaseInfo;
use crate::format::checksum::{ContentHash, Digest, LEAF, digest, leaf_lens, leaves, read_leaves};
use crate::refs::budget::{Budget, BudgetPool, ReadWithin};
use crate::refs::reread::Reread;
use crate::refs::work::Work;
use crate::refs::workers::workers;
use lmc_layout::error::{Error, ErrorKind, Result};
use lmc_layout::io::{ReadAt, scratch};
use lmc_layout::segment::Segment;
use lmc_layout::{Layout, Start};
use lmc_pool::Workers;

/// Bytes that one thread hashes at a time.
const HASHED_AT_ONCE: u64 = 4 * LEAF as u64;

/// A file that deltas are made from: the raw bytes of an earlier snapshot.
///
/// A delta names its bases by the hash of their raw bytes. It makes no difference whether a base is given as raw bytes,
/// as a `.lmc` file, or as a delta of yet another base, here or when the delta is restored.
///
/// ```
/// use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor};
/// let old: Vec<u8> = (0..100_000u32).flat_map(|i| (i as f32).sqrt().to_le_bytes()).collect();
/// let new: Vec<u8> = (0..100_000u32).flat_map(|i| (i as f32 * 1.00001).sqrt().to_le_bytes()).collect();
/// let bases = [Base::new(&old[..])?];
/// let (mut plain, mut delta, mut restored) = (Vec::new(), Vec::new(), Vec::new());
/// let mut compressor = Compressor::new(&CompressOptions::default())?;
/// compressor.compress(&new, &[], &mut plain)?;
/// compressor.compress(&new, &bases, &mut delta)?;
/// assert!(delta.len() < plain.len());
/// Decompressor::new(&DecompressOptions::default())?.decompress(&delta, &bases, &mut restored)?;
/// assert_eq!(restored, new);
/// # Ok::<(), lmc::Error>(())
/// ```
///
/// Clones share their source and its hash.
#[derive(Clone)]
pub struct Base<'a> {
    source: Arc<dyn ReadAt + Send + 'a>,
    /// The same source, if it must be decoded.
    compressed: Option<Arc<dyn ReadWithin + 'a>>,
    raw_size: u64,
    /// Set on first use, for a file that was plain bytes to the version that compressed it.
    contents: Arc<OnceLock<Contents>>,
    hash: Arc<OnceLock<Hash>>,
    /// Digests of the bytes that one call decoded blocks from before the hash was known.
    seen: Arc<Reread>,
    /// Limit of the call that the base is for, if it is for a single one.
    work: Option<Arc<Work>>,
    name: String,
    optional: bool,
    beside: bool,
}

/// The hash of a base.
#[derive(Clone)]
struct Hash {
    digest: Digest,
    /// The digests of the bytes that it was computed of, if they may change: not for immutable memory, nor for compressed bases.
    leaves: Option<Arc<Reread>>,
}

impl From<Digest> for Hash {
    fn from(digest: Digest) -> Self {
        Self { digest, leaves: None }
    }
}

/// The contents of a base.
struct Contents {
    layout: String,
    /// They cover the base.
    segments: Vec<Segment>,
}

impl From<(&Layout, u64)> for Contents {
    fn from((layout, size): (&Layout, u64)) -> Self {
        Self { layout: layout.name.to_owned(), segments: layout.covering(size).into_owned() }
    }
}

impl<'a> Base<'a> {
    /// An uncompressed base: a slice, a file.
    ///
    /// # Errors
    /// `Io` when its beginning cannot be read.
    pub fn new(raw: impl ReadAt + Send + 'a) -> Result<Self> {
        let raw_size = raw.size().map_err(|e| Error::io("cannot get the size of the base", e))?;
        let layout = lmc_layout::detect(&mut Start::new(&raw, raw_size, "the base"), None)?;
        Ok(Self::with_layout(raw, raw_size, layout))
    }

    /// Bytes whose segments the caller knows: part of a file, or tensors in memory.
    ///
    /// # Errors
    /// `Usage` when the segments do not cover the bytes, `Io` when their size is unknown.
    pub fn of_segments(raw: impl ReadAt + Send + 'a, segments: &[Segment]) -> Result<Self> {
        let raw_size = raw.size().map_err(|e| Error::io("cannot get the size of the base", e))?;
        Ok(Self::with_layout(raw, raw_size, Layout::of_segments(segments, raw_size)?))
    }

    fn with_layout(raw: impl ReadAt + Send + 'a, raw_size: u64, layout: Layout) -> Self {
        Self {
            source: Arc::new(raw),
            compressed: None,
            raw_size,
            contents: Arc::new(OnceLock::from(Contents::from((&layout, raw_size)))),
            hash: Arc::default(),
            seen: Arc::default(),
            work: None,
            name: String::new(),
            optional: false,
            beside: false,
        }
    }

    /// A base of `raw_size` bytes that is decoded when it is read.
    pub(crate) fn compressed(
        reader: Arc<impl ReadAt + ReadWithin + 'a>,
        raw_size: u64,
        layout: &str,
        segments: &[Segment],
        hash: Digest,
    ) -> Self {
        let contents = match layout {
            lmc_layout::RAW if segments.iter().all(|s| s.dtype.is_none()) => OnceLock::new(),
            layout => OnceLock::from(Contents { layout: layout.to_owned(), segments: segments.to_vec() }),
        };
        Self {
            raw_size,
            contents: Arc::new(contents),
            hash: Arc::new(OnceLock::from(Hash::from(hash))),
            source: reader.clone(),
            compressed: Some(reader),
            seen: Arc::default(),
            work: None,
            name: String::new(),
            optional: false,
            beside: false,
        }
    }

    /// Sets the content hash of the raw bytes (see [`Summary`](crate::Summary)), which is not checked. Otherwise it is
    /// computed once for all clones, which reads all of the base.
    #[must_use]
    pub fn with_hash(mut self, content_hash: [u8; 16]) -> Self {
        self.hash = Arc::new(OnceLock::from(Hash::from(content_hash)));
        self
    }

    /// Sets the name of the file, which deltas record and errors mention.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Makes the base optional: it is no error if a delta does not need it.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Makes it data of the snapshot that is compressed, and not of an earlier one: steps of an optimizer predict second moments and
    /// weights from the averages after them (`docs/format.md` §3.9), and nothing else
    /// is predicted from it.
    #[must_use]
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Whether the base is [`Self::beside`] what is compressed.
    pub(crate) fn is_beside(&self) -> bool {
        self.beside
    }

    /// The base for one call, which decodes at most `work`.
    pub(crate) fn for_call(&self, work: &Arc<Work>) -> Self {
        Self { work: Some(work.clone()), ..self.clone() }
    }

    /// Whether the base is [`Self::optional`].
    pub fn is_optional(&self) -> bool {
        self.optional
    }

    /// Size of the raw bytes.
    pub fn raw_size(&self) -> u64 {
        self.raw_size
    }

    /// The name of the file; empty if none was set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The format of the raw bytes, as in [`Reader::layout`](crate::Reader::layout).
    pub fn layout(&self) -> &str {
        &self.contents().layout
    }

    /// The segments of the raw bytes, in order; they cover them without gaps.
    pub fn segments(&self) -> &[Segment] {
        &self.contents().segments
    }

    /// Its format may have become known since it was compressed. A base that cannot be read counts as plain bytes; the
    /// error comes when its bytes are needed.
    fn contents(&self) -> &Contents {
        self.contents.get_or_init(|| {
            let found = lmc_layout::detect(&mut Start::new(&*self.source, self.raw_size, "the base"), None);
            let layout = found.unwrap_or_else(|_| lmc_layout::raw());
            Contents::from((&layout, self.raw_size))
        })
    }

    /// Hash of the raw bytes. It is computed by `threads` threads (0 for as many as the machine has) unless it is known.
    ///
    /// # Errors
    /// `Io` when reading fails.
    pub fn content_hash(&self, threads: usize) -> Result<[u8; 16]> {
        match self.hash.get() {
            Some(h) => Ok(h.digest),
            None => self.hash_by(&workers(threads, || ())),
        }
    }

    /// Hash of the raw bytes, computed by `workers` unless it is known.
    pub(crate) fn hash_by<S: Send>(&self, workers: &Workers<S>) -> Result<Digest> {
        if let Some(h) = self.hash.get() {
            return Ok(h.digest);
        }
        let computed = match self.source.as_slice() {
            Some(raw) => self.hash_leaves(workers, |offset, len, _| Ok(leaves(&raw[offset as usize..][..len])))?,
            None => self.hash_leaves(workers, |offset, len, leaf| {
                let mut next = offset;
                leaf_lens(len)
                    .map(|len| {
                        let start = next;
                        next += len as u64;
                        if let Some(seen) = self.seen.digest_of(start, len) {
                            return Ok(seen);
                        }
                        let leaf = scratch(leaf, len);
                        self.read(start, leaf)?;
                        Ok(digest(leaf))
                    })
                    .collect()
            })?,
        };
        Ok(self.hash.get_or_init(|| computed).digest)
    }

    /// The hash over the leaf digests that `hashed` returns for ranges of whole leaves.
    fn hash_leaves<S: Send>(
        &self,
        workers: &Workers<S>,
        hashed: impl Fn(u64, usize, &mut Vec<u8>) -> Result<Vec<Digest>> + Sync,
    ) -> Result<Hash> {
        #[derive(Default)]
        struct Job {
            offset: u64,
            len: usize,
            buf: Vec<u8>,
        }
        let mut jobs = Vec::new();
        jobs.resize_with(workers.in_flight(), Job::default);
        let mut next = 0;
        let mut hash = ContentHash::default();
        let noted = self.source.as_slice().is_none().then(Reread::default);
        workers.ordered(
            &mut jobs,
            |job| {
                if next == self.raw_size {
                    return Ok(None);
                }
                job.offset = next;
                job.len = (self.raw_size - next).min(HASHED_AT_ONCE) as usize;
                next += job.len as u64;
                Ok(Some(job.len))
            },
            |_, job| hashed(job.offset, job.len, &mut job.buf),
            |job, leaves| {
                let leaves = leaves?;
                leaves.iter().for_each(|l| hash.push(l));
                if let Some(noted) = &noted {
                    noted.note(job.offset, leaf_lens(job.len).zip(leaves));
                }
                Ok(())
            },
        )?;
        Ok(Hash { digest: hash.finish(), leaves: noted.map(Arc::new) })
    }

    /// Whether its bytes are decoded when they are read.
    pub(crate) fn is_compressed(&self) -> bool {
        self.compressed.is_some()
    }

    /// Whether the format is unknown: the base is a single range of bytes.
    pub(crate) fn is_raw(&self) -> bool {
        self.layout() == lmc_layout::RAW
    }

    /// The source of the raw bytes.
    pub(crate) fn source(&self) -> &(dyn ReadAt + Send + 'a) {
        &*self.source
    }

    /// Fills `buf` with raw bytes.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_within(offset, buf, None)
    }

    /// [`Self::read`] for a block: decoding a compressed base counts against the block's budget.
    pub(crate) fn read_within(&self, offset: u64, buf: &mut [u8], budget: Option<Budget<'_>>) -> Result<()> {
        let read = match (&self.compressed, budget, &self.work) {
            (Some(c), Some(budget), _) => c.read_within(offset, buf, budget).map_err(std::io::Error::other),
            (Some(c), None, Some(work)) => {
                let pool = BudgetPool::new();
                c.read_within(offset, buf, pool.budget(work)).map_err(std::io::Error::other)
            }
            // Only decoders have a budget. Encoders know the hash.
            (None, Some(_), _) if self.hash.get().is_none() => self.read_noting(offset, buf),
            _ => self.source.read_exact_at(buf, offset),
        };
        read.map_err(|e| {
            let name = described(&self.name);
            match e.downcast::<Error>() {
                Ok(e) if e.kind() == ErrorKind::Limit => e.after(&format!("cannot read the base{name}: ")),
                Ok(e) => Error::base(format!("cannot read the base{name}: {e}")),
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                    Error::base(format!("the base{name} became shorter while it was read"))
                }
                Err(e) => Error::io(format!("cannot read the base{name}"), e),
            }
        })
    }

    /// Reads, and notes the digests of whole leaves, each while it is in the cache.
    fn read_noting(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let end = offset + buf.len() as u64;
        let start = offset.next_multiple_of(LEAF as u64).min(end);
        let stop = if end == self.raw_size { end } else { end / LEAF as u64 * LEAF as u64 }.max(start);
        let (before, rest) = buf.split_at_mut((start - offset) as usize);
        let (whole, after) = rest.split_at_mut((stop - start) as usize);
        // Python's files take a call for nothing, too.
        let read = |buf: &mut [u8], at| if buf.is_empty() { Ok(()) } else { self.source.read_exact_at(buf, at) };
        read(before, offset)?;
        let digests = read_leaves(whole, |at, leaf| self.source.read_exact_at(leaf, start + at as u64))?;
        self.seen.note(start, leaf_lens(whole.len()).zip(digests));
        read(after, stop)
    }

    /// [`Self::read`] for a delta, which names the base by its hash: the bytes are checked to be those that were hashed.
    pub(crate) fn read_hashed(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(leaves) = self.hash.get().and_then(|h| h.leaves.as_ref()) else { return self.read(offset, buf) };
        leaves.read(offset, buf, |at, to| self.read(at, to)).map_err(|e| {
            if !e.is_changed() {
                return e;
            }
            let name = described(&self.name);
            Error::base(format!("the base{name} changed while it was read: try again when nothing writes to it"))
        })
    }

    /// The bytes, if the base is in memory.
    pub(crate) fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.source.slice_at(offset, len)
    }

    /// The description of this base in a delta.
    pub(crate) fn info<S: Send>(&self, workers: &Workers<S>) -> Result<BaseInfo> {
        Ok(BaseInfo { content_hash: self.hash_by(workers)?, raw_size: self.raw_size, name: self.name.clone() })
    }
}

impl std::fmt::Debug for Base<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut d = f.debug_struct("Base");
        d.field("name", &self.name)
            .field("raw_size", &self.raw_size)
            .field("layout", &self.contents.get().map(|c| &c.layout));
        d.finish_non_exhaustive()
    }
}

/// Finds each base that a file names among those `given`; returns them in the file's order.
///
/// # Errors
/// `Base` when one is missing, or when one is given that is not needed.
pub(crate) fn resolve<'a, S: Send>(
    wanted: &[BaseInfo],
    given: &[Base<'a>],
    workers: &Workers<S>,
) -> Result<Vec<Base<'a>>> {
    if let Some(b) = given.iter().find(|b| wanted.is_empty() && !b.optional) {
        let name = described(&b.name);
        return Err(Error::base(format!("the file is no delta, and needs no base: leave out the base{name}")));
    }
    let mut needed = vec![false; given.len()];
    let mut found = Vec::with_capacity(wanted.len());
    for w in wanted {
        let mut candidates: Vec<usize> = (0..given.len()).filter(|&i| given[i].raw_size == w.raw_size).collect();
        candidates.sort_by_key(|&i| given[i].name != w.name);
        let mut other = None;
        let mut right = None;
        for i in candidates {
            let hash = given[i].hash_by(workers)?;
            if hash == w.content_hash {
                right = Some(i);
                break;
            }
            other.get_or_insert((i, hash));
        }
        let Some(i) = right else { return Err(missing(w, given, other)) };
        needed[i] = true;
        found.push(given[i].clone());
    }
    for (b, _) in given.iter().zip(needed).filter(|(b, needed)| !needed && !b.optional) {
        // It may be a copy of a needed base.
        let same_size = wanted.iter().any(|w| w.raw_size == b.raw_size);
        let hash = if same_size { Some(b.hash_by(workers)?) } else { None };
        if !wanted.iter().any(|w| Some(w.content_hash) == hash && w.raw_size == b.raw_size) {
            let name = described(&b.name);
            let (first, more) = (describe(&wanted[0]), wanted.len() - 1);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return Err(Error::base(format!("the delta was not made from the base{name}, but from {first}{more}")));
        }
    }
    Ok(found)
}

/// Bases that are taken for the right ones until their hashes are compared. Reading them once more for that, before anything is decoded, would
/// take as long as decoding a sparse delta.
pub(crate) struct Presumed<'a> {
    /// The given bases, for one call: digests of bytes that are read before the hashes are known are dropped with them.
    given: Vec<Base<'a>>,
    /// The bases that the file names, in its order.
    pub(crate) found: Vec<Base<'a>>,
}

/// The bases of a file, if there is no choice: one is given for each, and of its size. Bases in immutable memory are hashed before, as are
/// those that must be decoded.
pub(crate) fn presumed<'a>(wanted: &[BaseInfo], given: &[Base<'a>]) -> Option<Presumed<'a>> {
    let is_read = |b: &Base<'_>| b.hash.get().is_none() && b.compressed.is_none() && b.source.as_slice().is_none();
    if wanted.is_empty() || wanted.len() != given.len() || !given.iter().all(is_read) {
        return None;
    }
    // Their hashes are not shared before they are compared: that of another call may be of other bytes than this one reads.
    let for_call = |b: &Base<'a>| Base { seen: Arc::default(), hash: Arc::default(), ..b.clone() };
    let given: Vec<Base<'a>> = given.iter().map(for_call).collect();
    let of_size = |w: &BaseInfo| {
        let mut fitting = given.iter().filter(|b| b.raw_size == w.raw_size);
        fitting.next().filter(|_| fitting.next().is_none()).cloned()
    };
    let found = wanted.iter().map(of_size).collect::<Option<_>>()?;
    Some(Presumed { given, found })
}

impl Presumed<'_> {
    /// Compares the hashes, and keeps them in `given`, which they were made from.
    ///
    /// # Errors
    /// Those of [`resolve`].
    pub(crate) fn check<S: Send>(&self, wanted: &[BaseInfo], given: &[Base<'_>], workers: &Workers<S>) -> Result<()> {
        resolve(wanted, &self.given, workers)?;
        for (of_call, given) in self.given.iter().zip(given) {
            if let Some(hash) = of_call.hash.get() {
                // Another thread may have set it meanwhile.
                _ = given.hash.set(hash.clone());
            }
        }
        Ok(())
    }
}

/// The error of a delta without a base that it needs. `other`: a base of the same size, and its hash.
fn missing(wanted: &BaseInfo, given: &[Base<'_>], other: Option<(usize, Digest)>) -> Error {
    let what = describe(wanted);
    Error::base(match (other, given) {
        (Some((i, hash)), _) => {
            let name = described(&given[i].name);
            format!(
                "the base{name} is another file, or was altered: its content hash is {}, and the delta was made from {what}",
                hex(&hash)
            )
        }
        (None, []) => format!("the file is a delta: give the base that it was made from, {what}"),
        (None, [b]) => {
            let (name, size) = (described(&b.name), b.raw_size);
            format!("the base{name} is another file, of {size} bytes: the delta was made from {what}")
        }
        (None, _) => format!("none of the {} bases is the one that the delta was made from, {what}", given.len()),
    })
}

/// The error of reading a block without the base that it needs.
pub(crate) fn not_given(wanted: &BaseInfo) -> Error {
    missing(wanted, &[], None)
}

/// A description of a base for messages.
pub(crate) fn describe(b: &BaseInfo) -> String {
    let name = if b.name.is_empty() { "a file".to_owned() } else { format!("{:?}", b.name) };
    format!("{name} of {} bytes with content hash {}", b.raw_size, hex(&b.content_hash))
}

/// A name for the middle of a sentence; empty without a name.
fn described(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" {name:?}") }
}

fn hex(hash: &Digest) -> String {
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

/// Adds to the error of a block with ranges that the base may be wrong, unless it is another block's error.
pub(crate) fn or_wrong_base(e: Error) -> Error {
    if e.kind() == ErrorKind::Damaged && e.block().is_none() {
        e.adding(": what the block was predicted from was altered")
    } else {
        e
    }
}
