//! The format of `torch.save` before version 1.6, which it still writes on request: pickles of a magic number, a
//! version, the system, the object and the storages' keys; then for each key a number of elements and their bytes.

use std::collections::HashMap;

use super::super::account::Account;
use super::super::pickle::{Id, MAX_LEN, Pickle, Value};
use super::super::suggestion::{Format, Layout, Prefix, Whole};
use super::found::Found;
use super::storage::{Item, Storage};
use super::tensors::{self, View};
use crate::error::Result;

/// The layout's name.
pub(super) const NAME: &str = "torch";
/// The magic number as protocol 2 pickles it.
const MAGIC: [u8; 15] = [0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];
/// Bytes that are read first, for pickles whose length is not known.
const FIRST: usize = 1 << 15;

pub(in super::super) struct Legacy;

impl Format for Legacy {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        let Some(bytes) = beginning(file)? else { return Ok(None) };
        let Some(whole) = file.whole() else { return Ok(None) };
        let Some(contents) = Contents::parse(&bytes) else { return Ok(None) };
        let Some(storages) = contents.storages(whole)? else { return Ok(None) };
        let mut found = Found::default();
        for (_, storage, views) in &storages {
            if found.add(storage, views, &item()).is_none() {
                return Ok(None);
            }
        }
        Ok(found.segments(contents.end).map(|segments| Layout::new(NAME, segments, Account::default())))
    }
}

/// A storage, its key, and the tensors that view it.
type Viewed<'a> = (&'a str, Storage, Vec<View<'a>>);

/// How the tensors of a file are named.
pub(super) fn item() -> Item {
    Item { root: "0".to_owned(), prefix: String::new() }
}

/// The bytes that the pickles are in; `None` if the file is not in this format.
pub(super) fn beginning(file: &mut dyn Prefix) -> Result<Option<Vec<u8>>> {
    if file.get(MAGIC.len())? != MAGIC {
        return Ok(None);
    }
    // Each try has four times as many bytes, so that all of them take no longer than two of the last.
    let mut tried = FIRST;
    loop {
        let bytes = file.get(tried)?;
        if bytes.len() < tried || Contents::parse(bytes).is_some() || tried as u64 >= MAX_LEN {
            return Ok(Some(bytes.to_vec()));
        }
        tried *= 4;
    }
}

/// The pickles of a file.
pub(super) struct Contents<'a> {
    pub(super) object: Pickle<'a>,
    /// The keys of the storages, in their order.
    keys: Pickle<'a>,
    /// Where the storages begin.
    end: u64,
}

impl<'a> Contents<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut at = MAGIC.len();
        let mut next = || {
            let pickle = Pickle::parse(&bytes[at..])?;
            at += pickle.len;
            Some(pickle)
        };
        let (_version, system) = (next()?, next()?);
        if is_big_endian(&system) {
            return None;
        }
        let (object, keys) = (next()?, next()?);
        Some(Self { object, keys, end: at as u64 })
    }

    /// The storages, each with the tensors that view it. `None` if they are not as the pickles say.
    pub(super) fn storages(&self, file: Whole<'_>) -> Result<Option<Vec<Viewed<'a>>>> {
        let Some(storages) = tensors::by_storage(&self.object) else { return Ok(None) };
        let mut by_key: HashMap<_, _> = storages.into_iter().collect();
        let of_class = tensors::widths(&self.object);
        let (mut found, mut at) = (Vec::new(), self.end);
        // Keys are addresses of the writer's memory: names show the number.
        for (number, &key) in self.keys.sequence(self.keys.root).unwrap_or_default().iter().enumerate() {
            let Some(key) = self.keys.str(key) else { return Ok(None) };
            let mut count = [0; 8];
            if !file.read(&mut count, at)? {
                return Ok(None);
            }
            at += 8;
            let width = of_class.get(key).copied().flatten();
            let len = width.and_then(|width| u64::from_le_bytes(count).checked_mul(width));
            let Some(len) = len.filter(|&len| len <= file.size() - at) else { return Ok(None) };
            let views = by_key.remove(key).unwrap_or_default();
            found.push((key, Storage { label: format!("data/{number}"), offset: at, len }, views));
            at += len;
        }
        Ok(Some(found))
    }
}

fn is_big_endian(system: &Pickle<'_>) -> bool {
    let Value::Dict(items) = system.get(system.root) else { return true };
    let key = |id: Id| system.str(id) == Some("little_endian");
    !items.iter().any(|&(name, value)| key(name) && matches!(system.get(value), Value::Bool(true)))
}
