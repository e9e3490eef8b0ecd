//! Small tensors, read into shared memory.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::buffer::{Writable, check_disjoint};
use crate::dlpack::{Place, Tensors};
use crate::errors::Result;
use crate::header::{Entry, Header};
use crate::memory::{BLOCK, Block, Memory, SharedMemory};
use crate::open::Open;

/// Alignment of tensors, as in torch.
const ALIGN: usize = 64;

/// Bytes that are contiguous both in the file and in memory.
struct Run {
    offset: u64,
    start: usize,
    len: usize,
}

/// Small tensors that were read; none spans two blocks of memory.
pub(crate) struct Small<'h> {
    /// In the order of the file, each with its block and the offset in it.
    tensors: Vec<(Entry<'h>, usize, usize)>,
    blocks: Vec<Block>,
}

impl<'h> Small<'h> {
    /// Reads small tensors into new memory, and other ranges into buffers of their lengths, in one call: they may share blocks.
    pub(crate) fn read(
        py: Python<'_>,
        open: &Open,
        header: &'h Header,
        limit: u64,
        (offsets, mut outs): (Vec<u64>, Vec<Writable>),
    ) -> Result<Self> {
        check_disjoint(&outs)?;
        let tensors: Vec<_> = header.entries().filter(|t| t.is_small(limit)).collect();
        let mut starts = Vec::with_capacity(tensors.len());
        let mut runs = Vec::<Run>::new();
        let mut end = 0usize;
        for Entry { segment: t, .. } in &tensors {
            let len = t.len as usize;
            open.check(t.offset, t.len)?;
            let mut start = end.next_multiple_of(ALIGN);
            if start % BLOCK + len > BLOCK {
                start = start.next_multiple_of(BLOCK);
            }
            match runs.last_mut() {
                Some(run) if run.start + run.len == start && run.offset + run.len as u64 == t.offset => run.len += len,
                _ => runs.push(Run { offset: t.offset, start, len }),
            }
            starts.push(start);
            end = start + len;
        }
        let mut memory = Memory::new(end)?;
        let (mut rest, mut at, mut ranges) = (memory.as_mut_slice(), 0, Vec::with_capacity(runs.len()));
        for run in &runs {
            let (out, after) = rest.split_at_mut(run.start - at).1.split_at_mut(run.len);
            ranges.push((run.offset, out));
            (rest, at) = (after, run.start + run.len);
        }
        let len = end + outs.iter().map(Writable::len).sum::<usize>();
        let others = offsets.into_iter().zip(outs.iter_mut().map(Writable::expecting_writes));
        open.read_watched(py, len, ranges.into_iter().chain(others))?;
        let tensors = tensors.into_iter().zip(starts).map(|(t, start)| (t, start / BLOCK, start % BLOCK)).collect();
        Ok(Self { tensors, blocks: memory.into_blocks() })
    }

    /// Calls `make` with a DLPack capsule of each; returns the results by name.
    pub(crate) fn capsules<'py>(self, py: Python<'py>, make: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        let _paused = CollectionPaused::new(py)?;
        let mut rest = self.tensors.into_iter().peekable();
        for (i, block) in self.blocks.into_iter().enumerate() {
            let (names, places): (Vec<_>, Vec<_>) = std::iter::from_fn(|| rest.next_if(|t| t.1 == i))
                .map(|(t, _, start)| (t.name, Place { start, dtype: t.dtype, shape: &t.segment.shape }))
                .unzip();
            for (name, capsule) in names.into_iter().zip(Tensors::new(block, &places).into_capsules(py)) {
                made.set_item(name, make.call1((capsule?,))?)?;
            }
        }
        Ok(made)
    }

    /// Calls `make` for each with its shape, its mapped dtype, a [`SharedMemory`], and the offset in it; returns the results by name.
    pub(crate) fn arrays<'py>(
        self,
        py: Python<'py>,
        make: &Bound<'py, PyAny>,
        dtypes: &Bound<'py, PyDict>,
    ) -> Result<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        let _paused = CollectionPaused::new(py)?;
        let blocks: Vec<_> =
            self.blocks.into_iter().map(|b| Bound::new(py, SharedMemory(b))).collect::<PyResult<_>>()?;
        for (t, block, start) in self.tensors {
            let dtype = dtypes.as_any().get_item(t.dtype.name())?;
            let shape = PyTuple::new(py, &t.segment.shape[..])?;
            made.set_item(t.name, make.call1((shape, dtype, &blocks[block], start))?)?;
        }
        Ok(made)
    }
}

/// Pauses Python's garbage collector while tensors are created: none of them is garbage, but it would traverse them, and all other objects,
/// again and again, which can take longer than loading.
struct CollectionPaused<'py>(Option<Bound<'py, PyModule>>);

impl<'py> CollectionPaused<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let gc = py.import("gc")?;
        let enabled = gc.call_method0("isenabled")?.is_truthy()?;
        gc.call_method0("disable")?;
        Ok(Self(enabled.then_some(gc)))
    }
}

impl Drop for CollectionPaused<'_> {
    fn drop(&mut self) {
        if let Some(gc) = &self.0 {
            // `gc.enable` does not fail, and an error could not be handled here.
            let _ = gc.call_method0("enable");
        }
    }
}
