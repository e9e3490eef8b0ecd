//! `.metadata` of checkpoints of `torch.distributed.checkpoint`, as lmc reads it by itself: no object of Python is made
//! of it, and nothing is unpickled.

use lmc::layout::distcp::{StorageData, Stored};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Result;
use crate::work::detached;

/// The data files that `lmc.dcp` wrote, by the `.metadata` of a checkpoint, and the chunks in each: the names of their
/// tensors, `@`, and their first indices, separated by commas.
///
/// Raises `lmc.LimitError` for more than `max_len` bytes, `lmc.DamagedError` for what is no such metadata.
#[pyfunction]
pub(crate) fn chunks_by_file<'py>(py: Python<'py>, metadata: &[u8], max_len: u64) -> Result<Bound<'py, PyDict>> {
    let (files, chunks) = detached(py, || {
        let stored = StorageData::parse(metadata, max_len)?;
        let mut chunks = vec![Vec::new(); stored.files.len()];
        for entry in &stored.entries {
            if let Stored::Named(_) = entry.place.stored {
                let offsets: Vec<_> = entry.offsets.iter().map(u64::to_string).collect();
                chunks[entry.place.file].push(format!("{}@{}", entry.name, offsets.join(",")));
            }
        }
        Ok((stored.files, chunks))
    })?;
    let found = PyDict::new(py);
    for (file, chunks) in files.into_iter().zip(chunks).filter(|(_, chunks)| !chunks.is_empty()) {
        found.set_item(file, chunks)?;
    }
    Ok(found)
}
