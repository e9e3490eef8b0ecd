//! Host formats: the places of the tensors of a file.
//!
//! A format only *suggests* segments. Nothing is rebuilt from them, so a wrong guess
//! costs ratio, never correctness: all unusual bytes are opaque. A new format is a file beside this one and a line in
//! [`FORMATS`].

mod gguf;
mod names;
mod npy;
mod npz;
mod onnx;
mod pickle;
mod raw;
pub(crate) mod safetensors;
mod suggestion;
pub(crate) mod torch;
mod zip;

use crate::dtype::Dtype;
use crate::error::Result;
use suggestion::Format;
pub use suggestion::Layout;
pub(crate) use suggestion::{Prefix, RAW, Start};

/// Every known format. The first that recognises a file wins.
const FORMATS: &[&dyn Format] = &[
    &safetensors::Safetensors,
    &torch::Torch,
    &torch::Legacy,
    &npz::Npz,
    &npy::Npy,
    &gguf::Gguf,
    &onnx::Onnx,
    &onnx::External,
];

/// The layout of a file; that of raw data of type `dtype` if its format is unknown.
pub(crate) fn detect(file: &mut dyn Prefix, dtype: Option<Dtype>) -> Result<Layout> {
    for format in FORMATS {
        if let Some(layout) = format.suggest(file)? {
            return Ok(layout);
        }
    }
    Ok(raw::layout(dtype))
}

/// The layout of a file of unknown format.
pub(crate) fn raw() -> Layout {
    raw::layout(None)
}
