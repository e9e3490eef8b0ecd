//! Files of `torch.save`, TorchScript archives, and `.distcp` files of `torch.distributed.checkpoint`: zip archives,
//! one after the other, with storages as entries and a pickle that says which tensors view them
//! (<https://docs.pytorch.org/docs/stable/notes/serialization.html>); and the format of `torch.save` before version
//! 1.6.

mod archives;
pub(crate) mod checkpoint;
mod found;
mod legacy;
mod storage;
mod tensors;
mod views;

use super::account::Account;
use super::pickle::Pickle;
use super::suggestion::{Format, Layout, Prefix, Whole};
use super::zip::Archive;
use crate::error::Result;
use archives::{Archives, Folders};
use found::Found;
pub(super) use legacy::Legacy;
use storage::Item;
pub(super) use views::declared;

pub(super) struct Torch;

impl Format for Torch {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        let Some(archives) = Archives::of(file)? else { return Ok(None) };
        let Some(file) = file.whole() else { return Ok(None) };
        let mut found = Found::default();
        for (archive, item) in archives.items() {
            if add(file, archive, &item, &mut found)?.is_none() {
                return Ok(None);
            }
        }
        Ok(found.segments(0).map(|segments| Layout::new(archives.format(), segments, Account::default())))
    }
}

/// Adds the tensors of an archive. `None` if it is not an archive of torch.
fn add(file: Whole<'_>, archive: &Archive, item: &Item, found: &mut Found) -> Result<Option<()>> {
    for stored in Folders::of(archive).pickles() {
        let Some(bytes) = stored.read(file)? else { continue };
        let Some(pickle) = Pickle::parse(&bytes) else { return Ok(None) };
        if !stored.is_little_endian(file)? {
            continue;
        }
        let Some(storages) = tensors::by_storage(&pickle) else { return Ok(None) };
        for (key, views) in storages {
            let Some(storage) = stored.storage(key) else { continue };
            if found.add(&storage, &views, item).is_none() {
                return Ok(None);
            }
        }
    }
    Ok(Some(()))
}

#[cfg(test)]
mod tests;
