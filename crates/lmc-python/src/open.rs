//! `lmc.File`: the open file of one process, and reading from it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use lmc::layout::Name;
use lmc::{Base, DecompressOptions, ReadAt, Reader, Segment};
use pyo3::prelude::*;

use crate::bases::{BaseSource, Bases};
use crate::buffer::{Writable, check_disjoint};
use crate::errors::{Failure, Result};
use crate::process::PerProcess;
use crate::source::Source;
use crate::work::{Signals, detached};

/// Bytes of uncompressed files that are read between two looks for a signal.
const PART: usize = 64 << 20;

/// The open file of one process.
pub(crate) struct Open {
    pub(crate) source: Arc<Source>,
    /// As given, including bases of bases; empty if the file needs none.
    pub(crate) bases: Bases,
    pub(crate) contents: Contents,
}

pub(crate) enum Contents {
    Compressed(Box<Reader<'static, Arc<Source>>>),
    /// An uncompressed file: its layout and its segments, and the first of each name.
    Plain(Base<'static>, HashMap<Name, usize>),
}

impl Open {
    pub(crate) fn new(source: Arc<Source>, bases: Bases, o: &DecompressOptions, plain: bool) -> Result<Self> {
        Self::look_into(&source, bases, o, plain).map_err(|e| e.in_file(source.path()))
    }

    fn look_into(source: &Arc<Source>, bases: Bases, o: &DecompressOptions, plain: bool) -> Result<Self> {
        let mut start = [0; lmc::MAGIC.len()];
        let is_compressed = !plain || {
            let long = source.size().is_ok_and(|size| size >= start.len() as u64);
            long && source.read_exact_at(&mut start, 0).is_ok() && start == lmc::MAGIC
        };
        let contents = if is_compressed {
            Contents::Compressed(Box::new(Reader::open(source.clone(), o)?))
        } else {
            let base = Base::new(source.clone())?;
            #[expect(clippy::mutable_key_type, reason = "the text of a name never changes")]
            let mut by_name = HashMap::new();
            for (i, s) in base.segments().iter().enumerate() {
                if let Some(name) = &s.name {
                    by_name.entry(name.clone()).or_insert(i);
                }
            }
            Contents::Plain(base, by_name)
        };
        // A base may have been unused when the file was made: then it is not needed now.
        let (contents, bases) = match contents {
            Contents::Compressed(r) if !r.bases().is_empty() && !bases.0.is_empty() => {
                (Contents::Compressed(Box::new(r.with_bases(bases.link(o.threads)?)?)), bases)
            }
            contents => (contents, Bases::default()),
        };
        Ok(Self { source: source.clone(), bases, contents })
    }

    /// The bases of a delta, as far as they lie beside it, and all of them do. A signal ends the search.
    pub(crate) fn bases_beside(&self, py: Python<'_>, threads: usize) -> Result<Bases> {
        let (Some(path), Contents::Compressed(r)) = (self.source.path(), &self.contents) else {
            return Ok(Bases::default());
        };
        if r.bases().is_empty() {
            return Ok(Bases::default());
        }
        let find = |signals: &Signals| Ok(lmc_cli::bases_beside(path, r.bases(), threads, signals.stop()));
        let open = |path| Ok(BaseSource::new(Arc::new(Source::open(path)?), false));
        let found = Signals::watch(py, u64::MAX, find)?.into_iter().flatten();
        Ok(Bases(found.map(open).collect::<Result<_>>()?))
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        match &self.contents {
            Contents::Compressed(r) => r.segments(),
            Contents::Plain(b, _) => b.segments(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match &self.contents {
            Contents::Compressed(r) => r.raw_size(),
            Contents::Plain(b, _) => b.raw_size(),
        }
    }

    /// Size of a prefix of the file that takes as long to read as a single byte.
    pub(crate) fn at_once(&self) -> u64 {
        match &self.contents {
            Contents::Compressed(r) => r.blocks().next().map_or(0, |b| b.raw_len),
            Contents::Plain(..) => 0,
        }
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<&Segment> {
        let found = match &self.contents {
            Contents::Compressed(r) => r.tensor(name),
            Contents::Plain(b, by_name) => by_name.get(&Name::from(name)).map(|&i| &b.segments()[i]),
        };
        found.ok_or_else(|| Failure::not_found(format!("the file has no tensor {name:?}")))
    }

    /// The tensor of a call that reads it. If the file declares it all the same, the error says why it cannot be read.
    pub(crate) fn needed(&self, name: &str) -> Result<&Segment> {
        self.tensor(name).map_err(|e| self.why_missing(name).unwrap_or(e))
    }

    fn why_missing(&self, name: &str) -> Option<Failure> {
        let declared = match &self.contents {
            Contents::Compressed(r) => lmc::layout::tensors(&**r, r.layout(), r.segments(), name),
            Contents::Plain(b, _) => lmc::layout::tensors(&*self.source, b.layout(), b.segments(), name),
        };
        let missing = declared.ok()?.missing.into_iter().find(|m| m.name == name && !name.is_empty())?;
        Some(Failure::from(lmc::Error::new(lmc::ErrorKind::Unsupported, missing.why).in_tensor(name)))
    }

    /// The byte range of a tensor, or of rows of it.
    pub(crate) fn range(&self, name: &str, rows: Option<(u64, u64)>) -> Result<(u64, u64)> {
        let s = self.needed(name)?;
        let Some((start, stop)) = rows else { return Ok((s.offset, s.len)) };
        let bytes = s.bytes_of_rows(&(start..stop)).ok_or_else(|| {
            let shape = &s.shape[..];
            let why = format!("the tensor {name:?} of shape {shape:?} has no rows {start}..{stop} of whole bytes");
            Failure::usage(why)
        })?;
        Ok((s.offset + bytes.start, bytes.end - bytes.start))
    }

    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.size()) {
            let size = self.size();
            return Err(Failure::usage(format!("{len} bytes from byte {offset} are not in a file of {size}")));
        }
        Ok(())
    }

    /// Fails if a buffer to be written is the file's own memory.
    pub(crate) fn check_apart(&self, out: &Writable) -> Result<()> {
        if self.source.buffer().is_some_and(|b| b.overlaps(out)) {
            return Err(Failure::usage("out shares memory with the file"));
        }
        self.bases.check_apart(out)
    }

    /// Reads ranges into buffers that must not share memory, each as long as its range; returns the number of bytes.
    pub(crate) fn read_into(&self, py: Python<'_>, offsets: Vec<u64>, mut outs: Vec<Writable>) -> Result<usize> {
        check_disjoint(&outs)?;
        let len = outs.iter().map(Writable::len).sum();
        self.read_watched(py, len, offsets.into_iter().zip(outs.iter_mut().map(Writable::expecting_writes)))?;
        Ok(len)
    }

    /// Reads ranges, `len` bytes in all, without the GIL; a signal interrupts it.
    pub(crate) fn read_watched<'o>(
        &self,
        py: Python<'_>,
        len: usize,
        ranges: impl IntoIterator<Item = (u64, &'o mut [u8])> + Send,
    ) -> Result<()> {
        Signals::watch(py, len as u64, |signals| self.read(ranges, &|| signals.check()))
    }

    /// Reads ranges, until `check` refuses to go on.
    pub(crate) fn read<'o>(
        &self,
        ranges: impl IntoIterator<Item = (u64, &'o mut [u8])>,
        check: &dyn Fn() -> io::Result<()>,
    ) -> Result<()> {
        let read = match &self.contents {
            Contents::Compressed(r) => r.read_ranges_if(ranges, &|| check().map_err(|e| lmc::Error::io("stopped", e))),
            Contents::Plain(..) => ranges.into_iter().try_for_each(|(mut offset, out)| {
                out.chunks_mut(PART).try_for_each(|part| {
                    check()
                        .and_then(|()| self.source.read_exact_at(part, offset))
                        .map_err(|e| lmc::Error::io("cannot read the file", e).at_offset(offset))?;
                    offset += part.len() as u64;
                    Ok(())
                })
            }),
        };
        read.map_err(|e| Failure::from(e).in_file(self.source.path()))
    }
}

/// An open `.lmc` file, for random access. `lmc.open` creates one.
///
/// `file` is a path, a binary file object that can seek, or a buffer. `base` gives the bases of a delta, as for `lmc.compress`; by
/// default they are those files beside it that have the right contents. Without them the file can be listed, but not read. It is ignored if
/// the file needs none. With `plain` the file may also be uncompressed.
/// `max_work` is that of `lmc.decompress`, for each reading call.
///
/// Threads may share it, and so may a process and its forked children. Every block read is verified. Once closed, it raises
/// `lmc.UsageError`, a `ValueError`.
///
/// It is a mapping of names of tensors to their bytes: `f["name"]` is `f.read("name")`, iteration gives the names, and a file without
/// tensors is false.
///
/// Raises what `lmc.decompress` does, `lmc.NotFoundError` when there is no tensor with a name, `lmc.IOError` (an `OSError`) when the file
/// cannot be read.
#[pyclass(frozen, mapping, module = "lmc")]
pub(crate) struct File {
    pub(crate) o: DecompressOptions,
    pub(crate) plain: bool,
    pub(crate) name: Option<std::path::PathBuf>,
    pub(crate) open: PerProcess<Open>,
}

impl File {
    /// The open file of this process.
    pub(crate) fn open(&self, py: Python<'_>) -> Result<Arc<Open>> {
        self.open.get(|parents| {
            let (source, bases) = (parents.source.clone(), parents.bases.clone());
            detached(py, || Open::new(source, bases, &self.o, self.plain))
        })
    }

    /// Converts it to a base.
    pub(crate) fn sources(&self, py: Python<'_>) -> Result<(Arc<Source>, Bases)> {
        let open = self.open(py)?;
        Ok((open.source.clone(), open.bases.clone()))
    }
}
