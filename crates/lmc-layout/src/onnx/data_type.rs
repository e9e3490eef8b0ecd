//! The types of elements in ONNX.

use crate::dtype::{Dtype, NamedDtype};

/// The dtype of a `TensorProto.DataType`.
pub(super) fn dtype_of(data_type: u64) -> Option<Dtype> {
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
