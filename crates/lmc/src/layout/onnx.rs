//! ONNX: a model as one protobuf message (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>).
//!
//! Tensors are the `raw_data` of initialisers, of sparse ones, and of attributes of nodes, in the graph and in the graphs inside it, or
//! their packed `float_data` and `double_data`. Values in other typed fields are varints. The walk skips from field to field and reads no
//! tensor; as it needs fields from the whole file, streams stay raw.
//!
//! A file of external data does not describe itself: the model beside it names the tensors and their places.

mod data_type;
mod message;
mod wire;

use std::cmp::Reverse;
use std::path::Path;

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
        let Some(tensors) = tensors(file, None)? else { return Ok(None) };
        // Other messages may look like a model without tensors.
        let segments = if tensors.is_empty() { None } else { cover(0, tensors) };
        Ok(segments.map(|segments| Layout { name: NAME, segments, tail: None }))
    }
}

/// External data of a model.
pub(super) struct External;

impl Format for External {
    fn suggest(&self, file: &mut dyn Prefix) -> Result<Option<Layout>> {
        let Some(file) = file.whole() else { return Ok(None) };
        let Some(location) = file.path().and_then(|path| path.file_name()?.to_str()) else { return Ok(None) };
        let Some(model) = model_of(location).and_then(|name| file.beside(&name)) else { return Ok(None) };
        let Some(model) = Whole::of(&model) else { return Ok(None) };
        // A fault of the model is no error of this file.
        let segments = external(model, location, file.size()).unwrap_or(None);
        Ok(segments.map(|segments| Layout { name: NAME, segments, tail: None }))
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

/// The segments of a file of external data of `size` bytes that a model calls `location`; `None` if it has no tensor there.
fn external(model: Whole<'_>, location: &str, size: u64) -> Result<Option<Vec<Segment>>> {
    let Some(mut tensors) = tensors(model, Some(location))? else { return Ok(None) };
    // Of tensors that overlap the longest is kept: others share its bytes.
    tensors.sort_by_key(|t| (t.offset, Reverse(t.len)));
    let mut at = 0;
    tensors.retain(|t| {
        let kept = t.offset >= at && t.offset.checked_add(t.len).is_some_and(|end| end <= size);
        if kept {
            at = t.end();
        }
        kept
    });
    Ok(if tensors.is_empty() { None } else { cover(0, tensors) })
}

/// The tensors of a model: those inside it, or those in the file of external data called `location`.
fn tensors(model: Whole<'_>, location: Option<&str>) -> Result<Option<Vec<Segment>>> {
    let (names, size) = (Names::default(), model.size());
    let mut walk = Walk { wire: Wire::new(model), names, tensors: Vec::new(), left: MAX_COST, location };
    match walk.model(size) {
        Ok(()) => {}
        Err(Stop::Invalid) => return Ok(None),
        Err(Stop::Failed(e)) => return Err(e),
    }
    let Walk { names, tensors, .. } = walk;
    names.finish();
    Ok(Some(tensors))
}

#[cfg(test)]
mod tests;
