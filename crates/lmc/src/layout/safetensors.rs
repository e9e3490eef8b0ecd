//! The safetensors format: a length, a JSON header, and the tensors' bytes
//! (<https://github.com/huggingface/safetensors>).
//!
//! A file that the `safetensors` crate accepts gives the same tensors here. A dtype that it does not know has the bits that
//! shape and length give. Where it refuses a single tensor (its shape does not fit) or the file's size, those bytes are
//! opaque; where it refuses the header, the file is raw, unless it refuses a part that is not used here, as the metadata.

mod header;

use header::{Entry, Header};

use super::account::Account;
use super::suggestion::{Format, Layout, MAX_COST, Prefix, cover};
use crate::dtype::{Dtype, NamedDtype};
use crate::error::Result;
use crate::segment::{MAX_RANK, Segment, tensor_len};

/// The longest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;

pub(super) struct Safetensors;

impl Format for Safetensors {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        let Some(&len) = file.get(8)?.first_chunk() else { return Ok(None) };
        let len = u64::from_le_bytes(len);
        // A few bytes exclude most files of other formats, before up to a hundred million are read.
        if len > MAX_HEADER || !may_be_json(&file.get(8 + len.min(256) as usize)?[8..]) {
            return Ok(None);
        }
        let data = 8 + len;
        let json = &file.get(data as usize)?[8..];
        if (json.len() as u64) < len {
            return Ok(None);
        }
        let mut account = Account::default();
        account.without_gaps();
        let segments = header::parse(json, MAX_COST).and_then(|header| segments(data, header, &mut account));
        Ok(segments.map(|segments| Layout::new("safetensors", segments, account)))
    }
}

fn may_be_json(start: &[u8]) -> bool {
    start.trim_ascii_start().first().is_none_or(|&b| b == b'{')
}

/// Segments of a file whose tensors' bytes start at `data`; `None` if tensors overlap or end above 2^64.
fn segments(data: u64, Header { mut entries, sorted }: Header, account: &mut Account) -> Option<Vec<Segment>> {
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
