//! NumPy's `.npz`: a zip archive of `.npy` files. Those of `np.savez_compressed` are compressed already, and stay as they are.

use std::borrow::Cow;
use std::collections::HashSet;

use super::account::Account;
use super::names::Unique;
use super::npy;
use super::suggestion::{Format, Layout, Prefix, Whole, cover};
use super::zip::{Archive, Entry};
use crate::error::Result;
use crate::segment::Segment;

/// The end of an entry's name that the array's name does not have.
const SUFFIX: &str = ".npy";

pub(super) struct Npz;

impl Format for Npz {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        if !file.get(4)?.starts_with(b"PK\x03\x04") {
            return Ok(None);
        }
        let Some(file) = file.whole() else { return Ok(None) };
        let Some(archive) = Archive::ending_at(file, file.size())? else { return Ok(None) };
        let (mut names, mut account, mut taken) = (Unique::default(), Account::default(), HashSet::new());
        let mut tensors = Vec::new();
        // Folders have entries, too.
        for entry in archive.entries.iter().filter(|entry| !entry.name.ends_with('/')) {
            let name = entry.name.strip_suffix(SUFFIX).unwrap_or(&entry.name);
            if !taken.insert(name) {
                account.missing(name, "two entries of the archive have its name");
                continue;
            }
            let array = match array(file, entry)? {
                Ok(array) => array,
                Err(why) => {
                    account.missing(name, why);
                    continue;
                }
            };
            let Some(stored) = names.first([Some(name.to_owned())], array.shape.len()) else {
                account.missing(name, "the archive has more arrays than are read");
                continue;
            };
            let offset = entry.offset + array.offset;
            if array.is_fortran {
                account.fortran(offset);
            }
            tensors.push(Segment::tensor(stored, array.dtype, array.shape, offset, array.len));
        }
        names.finish();
        // Other archives have none of these names.
        if tensors.is_empty() && !archive.entries.iter().any(|entry| entry.name.ends_with(SUFFIX)) {
            return Ok(None);
        }
        let segments = if tensors.is_empty() { Some(vec![]) } else { cover(0, tensors) };
        Ok(segments.map(|segments| Layout::new("npz", segments, account)))
    }
}

/// The array in an entry, or the reason why there is none.
fn array(file: Whole<'_>, entry: &Entry) -> Result<Result<npy::Array, Cow<'static, str>>> {
    if !entry.stored {
        return Ok(Err("its bytes are compressed, as np.savez_compressed writes them, or encrypted".into()));
    }
    let none = || Ok(Err("its entry of the archive is no array".into()));
    if entry.len < npy::START as u64 {
        return none();
    }
    let Some(start) = file.bytes(entry.offset, npy::START)? else { return none() };
    let Some(data) = npy::data_offset(&start).filter(|&data| data as u64 <= entry.len) else { return none() };
    let Some(header) = file.bytes(entry.offset, data)? else { return none() };
    let array = npy::header(&header);
    Ok(array.and_then(|array| match array.offset + array.len <= entry.len {
        true => Ok(array),
        false => Err("its entry of the archive ends before it does".into()),
    }))
}

#[cfg(test)]
mod tests;
