//! Where tensors are: in files of safetensors, PyTorch, NumPy, GGUF and ONNX, and in checkpoints of several files.
//!
//! For compression a format only *suggests* segments. Nothing is rebuilt from them, so a wrong guess costs ratio, never
//! correctness: all unusual bytes are opaque.
//!
//! This crate has no `unsafe` and does not compress. The crate `lmc` re-exports what callers need, as `lmc::layout` and at its
//! root; whatever else is public here may change in any release.

#![forbid(unsafe_code)]

mod account;
pub mod distcp;
pub mod dtype;
pub mod error;
mod gguf;
pub mod io;
mod names;
mod npy;
mod npz;
mod onnx;
mod pickle;
pub mod quantised;
mod raw;
pub mod roles;
pub mod safetensors;
pub mod segment;
mod strided;
mod suggestion;
mod torch;
pub mod wrappers;
mod zip;

pub use account::{Account, Missing, Tensors};
use dtype::Dtype;
use error::{Error, Result};
use io::ReadAt;
use segment::Segment;
pub use strided::TensorView;
use suggestion::{Format, SEGMENTS};
pub use suggestion::{Layout, Prefix, RAW, Start};

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
///
/// # Errors
/// `Io` when reading fails.
pub fn detect(file: &mut dyn Prefix, dtype: Option<Dtype>) -> Result<Layout> {
    let found = recognised(file)?;
    Ok(found.filter(|layout| !layout.segments.is_empty()).unwrap_or_else(|| raw::layout(dtype)))
}

/// [`detect`] of the `size` bytes of a file.
///
/// # Errors
/// `Io` when reading fails.
pub fn layout_of(file: &dyn ReadAt, size: u64, dtype: Option<Dtype>) -> Result<Layout> {
    detect(&mut Start::new(file, size, "the input"), dtype)
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
pub fn raw() -> Layout {
    raw::layout(None)
}

/// The tensors that a file declares and whose names begin with `prefix`: those that can be given, in files of torch under each of
/// their names, and those that cannot. Whoever makes something new of tensors, or shows them, takes them from here: what the
/// segments of a file do not have is not known otherwise.
///
/// `raw` are the raw bytes of the file; `layout` and `segments` those of a `lmc::Base` or a `lmc::Reader` of them. They count where the bytes alone do not say what the file is. Of the elements nothing is read.
///
/// # Errors
/// `Unsupported` and `Limit` when the tensors of a file of torch cannot be listed, `Io` when reading fails.
pub fn tensors(raw: &dyn ReadAt, layout: &str, segments: &[Segment], prefix: &str) -> Result<Tensors> {
    let declared = declared(raw, layout, segments, prefix)?;
    Ok(declared.unwrap_or_else(|| Account::default().tensors(layout, segments, prefix)))
}

/// [`tensors`], or `None` where they are those of the segments, and no others.
///
/// # Errors
/// Those of [`tensors`].
#[doc(hidden)]
pub fn declared(raw: &dyn ReadAt, layout: &str, segments: &[Segment], prefix: &str) -> Result<Option<Tensors>> {
    let size = raw.size().map_err(|e| Error::io("cannot get the size of the file", e))?;
    let file = &mut Start::new(raw, size, "the file");
    // Whoever made the segments knows the bytes better: their beginning may look like a file.
    let is_given = layout == SEGMENTS || (layout == RAW && segments.iter().any(|s| s.dtype.is_some()));
    if is_given {
        return Ok(None);
    }
    match torch::declared(file, segments, prefix)? {
        None => Ok(recognised(file)?.map(|found| found.tensors(size, prefix))),
        found => Ok(found),
    }
}
