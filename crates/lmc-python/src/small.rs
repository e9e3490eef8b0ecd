//! Small tensors, read into memory that they are in together.

use pyo3::prelude::*;

use crate::buffer::{Writable, check_disjoint};
use crate::dlpack::{BLOCK, Memory, bytes_of, capsule};
use crate::errors::{Failure, Result};
use crate::info::Tensor;
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

/// Reads tensors into new memory, none of which is in two blocks of it, and other ranges into buffers, each as long as its range; a DLPack capsule for
/// each of the tensors. All in one: what is between large tensors is in their blocks.
pub(crate) fn read<'py>(
    py: Python<'py>,
    open: &Open,
    tensors: &[Bound<'py, Tensor>],
    (offsets, mut outs): (Vec<u64>, Vec<Writable>),
) -> Result<Vec<Bound<'py, PyAny>>> {
    check_disjoint(&outs)?;
    let mut starts = Vec::with_capacity(tensors.len());
    let mut runs = Vec::<Run>::new();
    let mut end = 0usize;
    for tensor in tensors {
        let t = tensor.get();
        let len = bytes_of(t.dtype, &t.shape).filter(|&len| len as u64 == t.nbytes && 0 < len && len <= BLOCK);
        let len = len.ok_or_else(|| {
            Failure::usage(format!("the tensor {} of {} is none that DLPack and a block have", t.name, t.dtype))
        })?;
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
    let capsules = tensors.iter().zip(&starts).map(|(tensor, start)| {
        let t = tensor.get();
        capsule(py, &blocks[start / BLOCK], start % BLOCK, t.dtype, &t.shape)
    });
    capsules.collect()
}

/// Those of the tensors that have at most `limit` bytes and that `read` can read, and the others.
pub(crate) fn split<'py>(
    tensors: Vec<Bound<'py, Tensor>>,
    limit: u64,
) -> (Vec<Bound<'py, Tensor>>, Vec<Bound<'py, Tensor>>) {
    let limit = limit.min(BLOCK as u64);
    let is_small = |t: &Bound<'_, Tensor>| {
        let t = t.get();
        (1..=limit).contains(&t.nbytes) && bytes_of(t.dtype, &t.shape) == usize::try_from(t.nbytes).ok()
    };
    tensors.into_iter().partition(is_small)
}
