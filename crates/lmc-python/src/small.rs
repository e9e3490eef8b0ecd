//! Small tensors, read into memory that they are in together.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::buffer::{Writable, check_disjoint};
use crate::dlpack::{BLOCK, Memory, bytes_of, capsule};
use crate::errors::Result;
use crate::header::{Entry, Header};
use crate::open::Open;
use crate::work::detached;

/// Tensors begin at multiples of it, as those of torch do.
const ALIGN: usize = 64;

/// Bytes that follow each other in the file and in memory.
struct Run {
    offset: u64,
    start: usize,
    len: usize,
}

/// Whether a tensor is one that `read` reads: it has at most `limit` bytes, and is of a dtype that DLPack has.
pub(crate) fn is_small(t: &Entry, limit: u64) -> bool {
    let sizes = 1..=limit.min(BLOCK as u64);
    sizes.contains(&t.nbytes) && bytes_of(t.dtype, &t.shape) == usize::try_from(t.nbytes).ok()
}

/// Reads small tensors into new memory, none of which is in two blocks of it, and other ranges into buffers, each as long as its range. What `make`
/// makes of a DLPack capsule of each of those tensors, by name. All in one: what is between large tensors is in their blocks.
pub(crate) fn read<'py>(
    py: Python<'py>,
    open: &Open,
    header: &Header,
    limit: u64,
    (offsets, mut outs): (Vec<u64>, Vec<Writable>),
    make: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyDict>> {
    check_disjoint(&outs)?;
    let tensors: Vec<_> = header.tensors.iter().filter(|t| is_small(t, limit)).collect();
    let mut starts = Vec::with_capacity(tensors.len());
    let mut runs = Vec::<Run>::new();
    let mut end = 0usize;
    for t in &tensors {
        let len = t.nbytes as usize;
        open.check(t.offset, t.nbytes)?;
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
    detached(py, || {
        let others = offsets.into_iter().zip(outs.iter_mut().map(Writable::expecting_writes));
        open.read(ranges.into_iter().chain(others))
    })?;
    let blocks = memory.into_blocks();
    let made = PyDict::new(py);
    for (t, start) in tensors.iter().zip(starts) {
        let capsule = capsule(py, &blocks[start / BLOCK], start % BLOCK, t.dtype, &t.shape)?;
        made.set_item(&*t.name, make.call1((capsule,))?)?;
    }
    Ok(made)
}
