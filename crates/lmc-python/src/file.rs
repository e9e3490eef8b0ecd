//! The methods of `lmc.File`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyTuple};

use crate::base::bases_of;
use crate::buffer::{Buffer, FreshBytes, Writable, is_buffer};
use crate::errors::{Failure, Result};
use crate::header::{self, Header};
use crate::info::{Tensor, hex};
use crate::numbers::{Limit, MaxWork, Offset, Size, Start, Stop, number};
use crate::open::{Contents, File, Open};
use crate::options::{Threads, decompress_options};
use crate::process::PerProcess;
use crate::records::{Record, record};
use crate::small::Small;
use crate::source::{FileObject, Source, as_path};
use crate::text::text;
use crate::work::detached;

impl File {
    fn small<'h>(
        &self,
        py: Python<'_>,
        header: &'h Header,
        limit: Limit,
        others: &Bound<'_, PyAny>,
    ) -> Result<Small<'h>> {
        let open = self.open(py)?;
        let others = ranges(&open, others)?;
        Small::read(py, &open, header, limit.0, others)
    }

    /// Reads a range into a new `bytes` object.
    fn bytes(&self, py: Python<'_>, open: &Open, offset: u64, len: u64) -> Result<Py<PyBytes>> {
        let mut bytes = FreshBytes::new(py, len)?;
        open.read_watched(py, len as usize, [(offset, bytes.as_mut_slice())])?;
        Ok(bytes.finish())
    }
}

/// A tensor, or rows of it, and the buffer to read into.
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) rows: Option<(u64, u64)>,
    pub(crate) out: Writable,
}

impl Wanted {
    /// Parses the `(name, out)` and `(name, start, stop, out)` of an iterable.
    pub(crate) fn all(wanted: &Bound<'_, PyAny>) -> Result<Vec<Self>> {
        let one = |one: PyResult<Bound<'_, PyAny>>| {
            let one = one?;
            let item = |i: usize| one.get_item(i);
            let (rows, out) = match one.len()? {
                2 => (None, item(1)?),
                4 => (Some((number(&item(1)?, "start")?, number(&item(2)?, "stop")?)), item(3)?),
                n => {
                    let why = format!(
                        "each of wanted must be (name, out) or (name, start, stop, out), but one has {n} items"
                    );
                    return Err(Failure::usage(why));
                }
            };
            Ok(Self { name: text(&item(0)?)?.to_owned(), rows, out: Writable::get(&out)? })
        };
        wanted.try_iter()?.map(one).collect()
    }
}

/// Fails unless a buffer has the required length.
fn check_len(out: &Writable, len: u64, what: &str) -> Result<()> {
    if out.len() as u64 == len {
        return Ok(());
    }
    Err(Failure::usage(format!("out has {} bytes, but {what} has {len}", out.len())))
}

