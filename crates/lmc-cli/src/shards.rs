//! Checkpoints of several files, and their index.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::format::{Name, count};
use crate::input::Source;
use crate::names::SUFFIX;

/// The suffix of such indexes: `model.safetensors.index.json`.
const INDEX: &str = ".index.json";
/// The largest index, in bytes.
const MAX_INDEX: u64 = 100_000_000;

/// What a path leads to.
pub(crate) enum Index {
    /// The index of a checkpoint: the names of its files, which are in its directory.
    Of(BTreeSet<String>),
    /// A file with the name of an index that is not JSON, as one that is not completely written.
    Torn,
    /// Anything else.
    No,
}

/// Reads a file if it is an index.
pub(crate) fn index(path: &Path) -> Result<Index> {
    // Nothing else is opened: opening a FIFO waits.
    if !is_index(path) || !path.is_file() {
        return Ok(Index::No);
    }
    let source = Source::open(path)?;
    if source.metadata().len() > MAX_INDEX {
        return Ok(Index::No);
    }
    let text = std::io::read_to_string(source.stream()).map_err(|e| Failure::io(path, "cannot read", &e))?;
    let Ok(json) = serde_json::from_str::<Value>(&text) else { return Ok(Index::Torn) };
    let Some(map) = json.get("weight_map").and_then(Value::as_object) else { return Ok(Index::No) };
    let mut names = BTreeSet::new();
    for value in map.values() {
        let name = value.as_str().filter(|n| Path::new(n).file_name() == Some(OsStr::new(n)));
        let name = name.ok_or_else(|| {
            Failure::at(path, format_args!("has a weight_map with {value}, which is not the name of a file beside it"))
        })?;
        names.insert(name.to_owned());
    }
    Ok(Index::Of(names))
}

/// The names of a checkpoint's files; `None` if the path is not an index.
pub(crate) fn shards(path: &Path) -> Result<Option<BTreeSet<String>>> {
    Ok(match index(path)? {
        Index::Of(names) => Some(names),
        Index::Torn | Index::No => None,
    })
}

/// Fails if a path is an index, for commands that take each file by itself: says which files these are.
pub(crate) fn refuse_index(path: &Path) -> Result {
    let Some(names) = shards(path)? else { return Ok(()) };
    let Some(first) = names.first() else { return Ok(()) };
    let compressed = with_suffix(path, first);
    let file = if compressed.exists() { compressed } else { path.with_file_name(first) };
    let (number, file) = (count(names.len(), "file"), Name::path(&file));
    let what = format_args!("is the index of a checkpoint of {number}: name one of its files, such as {file}");
    Err(Failure::at(path, what))
}

/// Whether a path has the name of such an index.
pub(crate) fn is_index(path: &Path) -> bool {
    path.to_string_lossy().ends_with(INDEX)
}

/// Where a file that an index names is: under its name, or as the compressed form that took its place. `None` if it is not there.
pub(crate) fn named_by(index: &Path, name: &str) -> Option<PathBuf> {
    let (plain, compressed) = (index.with_file_name(name), with_suffix(index, name));
    // Opening a link that leads nowhere says so.
    let dangling = plain.is_symlink().then(|| plain.clone());
    [plain, compressed].into_iter().find(|path| path.exists()).or(dangling)
}

/// The compressed form of a file beside `index`.
pub(crate) fn with_suffix(index: &Path, name: &str) -> PathBuf {
    index.with_file_name(format!("{name}.{SUFFIX}"))
}
