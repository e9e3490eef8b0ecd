//! ONNX: a model as one protobuf message (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>).
//!
//! Tensors are the `raw_data` of initialisers, of sparse ones, and of attributes of nodes, in the graph and in the graphs inside it. Values
//! in typed fields, such as `float_data`, and those in other files are not looked for. The walk skips from field to field and reads no
//! tensor; as it needs fields from the whole file, streams stay raw.

mod data_type;
mod message;
mod wire;

use super::suggestion::{Format, Layout, MAX_COST, Prefix, cover};
use crate::error::Result;
use crate::segment::Names;
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
        let mut walk = Walk { wire: Wire::new(file), names: Names::default(), tensors: Vec::new(), left: MAX_COST };
        match walk.model(file.size()) {
            Ok(()) => {}
            Err(Stop::Invalid) => return Ok(None),
            Err(Stop::Failed(e)) => return Err(e),
        }
        let Walk { names, tensors, .. } = walk;
        names.finish();
        // Other messages may look like a model without tensors.
        let segments = if tensors.is_empty() { None } else { cover(0, tensors) };
        Ok(segments.map(|segments| Layout { name: "onnx", segments, tail: None }))
    }
}

#[cfg(test)]
mod tests;
