//! NumPy's `.npz`: a zip archive of `.npy` files. Those of `np.savez_compressed` are compressed already, and stay as they are.

use super::names::Unique;
use super::npy;
use super::suggestion::{Format, Layout, Prefix, Whole, cover};
use super::zip::{Archive, Entry};
use crate::error::Result;
use crate::segment::Segment;

pub(super) struct Npz;

impl Format for Npz {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        if !file.get(4)?.starts_with(b"PK\x03\x04") {
            return Ok(None);
        }
        let Some(file) = file.whole() else { return Ok(None) };
        let Some(archive) = Archive::ending_at(file, file.size())? else { return Ok(None) };
        let mut names = Unique::default();
        let mut tensors = Vec::new();
        for entry in &archive.entries {
            let Some(array) = array(file, entry)? else { continue };
            // Entries may have equal names: the first one has it.
            let name = entry.name.strip_suffix(".npy").map(str::to_owned);
            let Some(name) = names.first([name], array.shape.len()) else { continue };
            tensors.push(Segment::tensor(name, array.dtype, array.shape, entry.offset + array.offset, array.len));
        }
        names.finish();
        if tensors.is_empty() {
            return Ok(None);
        }
        Ok(cover(0, tensors).map(|segments| Layout { name: "npz", segments, tail: None }))
    }
}

/// The array in an entry; `None` if it is compressed, or none of a known type.
fn array(file: Whole<'_>, entry: &Entry) -> Result<Option<npy::Array>> {
    if !entry.stored || entry.len < npy::START as u64 {
        return Ok(None);
    }
    let Some(start) = file.bytes(entry.offset, npy::START)? else { return Ok(None) };
    let Some(data) = npy::data_offset(&start).filter(|&data| data as u64 <= entry.len) else { return Ok(None) };
    let Some(header) = file.bytes(entry.offset, data)? else { return Ok(None) };
    Ok(npy::header(&header).filter(|array| array.offset + array.len <= entry.len))
}

#[cfg(test)]
mod tests;
