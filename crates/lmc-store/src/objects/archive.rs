//! A store in one file, for transfer or backup: a tar archive of its objects (`docs/store.md` §10). Archives are read in place, like any
//! store, and are untrusted input.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use lmc::ReadAt;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as E, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as ObjectResult,
};

use crate::error::{Error, Result};
use crate::format::ids::Hash;
use crate::objects::remote::Remote;

/// Magic of the first header, and its offset.
const MAGIC: (u64, &[u8; 5]) = (257, b"ustar");
/// The end of every archive: two empty headers.
const END: u64 = 1024;
/// Bytes fetched per request while an object is copied into or out of an archive.
const CHUNK: u64 = 1 << 23;

/// The objects in an archive.
#[derive(Debug)]
pub(crate) struct Archive {
    path: PathBuf,
    file: Arc<File>,
    /// Where each object is in the file.
    objects: BTreeMap<Path, Range<u64>>,
    modified: SystemTime,
}

impl Archive {
    /// Opens an archive and indexes its objects.
    ///
    /// # Errors
    /// `Io` when it cannot be read, `Damaged` when it is not an archive or is truncated.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let at = |e: Error| e.at(path.display());
        let mut file = File::open(&path).map_err(|e| at(Error::io("cannot open the archive", e)))?;
        let modified = file.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let objects = scan(&mut file).map_err(at)?;
        Ok(Self { path, file: Arc::new(file), objects, modified })
    }

    fn meta(&self, location: &Path) -> ObjectResult<(ObjectMeta, Range<u64>)> {
        let Some(range) = self.objects.get(location) else {
            let source = "no such object in the archive".into();
            return Err(E::NotFound { path: location.to_string(), source });
        };
        let size = range.end - range.start;
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: self.modified.into(),
            size,
            e_tag: None,
            version: None,
        };
        Ok((meta, range.clone()))
    }
}

/// The places of the files in an archive. Reads only the header of each.
fn scan(file: &mut File) -> Result<BTreeMap<Path, Range<u64>>> {
    let failed = |e: io::Error| match e.kind() {
        // The `tar` crate's error for input that is not an archive. Its message quotes the input.
        io::ErrorKind::Other | io::ErrorKind::InvalidData => Error::damaged("is not a tar archive"),
        _ => Error::io("cannot read the archive", e),
    };
    let cut_short = || Error::damaged("the archive is truncated: it does not end with two empty headers");
    let mut magic = [0; MAGIC.1.len()];
    match file.read_exact_at(&mut magic, MAGIC.0) {
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(failed(e)),
        _ if magic != *MAGIC.1 => {
            return Err(Error::damaged("is a file, not a store: use lmc list, or name the directory of a store"));
        }
        _ => {}
    }
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let mut end = [1; END as usize];
    let last = size.checked_sub(END).ok_or_else(cut_short)?;
    file.read_exact_at(&mut end, last).map_err(failed)?;
    file.rewind().map_err(failed)?;
    let mut objects = BTreeMap::new();
    let mut archive = tar::Archive::new(&*file);
    // Raw names: a store never uses a name that needs an extended header.
    for entry in archive.entries_with_seek().map_err(failed)?.raw(true) {
        let entry = entry.map_err(failed)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let start = entry.raw_file_position();
        let range = start..start.checked_add(entry.size()).filter(|&end| end <= last).ok_or_else(cut_short)?;
        let name = entry.path_bytes();
        let name = std::str::from_utf8(&name).map_err(|_| Error::damaged("has a file name that is not UTF-8"))?;
        let name = name.strip_prefix("./").unwrap_or(name);
        let key =
            Path::parse(name).map_err(|e| Error::damaged(format!("has the file {name:?}, which is not a key: {e}")))?;
        if objects.insert(key, range).is_some() {
            return Err(Error::damaged(format!("has two files named {name:?}")));
        }
    }
    if end != [0; END as usize] {
        return Err(cut_short());
    }
    Ok(objects)
}

impl fmt::Display for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Archive({})", self.path.display())
    }
}

fn read_only<T>() -> ObjectResult<T> {
    Err(E::NotSupported { source: "an archive is read-only: import it into a store".into() })
}

