//! The result of compressing or restoring.

use pyo3::prelude::*;

use crate::info::hex;
use crate::repr::record;

/// The result of compressing or restoring.
#[pyclass(frozen, get_all, module = "lmc")]
pub(crate) struct Summary {
    raw_size: u64,
    compressed_size: u64,
    content_hash: String,
    blocks: u64,
    unlisted_tensors: u64,
}

impl From<lmc::Summary> for Summary {
    fn from(s: lmc::Summary) -> Self {
        let content_hash = hex(&s.content_hash);
        Self {
            raw_size: s.raw_size,
            compressed_size: s.compressed_size,
            content_hash,
            blocks: s.blocks,
            unlisted_tensors: s.unlisted_tensors,
        }
    }
}

record!(Summary(raw_size, compressed_size, content_hash, blocks, unlisted_tensors));
