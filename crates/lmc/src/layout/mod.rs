//! Where tensors are: in files of safetensors, PyTorch, NumPy, GGUF and ONNX, and in checkpoints of several files.
//!
//! For compression a format only *suggests* segments. Nothing is rebuilt from them, so a wrong guess costs ratio, never
//! correctness: all unusual bytes are opaque.

mod account;
pub mod distcp;
mod gguf;
mod names;
mod npy;
mod npz;
mod onnx;
mod pickle;
mod raw;
pub mod safetensors;
mod strided;
pub(crate) mod suggestion;
pub(crate) mod torch;
mod zip;

use crate::dtype::Dtype;
pub use crate::dtype::NamedDtype;
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::segment::Segment;
pub use crate::segment::{Name, Shape, tensor_len};
use account::Account;
pub use account::{Missing, Tensors};
pub use strided::TensorView;
use suggestion::{Format, SEGMENTS};
pub(crate) use suggestion::{Layout, Prefix, RAW, Start};

/// Every known format. The first that recognises a file wins. A new one is a file beside this one and a line here.
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
    let found = recognised(file)?;
    Ok(found.filter(|layout| !layout.segments.is_empty()).unwrap_or_else(|| raw::layout(dtype)))
}

/// The layout of a file of a known format. Without segments if all of its tensors are missing, and its bytes as good as raw.
fn recognised(file: &mut dyn Prefix) -> Result<Option<Layout>> {
    for format in FORMATS {
        if let Some(layout) = format.suggest(file)? {
            return Ok(Some(layout));
        }
    }
    Ok(None)
}

/// The layout of a file of unknown format.
pub(crate) fn raw() -> Layout {
    raw::layout(None)
}

/// The tensors that a file declares and whose names begin with `prefix`: those that can be given, in files of torch under each of
/// their names, and those that cannot. Whoever makes something new of tensors, or shows them, takes them from here: what the
/// segments of a file do not have is not known otherwise.
///
/// `raw` are the raw bytes of the file; `layout` and `segments` those of a [`Base`](crate::Base) or a
/// [`Reader`](crate::Reader) of them. They count where the bytes alone do not say what the file is. Of the elements nothing is read.
///
/// # Errors
/// `Unsupported` and `Limit` when the tensors of a file of torch cannot be listed, `Io` when reading fails.
///
/// ```
/// let mut raw = b"\x35\0\0\0\0\0\0\0".to_vec();
/// raw.extend(br#"{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#);
/// raw.extend([1, 2, 3]);
/// let base = lmc::Base::new(&raw[..])?;
/// let tensors = lmc::layout::tensors(&raw, base.layout(), base.segments(), "")?;
/// assert_eq!((&tensors.found[0].name[..], tensors.found[0].elements.offset), ("w", 61));
/// assert!(tensors.is_complete());
/// let longer = [&raw[..], &[4]].concat();
/// let base = lmc::Base::new(&longer[..])?;
/// let tensors = lmc::layout::tensors(&longer, base.layout(), base.segments(), "")?;
/// assert!(tensors.missing[0].why.starts_with("no tensor has the bytes 64 to 65"));
/// # Ok::<(), lmc::Error>(())
/// ```
pub fn tensors(raw: &dyn ReadAt, layout: &str, segments: &[Segment], prefix: &str) -> Result<Tensors> {
    let size = raw.size().map_err(|e| Error::io("cannot get the size of the file", e))?;
    let file = &mut Start::new(raw, size, "the file");
    // Whoever made the segments knows the bytes better: their beginning may look like a file.
    let is_given = layout == SEGMENTS || (layout == RAW && segments.iter().any(|s| s.dtype.is_some()));
    if !is_given {
        if let Some(found) = torch::declared(file, segments, prefix)? {
            return Ok(found);
        }
        if let Some(found) = recognised(file)? {
            return Ok(found.tensors(size, prefix));
        }
    }
    Ok(Account::default().tensors(layout, segments, prefix))
}