/// Parses the `(offset, out)` of an iterable.
fn ranges(open: &Open, wanted: &Bound<'_, PyAny>) -> Result<(Vec<u64>, Vec<Writable>)> {
    let (mut offsets, mut outs) = (Vec::new(), Vec::new());
    for one in wanted.try_iter()? {
        let (Offset(offset), out): (Offset, Bound<'_, PyAny>) = one?.extract()?;
        let out = Writable::get(&out)?;
        open.check_apart(&out)?;
        open.check(offset, out.len() as u64)?;
        offsets.push(offset);
        outs.push(out);
    }
    Ok((offsets, outs))
}

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (file, *, base=None, threads=None, plain=false, max_work=None))]
    fn new(
        py: Python<'_>,
        file: &Bound<'_, PyAny>,
        base: Option<&Bound<'_, PyAny>>,
        threads: Option<Threads>,
        plain: bool,
        max_work: Option<MaxWork>,
    ) -> Result<Self> {
        let o = decompress_options(threads, None, max_work)?;
        let source = match as_path(file)? {
            Some(path) => Source::open(path)?,
            // A memory map is both.
            None if !is_buffer(file) && file.hasattr("read")? && file.hasattr("seek")? => {
                Source::Object(FileObject::new(file)?)
            }
            None => Source::Buffer(Buffer::get(
                file,
                "file must be a path, a binary file object that can seek, or a C-contiguous bytes-like object",
            )?),
        };
        let name = source.path().map(Into::into);
        let (source, bases) = (Arc::new(source), bases_of(base)?);
        let mut open = detached(py, || Open::new(source.clone(), bases, &o, plain))?;
        if base.is_none() {
            let beside = open.bases_beside(py, o.threads)?;
            if !beside.0.is_empty() {
                open = detached(py, || Open::new(source, beside, &o, plain))?;
            }
        }
        Ok(Self { o, plain, name, open: PerProcess::new("file", open) })
    }

    /// Closes the file. Reads in progress in other threads are completed.
    fn close(&self, py: Python<'_>) {
        let closed = self.open.close();
        // Stopping threads takes a moment.
        py.detach(|| drop(closed));
    }

    #[getter]
    fn closed(&self) -> bool {
        self.open.is_closed()
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> Result<Py<Self>> {
        slf.get().open(py)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// The path that it was opened by, or `None`.
    #[getter]
    fn name(&self) -> Option<&std::path::Path> {
        self.name.as_deref()
    }

    /// Whether it is a `.lmc` file.
    #[getter]
    fn compressed(&self, py: Python<'_>) -> Result<bool> {
        Ok(matches!(self.open(py)?.contents, Contents::Compressed(_)))
    }

    /// Size of the raw file in bytes.
    #[getter]
    fn size(&self, py: Python<'_>) -> Result<u64> {
        Ok(self.open(py)?.size())
    }

    /// Size of the file itself in bytes.
    #[getter]
    fn compressed_size(&self, py: Python<'_>) -> Result<u64> {
        Ok(match &self.open(py)?.contents {
            Contents::Compressed(r) => r.compressed_size(),
            Contents::Plain(b, _) => b.raw_size(),
        })
    }

    /// Hash of the raw file, in hexadecimal digits.
    #[getter]
    fn content_hash(&self, py: Python<'_>) -> Result<String> {
        let open = self.open(py)?;
        detached(py, || {
            Ok(hex(&match &open.contents {
                Contents::Compressed(r) => r.content_hash(),
                Contents::Plain(b, _) => b.content_hash(self.o.threads)?,
            }))
        })
    }

    /// The format of the raw file, as far as recognised.
    #[getter]
    fn layout(&self, py: Python<'_>) -> Result<String> {
        Ok(match &self.open(py)?.contents {
            Contents::Compressed(r) => r.layout(),
            Contents::Plain(b, _) => b.layout(),
        }
        .to_owned())
    }

    /// The bases of a delta.
    #[getter]
    fn bases<'py>(&self, py: Python<'py>) -> Result<Vec<Record<'py>>> {
        let open = self.open(py)?;
        let Contents::Compressed(r) = &open.contents else { return Ok(vec![]) };
        r.bases().iter().map(|b| record(py, "BaseInfo", (&b.name, b.raw_size, hex(&b.content_hash)))).collect()
    }

    /// The features of the format that the file needs: "ranges", "own-ranges", "grids", "optimizer"; none of a file that is not compressed.
    #[getter]
    fn features(&self, py: Python<'_>) -> Result<Vec<String>> {
        let open = self.open(py)?;
        let Contents::Compressed(r) = &open.contents else { return Ok(vec![]) };
        Ok(r.features().map(Into::into).collect())
    }

    /// The cryptographic digests that the file has of its raw bytes and of those of its bases (`digest=True` when it was compressed).
    #[getter]
    fn digests<'py>(&self, py: Python<'py>) -> Result<Vec<Record<'py>>> {
        let open = self.open(py)?;
        let Contents::Compressed(r) = &open.contents else { return Ok(vec![]) };
        let digests = detached(py, || Ok(r.digests()?))?;
        let of = |d: lmc::RawDigest| record(py, "Digest", (d.source, d.algorithm.to_string(), hex(&d.digest)));
        digests.into_iter().map(of).collect()
    }

    /// Names of the tensors, in the order of the file.
    fn keys(&self, py: Python<'_>) -> Result<Vec<String>> {
        let open = self.open(py)?;
        Ok(open.segments().iter().filter_map(|s| s.name.as_deref()).map(str::to_owned).collect())
    }

    /// All tensors, in the order of the file.
    fn tensors(&self, py: Python<'_>) -> Result<Vec<Tensor>> {
        let open = self.open(py)?;
        Ok(open.segments().iter().filter_map(|s| Tensor::of(py, s)).collect())
    }

    fn __contains__(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<bool> {
        Ok(self.open(py)?.tensor(name).is_ok())
    }

    fn __len__(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.keys(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyIterator>> {
        Ok(PyList::new(py, self.keys(py)?)?.try_iter()?)
    }

    fn __getitem__(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<Py<PyBytes>> {
        self.read(py, name)
    }

    /// A tensor by its name; the first one if there are several.
    fn tensor(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<Tensor> {
        Ok(Tensor::of(py, self.open(py)?.needed(name)?).expect("a named segment is a tensor"))
    }

    /// Opens the raw file as a binary file object (`io.BufferedReader`) that can seek, for whatever reads files: `torch.load`,
    /// `numpy.load`, `zipfile`. Reads that follow one another are decoded ahead, on all threads. It has no descriptor, so it cannot be
    /// mapped. There may be several, and closing one leaves this file open; once this file is closed, they raise `lmc.UsageError`.
    #[pyo3(name = "open")]
    fn reader<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("lmc._reader")?.call_method1("reader", (slf,))
    }

    /// Reads a tensor's elements as in the raw file: little-endian, the last dimension contiguous.
    fn read(&self, py: Python<'_>, #[pyo3(from_py_with = text)] name: &str) -> Result<Py<PyBytes>> {
        let open = self.open(py)?;
        let (offset, len) = open.range(name, None)?;
        self.bytes(py, &open, offset, len)
    }

    /// Reads a tensor into `out`, a writable C-contiguous buffer of exactly its size; returns the number of bytes.
    fn read_into(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        out: &Bound<'_, PyAny>,
    ) -> Result<usize> {
        let open = self.open(py)?;
        let out = Writable::get(out)?;
        open.check_apart(&out)?;
        let (offset, len) = open.range(name, None)?;
        check_len(&out, len, &format!("the tensor {name:?}"))?;
        open.read_into(py, vec![offset], vec![out])
    }

    /// Reads rows of a tensor: the elements whose first index is in `start..stop`.
    fn read_rows(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        start: Start,
        stop: Stop,
    ) -> Result<Py<PyBytes>> {
        let open = self.open(py)?;
        let (offset, len) = open.range(name, Some((start.0, stop.0)))?;
        self.bytes(py, &open, offset, len)
    }

    /// Reads rows of a tensor into `out`, as `read_into` does.
    fn read_rows_into(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = text)] name: &str,
        start: Start,
        stop: Stop,
        out: &Bound<'_, PyAny>,
    ) -> Result<usize> {
        let open = self.open(py)?;
        let out = Writable::get(out)?;
        open.check_apart(&out)?;
        let (offset, len) = open.range(name, Some((start.0, stop.0)))?;
        check_len(&out, len, &format!("rows {}..{} of the tensor {name:?}", start.0, stop.0))?;
        open.read_into(py, vec![offset], vec![out])
    }

    /// Reads `size` bytes of the raw file from `offset` on.
    fn read_range(&self, py: Python<'_>, offset: Offset, size: Size) -> Result<Py<PyBytes>> {
        let (open, Offset(offset), Size(size)) = (self.open(py)?, offset, size);
        open.check(offset, size)?;
        self.bytes(py, &open, offset, size)
    }

    /// Fills `out` with bytes of the raw file from `offset` on.
    fn read_range_into(&self, py: Python<'_>, offset: Offset, out: &Bound<'_, PyAny>) -> Result<usize> {
        let (open, Offset(offset)) = (self.open(py)?, offset);
        let out = Writable::get(out)?;
        open.check_apart(&out)?;
        open.check(offset, out.len() as u64)?;
        open.read_into(py, vec![offset], vec![out])
    }

    /// Reads many tensors into buffers, in parallel: this is how to load a model. Each of `wanted` is `(name, out)`, or `(name, start,
    /// stop, out)` for rows. Buffers must not share memory. Returns the number of bytes; after an error the contents of the buffers are
    /// unspecified.
    fn read_many_into(&self, py: Python<'_>, wanted: &Bound<'_, PyAny>) -> Result<usize> {
        let open = self.open(py)?;
        let (mut offsets, mut outs) = (Vec::new(), Vec::new());
        for Wanted { name, rows, out } in Wanted::all(wanted)? {
            open.check_apart(&out)?;
            let (offset, len) = open.range(&name, rows)?;
            check_len(&out, len, &format!("the selection of tensor {name:?}"))?;
            offsets.push(offset);
            outs.push(out);
        }
        open.read_into(py, offsets, outs)
    }

    /// Reads many ranges of the raw file into buffers, in parallel. Each of `wanted` is `(offset, out)`, where `out` is a writable
    /// C-contiguous buffer to fill. Buffers must not share memory. Returns the number of bytes; after an error the contents of the buffers
    /// are unspecified.
    fn read_ranges_into(&self, py: Python<'_>, wanted: &Bound<'_, PyAny>) -> Result<usize> {
        let open = self.open(py)?;
        let (offsets, outs) = ranges(&open, wanted)?;
        open.read_into(py, offsets, outs)
    }

    /// Reads small tensors of a header (this file's) into new memory: those of at most `limit` bytes (1 to 2 MiB) with a dtype that DLPack
    /// has. In parallel reads `others` like `read_ranges_into`. Returns a dict from each small tensor's name to the result of `make`,
    /// called with a DLPack capsule of the tensor. Adjacent tensors share memory of 2 MiB, which is freed with the last of them.
    ///
    /// Raises what `read_ranges_into` and `make` do, and `lmc.LimitError` when memory runs out.
    fn read_small<'py>(
        &self,
        py: Python<'py>,
        header: &Bound<'py, Header>,
        limit: Limit,
        others: &Bound<'py, PyAny>,
        make: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyDict>> {
        self.small(py, header.get(), limit, others)?.capsules(py, make)
    }

    /// Like `read_small`, with the same tensors, but calls `make(shape, dtypes[dtype], memory, offset)` for each: its shape, the mapped
    /// dtype, a writable buffer, and the tensor's offset in it, as `numpy.ndarray` takes them.
    fn read_small_arrays<'py>(
        &self,
        py: Python<'py>,
        header: &Bound<'py, Header>,
        limit: Limit,
        others: &Bound<'py, PyAny>,
        make: &Bound<'py, PyAny>,
        dtypes: &Bound<'py, PyDict>,
    ) -> Result<Bound<'py, PyDict>> {
        self.small(py, header.get(), limit, others)?.arrays(py, make, dtypes)
    }

    /// Parses and checks the header of a safetensors file, without reading the rest.
    ///
    /// Raises `lmc.UnsupportedError` when it is not a safetensors file, `lmc.DamagedError` when its header is invalid: what safetensors
    /// rejects is rejected.
    fn safetensors_header(&self, py: Python<'_>) -> Result<Header> {
        let open = self.open(py)?;
        let name = self.name.as_ref().map_or_else(|| "the file".into(), |n| n.to_string_lossy());
        detached(py, || {
            header::read(&name, open.size(), open.at_once(), |offset, len| {
                let mut bytes = vec![0; len];
                open.read([(offset, &mut bytes[..])], &|| Ok(()))?;
                Ok(bytes)
            })
        })
    }

    fn __repr__(&self) -> String {
        let name = self.name.as_ref().map_or_else(|| "a file object or buffer".to_owned(), |n| format!("{n:?}"));
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<lmc.File {name}{closed}>")
    }
}
