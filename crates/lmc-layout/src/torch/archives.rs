//! The zip archives that a file consists of, their pickles, and the storages of each.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::super::pickle::MAX_LEN;
use super::super::suggestion::{Prefix, Whole};
use super::super::zip::{Archive, Entry};
use super::storage::{Item, Storage};
use super::{checkpoint, legacy};
use crate::error::Result;

/// Most archives in a file, and entries in all of them.
const MAX_ARCHIVES: usize = 1 << 18;
const MAX_ENTRIES: usize = 1 << 20;

/// The versions of archives that torch reads (`caffe2/serialize/versions.h`).
const VERSIONS: RangeInclusive<u64> = 1..=10;

/// The archives of a file, in order.
pub(super) struct Archives {
    all: Vec<Archive>,
    /// The names of the tensors of a `.distcp` file, by the offsets of their archives.
    names: Option<HashMap<u64, String>>,
    /// Whether the file is called so.
    is_distcp: bool,
}

impl Archives {
    /// `None` if the file does not consist of archives.
    pub(super) fn of(file: &mut dyn Prefix) -> Result<Option<Self>> {
        if !file.get(4)?.starts_with(b"PK\x03\x04") {
            return Ok(None);
        }
        let Some(file) = file.whole() else { return Ok(None) };
        let Some(all) = archives(file)? else { return Ok(None) };
        let is_distcp = file.path().is_some_and(|path| path.extension().is_some_and(|e| e == "distcp"));
        Ok(Some(Self { all, names: names(file)?, is_distcp }))
    }

    /// Whether they are those of a `.distcp` file: torch loads no file of several archives.
    pub(super) fn are_of_a_checkpoint(&self) -> bool {
        self.names.is_some() || self.is_distcp
    }

    /// The name of their format.
    pub(super) fn format(&self) -> &'static str {
        if self.all.len() > 1 || self.names.is_some() { "distcp" } else { legacy::NAME }
    }

    /// Each archive, and how its tensors are named.
    pub(super) fn items(&self) -> impl Iterator<Item = (&Archive, Item)> {
        self.all.iter().enumerate().map(|(number, archive)| {
            let root = self.names.as_ref().and_then(|names| names.get(&archive.start).cloned());
            let item = match self.all.len() {
                1 => Item { root: root.unwrap_or_else(|| "0".to_owned()), prefix: String::new() },
                _ => Item { root: root.unwrap_or_else(|| number.to_string()), prefix: format!("{number}.") },
            };
            (archive, item)
        })
    }
}

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

/// The names of the tensors of a `.distcp` file: `.metadata` beside it has them.
fn names(file: Whole<'_>) -> Result<Option<HashMap<u64, String>>> {
    let name = file.path().and_then(|path| path.file_name()?.to_str()).filter(|name| name.ends_with(".distcp"));
    let Some((name, metadata)) = name.and_then(|name| Some((name, file.beside(".metadata")?))) else { return Ok(None) };
    // A damaged checkpoint can be compressed.
    let bytes = Whole::of(&*metadata).and_then(|metadata| {
        let len = metadata.size().min(checkpoint::Metadata::MAX_LEN + 1);
        metadata.bytes(0, len as usize).ok()?
    });
    Ok(bytes.and_then(|bytes| checkpoint::names_in(&bytes, name)))
}

/// The entries of an archive, by their folders and names.
pub(super) struct Folders<'e> {
    archive: &'e Archive,
    all: HashMap<&'e str, HashMap<&'e str, &'e Entry>>,
}

impl<'e> Folders<'e> {
    pub(super) fn of(archive: &'e Archive) -> Self {
        let mut all: HashMap<&str, HashMap<&str, &Entry>> = HashMap::new();
        for entry in &archive.entries {
            if let Some((folder, name)) = entry.name.rsplit_once('/') {
                all.entry(folder).or_default().insert(name, entry);
            }
        }
        Self { archive, all }
    }

    /// Why torch refuses the archive, if it does: its reader wants a version, and all entries in one folder, that of the first one.
    pub(super) fn refusal(&self, file: Whole<'_>) -> Result<Option<&'static str>> {
        let Some((top, _)) = self.archive.entries.first().and_then(|entry| entry.name.split_once('/')) else {
            return Ok(Some("its archive has no folder, and torch refuses such files"));
        };
        let mut names = HashSet::new();
        for entry in &self.archive.entries {
            if !entry.name.strip_prefix(top).is_some_and(|rest| rest.starts_with('/')) {
                return Ok(Some("its archive has several folders, and torch refuses such files"));
            }
            if !names.insert(&entry.name) {
                return Ok(Some("two entries of its archive have the same name"));
            }
        }
        let version = |place| self.entry(&format!("{top}/{place}"));
        let Some(version) = version("version").or_else(|| version(".data/version")) else {
            return Ok(Some("its archive has no version, and torch refuses such files"));
        };
        let text = version.read(file, 16)?;
        let number = text.as_deref().and_then(|text| str::from_utf8(text).ok()?.trim_ascii().parse::<u64>().ok());
        let is_known = number.is_some_and(|number| VERSIONS.contains(&number));
        Ok((!is_known).then_some("its archive is of a version that torch does not read"))
    }

    fn entry(&self, name: &str) -> Option<&'e Entry> {
        let (folder, name) = name.rsplit_once('/')?;
        self.all.get(folder)?.get(name).copied()
    }

    /// The folder of the first entry, in which torch looks for the others.
    pub(super) fn top(&self) -> &str {
        self.archive.entries.first().and_then(|entry| entry.name.split_once('/')).map_or("", |(top, _)| top)
    }

    /// The pickles that may have tensors: `data.pkl` of all, `constants.pkl` of TorchScript.
    pub(super) fn pickles(&self) -> impl Iterator<Item = Stored<'_>> {
        self.archive.entries.iter().filter_map(|entry| {
            let stem = entry.name.strip_suffix(".pkl")?;
            let (top, "data" | "constants") = stem.rsplit_once('/')? else { return None };
            let order = self.all[top].get("byteorder").copied();
            // Storages are in a folder of the pickle's name.
            Some(Stored { entry, top, order, storages: self.all.get(stem) })
        })
    }
}

/// A pickle of an archive.
pub(super) struct Stored<'e> {
    entry: &'e Entry,
    top: &'e str,
    order: Option<&'e Entry>,
    storages: Option<&'e HashMap<&'e str, &'e Entry>>,
}

impl Stored<'_> {
    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    /// The folder that it is in.
    pub(super) fn top(&self) -> &str {
        self.top
    }

    /// Its bytes; `None` if they are compressed, or too many.
    pub(super) fn read(&self, file: Whole<'_>) -> Result<Option<Vec<u8>>> {
        self.entry.read(file, MAX_LEN)
    }

    pub(super) fn is_little_endian(&self, file: Whole<'_>) -> Result<bool> {
        let order = self.order.map(|order| order.read(file, 16)).transpose()?.flatten();
        Ok(order.is_none_or(|order| order == b"little"))
    }

    /// The storage with a key; `None` if there is none, or it is compressed.
    pub(super) fn storage(&self, key: &str) -> Option<Storage> {
        let data = self.storages?.get(key).filter(|entry| entry.stored)?;
        Some(Storage { label: data.name[self.top.len() + 1..].to_owned(), offset: data.offset, len: data.len })
    }
}