#[async_trait]
impl ObjectStore for Archive {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> ObjectResult<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> ObjectResult<Box<dyn MultipartUpload>> {
        read_only()
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> ObjectResult<GetResult> {
        let (meta, place) = self.meta(location)?;
        options.check_preconditions(&meta)?;
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| E::Generic { store: "Archive", source };
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|e| failed(e.into()))?,
            None => 0..meta.size,
        };
        let (start, end) = match options.head {
            true => (0, 0),
            false => (place.start + range.start, place.start + range.end),
        };
        // In chunks: the reader may reject the size, which an untrusted archive can set to anything.
        let read = stream::try_unfold((self.file.clone(), start), move |(file, at)| async move {
            if at >= end {
                return Ok(None);
            }
            let next = end.min(at + CHUNK);
            let task = tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; (next - at) as usize];
                file.read_exact_at(&mut bytes, at).map(|()| (Bytes::from(bytes), (file, next)))
            });
            task.await.map_err(|e| failed(e.into()))?.map(Some).map_err(|e| failed(e.into()))
        });
        let payload = GetResultPayload::Stream(read.boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
    }

    fn delete_stream(&self, _: BoxStream<'static, ObjectResult<Path>>) -> BoxStream<'static, ObjectResult<Path>> {
        stream::once(async { read_only() }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, ObjectResult<ObjectMeta>> {
        let under = |key: &&Path| prefix.is_none_or(|p| *key != p && key.prefix_matches(p));
        let found: Vec<_> = self.objects.keys().filter(under).map(|key| self.meta(key).map(|m| m.0)).collect();
        stream::iter(found).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> ObjectResult<ListResult> {
        Err(E::NotSupported { source: "an archive has no directories to list".into() })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> ObjectResult<()> {
        read_only()
    }
}

/// Hashes of ranges of an object, by offset and length.
pub(crate) type Hashes = BTreeMap<(u64, u64), Hash>;

/// An archive being written.
pub(crate) struct Writer<W: io::Write> {
    tar: tar::Builder<W>,
    /// Modification time of all files, in seconds since 1970.
    time: u64,
}

impl<W: io::Write> Writer<W> {
    pub(crate) fn new(to: W, time: u64) -> Self {
        Self { tar: tar::Builder::new(to), time }
    }

    /// Adds an object that is in memory.
    pub(crate) fn add(&mut self, key: &Path, bytes: &[u8]) -> Result<()> {
        self.append(key, bytes.len() as u64, bytes)
    }

    /// Adds an object of another store in chunks, and compares its contents with their hashes.
    pub(crate) fn add_from(&mut self, remote: &Remote, key: &Path, len: u64, sets: &Hashes) -> Result<()> {
        let checks = sets.iter().map(|(&(start, len), &hash)| Check { range: start..start + len, hash, hasher: None });
        self.append(key, len, Object { remote, key, at: 0, len, chunk: Bytes::new(), checks: checks.collect() })
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.tar.into_inner().and_then(|mut to| to.flush()).map_err(write_error)
    }

    fn append(&mut self, key: &Path, len: u64, from: impl Read) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_path(key.as_ref()).map_err(write_error)?;
        header.set_size(len);
        header.set_mode(0o644);
        header.set_mtime(self.time);
        header.set_cksum();
        self.tar.append(&header, from).map_err(write_error)
    }
}

fn write_error(e: io::Error) -> Error {
    match e.downcast::<Error>() {
        Ok(e) => e,
        Err(e) => Error::io("cannot write the archive", e),
    }
}

/// An object as a stream of bytes.
struct Object<'a> {
    remote: &'a Remote,
    key: &'a Path,
    at: u64,
    len: u64,
    chunk: Bytes,
    /// Ranges still to be checked, by offset.
    checks: Vec<Check>,
}

/// A range of an object, with its expected hash.
struct Check {
    range: Range<u64>,
    hash: Hash,
    /// The hasher, once bytes of the range were read.
    hasher: Option<Box<blake3::Hasher>>,
}

impl Object<'_> {
    /// Fetches the next chunk.
    fn fetch(&mut self) -> Result<()> {
        let next = self.at..self.len.min(self.at + CHUNK);
        self.chunk = self.remote.wait(self.remote.get_range(self.key, next.clone())).map_err(Error::or_damaged)?;
        self.at = next.end;
        let begun = self.checks.partition_point(|c| c.range.start < next.end);
        for Check { range, hash, hasher } in &mut self.checks[..begun] {
            let here = range.start.max(next.start)..range.end.min(next.end);
            let hasher = hasher.get_or_insert_default();
            hasher.update(&self.chunk[(here.start - next.start) as usize..(here.end - next.start) as usize]);
            if range.end <= next.end && Hash::finish(hasher) != *hash {
                let Range { start, end } = range;
                return Err(Error::damaged(format!(
                    "{}: bytes {start}..{end} do not have the hash of what was written",
                    self.key
                )));
            }
        }
        self.checks.retain(|c| c.range.end > next.end);
        Ok(())
    }
}

impl Read for Object<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() && self.at < self.len {
            self.fetch().map_err(io::Error::other)?;
        }
        let n = self.chunk.len().min(buf.len());
        buf[..n].copy_from_slice(&self.chunk.split_to(n));
        Ok(n)
    }
}
