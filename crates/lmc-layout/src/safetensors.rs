//! The safetensors format: a length, a JSON header, and the tensors' bytes
//! (<https://github.com/huggingface/safetensors>).
//!
//! [`Header`] reads headers for whoever takes tensors from a file, and refuses what the `safetensors` crate refuses: bytes
//! of no tensor, or of two, could be interpreted differently by another reader. [`header`] writes them.
//!
//! The layout of a file, which decides where blocks are cut, is only a suggestion, and less strict. A file that the crate accepts gives
//! the same tensors there. A dtype that it does not know has the bits that shape and length give. Where it refuses a single
//! tensor (its shape does not fit) or the file's size, those bytes are opaque; where it refuses the header, the file is raw,
//! unless it refuses a part that is not used there, as the metadata.

mod header;
mod start;
mod strict;
mod write;

use header::{Entry, Parsed};
pub use start::header_len;
pub use strict::Header;
pub use write::header;

use super::account::Account;
use super::suggestion::{Format, Layout, MAX_COST, Prefix, cover};
use crate::dtype::{Dtype, NamedDtype};
use crate::error::Result;
use crate::segment::{MAX_RANK, Segment, tensor_len};

pub(super) struct Safetensors;

impl Format for Safetensors {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        // A few bytes exclude most files of other formats, before up to a hundred million are read.
        let Some(data) = header_len(file.get(8 + 256)?) else { return Ok(None) };
        let header = file.get(data as usize)?;
        if (header.len() as u64) < data {
            return Ok(None);
        }
        let mut account = Account::default();
        account.without_gaps();
        let parsed = header::parse(&header[8..], MAX_COST, false).ok();
        let segments = parsed.and_then(|parsed| segments(data, parsed, &mut account));
        Ok(segments.map(|segments| Layout::new("safetensors", segments, account)))
    }
}

/// Segments of a file whose tensors' bytes start at `data`; `None` if tensors overlap or end above 2^64.
fn segments(data: u64, Parsed { mut entries, sorted, .. }: Parsed, account: &mut Account) -> Option<Vec<Segment>> {
    if !sorted {
        drop_repeated(&mut entries, account);
    }
    for e in &mut entries {
        e.offset = e.offset.checked_add(data)?;
        if let Some(Dtype::Named(named)) = e.dtype {
            e.dtype = with_bits(named.name(), e);
        }
        if e.shape.len() > MAX_RANK || e.dtype.is_none_or(|d| tensor_len(d, &e.shape) != Some(e.len)) {
            account.missing(
                e.name.as_deref().unwrap_or_default(),
                "its type, its shape and its bytes do not fit each other",
            );
            *e = Segment::opaque(e.offset, e.len);
        }
    }
    cover(data, entries)
}

/// The dtype of this name whose elements fill the tensor.
fn with_bits(name: &str, tensor: &Entry) -> Option<Dtype> {
    let elements = tensor.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).filter(|&n| n > 0)?;
    let bits = u32::try_from(tensor.len.checked_mul(8)? / elements).ok()?;
    NamedDtype::new(name, bits).map(Dtype::Named)
}

/// Keeps the last of several tensors of one name.
fn drop_repeated(entries: &mut Vec<Entry>, account: &mut Account) {
    if entries.is_sorted_by(|a, b| a.name < b.name) {
        return;
    }
    let mut by_name: Vec<usize> = (0..entries.len()).collect();
    by_name.sort_by(|&a, &b| entries[a].name.cmp(&entries[b].name));
    let mut keep = vec![true; entries.len()];
    for w in by_name.windows(2).filter(|w| entries[w[0]].name == entries[w[1]].name) {
        keep[w[0]] = false;
        account.missing(entries[w[0]].name.as_deref().unwrap_or_default(), "its name occurs twice");
    }
    let mut keep = keep.into_iter();
    entries.retain(|_| keep.next().expect("a flag for each entry"));
}

#[cfg(test)]
mod tests;
