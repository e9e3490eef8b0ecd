//! ONNX: a model as one protobuf message (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>).
//!
//! Tensors are the `raw_data` of initialisers, of sparse ones, and of attributes of nodes, in the graph and in the graphs inside it, or
//! their packed `float_data` and `double_data`. Values in other typed fields are varints. The walk skips from field to field and reads no
//! tensor; as it needs fields from the whole file, streams stay raw.
//!
//! A file of external data does not describe itself: a model beside it, or one that was compressed since, names the tensors and their
//! places.

mod data_type;
mod message;
mod wire;

use std::cmp::Reverse;
use std::path::Path;

use super::account::Account;
use super::suggestion::{Format, Layout, MAX_COST, Prefix, Whole, cover};
use crate::error::Result;
use crate::segment::{Names, Segment};
use message::Walk;
use wire::{Stop, Wire};

/// The first field, `ir_version`: a varint of one byte.
const IR_VERSION: u8 = 8;

pub(super) struct Onnx;

impl Format for Onnx {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        if !matches!(file.get(2)?, [IR_VERSION, 1..0x80]) {
            return Ok(None);
        }
        let Some(file) = file.whole() else { return Ok(None) };
        let Some((tensors, account)) = tensors(file, None)? else { return Ok(None) };
        let segments = match tensors.is_empty() {
            // Other messages may look like a model without tensors.
            true if account.is_complete() => None,
            true => Some(vec![]),
            false => cover(0, tensors),
        };
        Ok(segments.map(|segments| Layout::new(NAME, segments, account)))
    }
}

/// External data of a model.
pub(super) struct External;

impl Format for External {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        let Some(file) = file.whole() else { return Ok(None) };
        let Some(location) = file.path().and_then(|path| path.file_name()?.to_str()) else { return Ok(None) };
        // Most often the first one is it.
        for name in model_of(location).into_iter().chain(models_beside(file.path())) {
            let Some(model) = file.beside(&name) else { continue };
            let Some(model) = Whole::of(&*model) else { continue };
            // A fault of the model is no error of this file.
            if let Some(layout) = external(model, location, file.size()).unwrap_or(None) {
                return Ok(Some(layout));
            }
        }
        Ok(None)
    }
}

/// The layout's name.
const NAME: &str = "onnx";

/// The name that the model of a file of external data has most often: `m.onnx` for `m.onnx.data`, `m.onnx_data` and `m.data`.
fn model_of(location: &str) -> Option<String> {
    let name = match location.find(".onnx") {
        Some(at) => format!("{}.onnx", &location[..at]),
        None => format!("{}.onnx", Path::new(location).file_stem()?.to_str()?),
    };
    Some(name).filter(|name| name != location)
}

/// Most models that are looked into for the name of a file, and most files of a directory in which they are searched for.
const MAX_MODELS: usize = 16;
const MAX_FILES: usize = 1 << 10;

/// The models in the directory of a file, also those that were compressed since, in the order of their names. None if it has too many
/// files: each of them may be asked for.
fn models_beside(path: Option<&Path>) -> Vec<String> {
    let directory = path.and_then(Path::parent).map(|parent| match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    });
    let Some(Ok(entries)) = directory.map(std::fs::read_dir) else { return Vec::new() };
    let names: Vec<_> = entries.take(MAX_FILES + 1).map_while(|entry| Some(entry.ok()?.file_name())).collect();
    if names.len() > MAX_FILES {
        return Vec::new();
    }
    let model = |name: &std::ffi::OsString| {
        let name = name.to_str()?;
        let name = name.strip_suffix(".lmc").unwrap_or(name);
        name.ends_with(".onnx").then(|| name.to_owned())
    };
    let mut models: Vec<String> = names.iter().filter_map(model).collect();
    models.sort_unstable();
    models.dedup();
    models.truncate(MAX_MODELS);
    models
}

/// The layout of a file of external data of `size` bytes that a model calls `location`; `None` if it has no tensor there.
fn external(model: Whole<'_>, location: &str, size: u64) -> Result<Option<Layout>> {
    let Some((mut tensors, mut account)) = tensors(model, Some(location))? else { return Ok(None) };
    // Of tensors that overlap the longest is kept: others share its bytes.
    tensors.sort_by_key(|t| (t.offset, Reverse(t.len)));
    let mut at = 0;
    tensors.retain(|t| {
        let is_whole = t.offset.checked_add(t.len).is_some_and(|end| end <= size);
        let kept = t.offset >= at && is_whole;
        if kept {
            at = t.end();
        } else {
            let why =
                if is_whole { "its bytes are also those of another tensor" } else { "the file ends before it does" };
            account.missing(t.name.as_deref().unwrap_or_default(), why);
        }
        kept
    });
    let segments = if tensors.is_empty() { None } else { cover(0, tensors) };
    Ok(segments.map(|segments| Layout::new(NAME, segments, account)))
}

/// The tensors of a model, and the account of them: those inside it, or those in the file of external data called `location`.
fn tensors(model: Whole<'_>, location: Option<&str>) -> Result<Option<(Vec<Segment>, Account)>> {
    let (names, account, size) = (Names::default(), Account::default(), model.size());
    let mut walk = Walk { wire: Wire::new(model), names, tensors: Vec::new(), account, left: MAX_COST, location };
    match walk.model(size) {
        Ok(()) => {}
        Err(Stop::Invalid) => return Ok(None),
        Err(Stop::Failed(e)) => return Err(e),
    }
    let Walk { names, tensors, account, .. } = walk;
    names.finish();
    Ok(Some((tensors, account)))
}

#[cfg(test)]
mod tests;
