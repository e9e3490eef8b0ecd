//! Files of `torch.save`, TorchScript archives, and `.distcp` files of `torch.distributed.checkpoint`: zip archives,
//! one after the other, with storages as entries and a pickle that says which tensors view them
//! (<https://docs.pytorch.org/docs/stable/notes/serialization.html>); and the format of `torch.save` before version
//! 1.6.

pub(crate) mod checkpoint;
mod found;
mod legacy;
mod storage;
mod tensors;

use std::collections::HashMap;
use std::io::Read;

use super::pickle::{MAX_LEN, Pickle};
use super::suggestion::{Format, Layout, Prefix, Whole};
use super::zip::{Archive, Entry};
use crate::error::Result;
use found::Found;
pub(super) use legacy::Legacy;
use storage::{Item, Storage};

/// Most archives in a file, and entries in all of them.
const MAX_ARCHIVES: usize = 1 << 18;
const MAX_ENTRIES: usize = 1 << 20;

pub(super) struct Torch;

impl Format for Torch {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        if !file.get(4)?.starts_with(b"PK\x03\x04") {
            return Ok(None);
        }
        let Some(file) = file.whole() else { return Ok(None) };
        let Some(archives) = archives(file)? else { return Ok(None) };
        let names = names(file)?;
        let name = if archives.len() > 1 || names.is_some() { "distcp" } else { "torch" };
        let mut found = Found::default();
        for (number, archive) in archives.iter().enumerate() {
            let root = names.as_ref().and_then(|names| names.get(&archive.start).cloned());
            let item = match archives.len() {
                1 => Item { root: root.unwrap_or_else(|| "0".to_owned()), prefix: String::new() },
                _ => Item { root: root.unwrap_or_else(|| number.to_string()), prefix: format!("{number}.") },
            };
            if add(file, archive, &item, &mut found)?.is_none() {
                return Ok(None);
            }
        }
        Ok(found.segments(0).map(|segments| Layout { name, segments, tail: None }))
    }
}

/// The names of the tensors of a `.distcp` file, by the offsets of their archives: `.metadata` beside it has them.
fn names(file: Whole<'_>) -> Result<Option<HashMap<u64, String>>> {
    let name = file.path().and_then(|path| path.file_name()?.to_str()).filter(|name| name.ends_with(".distcp"));
    let Some((name, metadata)) = name.and_then(|name| Some((name, file.beside(".metadata")?))) else { return Ok(None) };
    let mut bytes = Vec::new();
    // A damaged checkpoint can be compressed.
    let read = metadata.take(checkpoint::Metadata::MAX_LEN + 1).read_to_end(&mut bytes);
    Ok(read.ok().and_then(|_| checkpoint::names_in(&bytes, name)))
}

/// The archives that a file consists of, in order.
fn archives(file: Whole<'_>) -> Result<Option<Vec<Archive>>> {
    let (mut archives, mut entries) = (Vec::new(), 0);
    let mut end = file.size();
    while end > 0 {
        let Some(archive) = Archive::ending_at(file, end)? else { return Ok(None) };
        entries += archive.entries.len();
        if archive.start >= end || archives.len() == MAX_ARCHIVES || entries > MAX_ENTRIES {
            return Ok(None);
        }
        end = archive.start;
        archives.push(archive);
    }
    archives.reverse();
    Ok(Some(archives))
}

/// Adds the tensors of an archive. `None` if it is not an archive of torch.
fn add(file: Whole<'_>, archive: &Archive, item: &Item, found: &mut Found) -> Result<Option<()>> {
    let mut folders: HashMap<&str, HashMap<&str, &Entry>> = HashMap::new();
    for entry in &archive.entries {
        if let Some((folder, name)) = entry.name.rsplit_once('/') {
            folders.entry(folder).or_default().insert(name, entry);
        }
    }
    for entry in &archive.entries {
        // `data.pkl` of all, `constants.pkl` of TorchScript; their storages are in folders of these names.
        let Some(stem) = entry.name.strip_suffix(".pkl") else { continue };
        let Some((top, "data" | "constants")) = stem.rsplit_once('/') else { continue };
        let Some(bytes) = entry.read(file, MAX_LEN)? else { continue };
        let Some(pickle) = Pickle::parse(&bytes) else { return Ok(None) };
        let order = match folders[top].get("byteorder") {
            Some(order) => order.read(file, 16)?,
            None => None,
        };
        if order.is_some_and(|order| order != b"little") {
            continue;
        }
        let Some(storages) = tensors::by_storage(&pickle) else { return Ok(None) };
        for (key, views) in storages {
            let Some(data) = folders.get(stem).and_then(|f| f.get(key)).filter(|e| e.stored) else { continue };
            let label = &data.name[top.len() + 1..];
            let storage = Storage { label, offset: data.offset, len: data.len };
            if found.add(&storage, &views, item).is_none() {
                return Ok(None);
            }
        }
    }
    Ok(Some(()))
}

#[cfg(test)]
mod tests;
