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
mod strided;
mod suggestion;
pub(crate) mod torch;
mod zip;

use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::segment::Segment;
pub use strided::TensorView;
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

/// The tensors of a file whose names begin with `prefix`: those that are segments, and in files of torch all that it
/// loads, under each of their names. Several of them may have the same elements, or elements that are not in order.
///
/// `raw` are the raw bytes of the file, and `segments` those of [`Base::segments`](crate::Base::segments) or
/// [`Reader::segments`](crate::Reader::segments). Of the elements nothing is read.
///
/// # Errors
/// `Unsupported`, `Damaged` and `Limit` when a tensor with such a name, or whose name is unknown, cannot be read; `Io`
/// when reading fails.
///
/// ```
/// let mut raw = b"\x35\0\0\0\0\0\0\0".to_vec();
/// raw.extend(br#"{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#);
/// raw.extend([1, 2, 3]);
/// let views = lmc::tensor_views(&raw, lmc::Base::new(&raw[..])?.segments(), "")?;
/// assert_eq!((&views[0].name[..], views[0].elements.offset), ("w", 61));
/// # Ok::<(), lmc::Error>(())
/// ```
pub fn tensor_views(raw: &dyn ReadAt, segments: &[Segment], prefix: &str) -> Result<Vec<TensorView>> {
    let size = raw.size().map_err(|e| Error::io("cannot get the size of the file", e))?;
    let found = torch::views(&mut Start::new(raw, size, "the file"), segments, prefix)?;
    let of_segments = || segments.iter().filter_map(TensorView::of_segment).filter(|t| t.name.starts_with(prefix));
    Ok(found.unwrap_or_else(|| of_segments().collect()))
}
