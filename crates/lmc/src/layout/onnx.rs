//! ONNX: a model as one protobuf message (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>).
//!
//! Tensors are the `raw_data` of initialisers, of sparse ones, and of attributes of nodes, in the graph and in the graphs inside it. Values
//! in typed fields, such as `float_data`, and those in other files are not looked for. The walk skips from field to field and reads no
//! tensor; as it needs fields from the whole file, streams stay raw.

mod message;
mod wire;

use super::suggestion::{Format, Layout, MAX_COST, Prefix, cover};
use crate::dtype::{Dtype, NamedDtype};
use crate::error::Result;
use crate::segment::{Names, Segment};
use message::Walk;
use wire::{Stop, Wire};

/// Most bytes that are read of a file: what lies between its tensors.
const MAX_READ: u64 = 1 << 26;

/// The most graphs inside each other that are looked into.
const MAX_DEPTH: u32 = 16;

/// Bytes of the longest name that a tensor keeps.
const MAX_NAME: u64 = 1 << 12;

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

/// The dtype of a `TensorProto.DataType`.
fn dtype_of(data_type: u64) -> Option<Dtype> {
    let named = |name, bits| NamedDtype::new(name, bits).map(Dtype::Named);
    Some(match data_type {
        1 => Dtype::F32,
        2 => Dtype::U8,
        3 => Dtype::I8,
        4 => Dtype::U16,
        5 => Dtype::I16,
        6 => Dtype::I32,
        7 => Dtype::I64,
        9 => Dtype::Bool,
        10 => Dtype::F16,
        11 => Dtype::F64,
        12 => Dtype::U32,
        13 => Dtype::U64,
        14 => Dtype::C64,
        16 => Dtype::Bf16,
        17 => Dtype::F8E4M3,
        18 => Dtype::F8E4M3Fnuz,
        19 => Dtype::F8E5M2,
        20 => Dtype::F8E5M2Fnuz,
        21 => named("UINT4", 4)?,
        22 => named("INT4", 4)?,
        23 => Dtype::F4,
        24 => Dtype::F8E8M0,
        25 => named("UINT2", 2)?,
        26 => named("INT2", 2)?,
        // Strings, and complex numbers of two binary64.
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
