//! The format of `torch.save` before version 1.6, which it still writes on request: pickles of a magic number, a
//! version, the system, the object and the storages' keys; then for each key a number of elements and their bytes.

use std::collections::HashMap;

use super::super::pickle::{Id, MAX_LEN, Pickle, Value};
use super::super::suggestion::{Format, Layout, Prefix};
use super::found::Found;
use super::storage::{Item, Storage};
use super::tensors;
use crate::error::Result;

/// The magic number as protocol 2 pickles it.
const MAGIC: [u8; 15] = [0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];
/// Bytes that are read first, for pickles whose length is not known.
const FIRST: usize = 1 << 15;

pub(in super::super) struct Legacy;

impl Format for Legacy {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        if file.get(MAGIC.len())? != MAGIC {
            return Ok(None);
        }
        // Each try has four times as many bytes, so that all of them take no longer than two of the last.
        let mut tried = FIRST;
        let bytes = loop {
            let bytes = file.get(tried)?;
            if bytes.len() < tried || pickles(bytes).is_some() || tried as u64 >= MAX_LEN {
                break bytes.to_vec();
            }
            tried *= 4;
        };
        let Some(whole) = file.whole() else { return Ok(None) };
        let Some((object, keys, mut at)) = pickles(&bytes) else { return Ok(None) };
        let Some(storages) = tensors::by_storage(&object) else { return Ok(None) };
        let mut storages: HashMap<_, _> = storages.into_iter().collect();
        let start = at;
        let mut found = Found::default();
        let item = Item { root: "0".to_owned(), prefix: String::new() };
        // Keys are addresses of the writer's memory: names show the number.
        for (number, &key) in keys.sequence(keys.root).unwrap_or_default().iter().enumerate() {
            let Some(key) = keys.str(key) else { return Ok(None) };
            let mut count = [0; 8];
            if !whole.read(&mut count, at)? {
                return Ok(None);
            }
            at += 8;
            let Some(views) = storages.remove(key) else { return Ok(None) };
            let Some(elements) = views.first().and_then(|v| v.elements) else { return Ok(None) };
            let width = u64::from(elements.dtype.bits()) * elements.count / 8;
            let len = u64::from_le_bytes(count).checked_mul(width);
            let Some(len) = len.filter(|&len| len <= whole.size() - at) else { return Ok(None) };
            let storage = Storage { label: &format!("data/{number}"), offset: at, len };
            if found.add(&storage, &views, &item).is_none() {
                return Ok(None);
            }
            at += len;
        }
        Ok(found.segments(start).map(|segments| Layout { name: "torch", segments, tail: None }))
    }
}

/// The pickles of the object and of the storages' keys, and where the storages begin.
fn pickles(bytes: &[u8]) -> Option<(Pickle<'_>, Pickle<'_>, u64)> {
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
    Some((object, keys, at as u64))
}

fn is_big_endian(system: &Pickle<'_>) -> bool {
    let Value::Dict(items) = system.get(system.root) else { return true };
    let key = |id: Id| system.str(id) == Some("little_endian");
    !items.iter().any(|&(name, value)| key(name) && matches!(system.get(value), Value::Bool(true)))
}
