//! Special file names on the command line.

use std::path::Path;

use lmc_store::Location;

use crate::ui::failure::{Failure, Result};

/// The suffix of compressed files.
pub(crate) const SUFFIX: &str = "lmc";

/// Suffixes of the files that hold the bulk of a checkpoint.
pub(crate) const CHECKPOINT_SUFFIXES: [&str; 10] =
    ["safetensors", "pt", "pth", "bin", "ckpt", "distcp", "gguf", "npy", "npz", "onnx"];

/// Whether a path on the command line means standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether a path on the command line is a URL, and not that of something that is there.
///
/// # Errors
/// `Usage` for what is left of a URL without its second slash.
pub(crate) fn is_url(path: &Path) -> Result<bool> {
    if path.exists() { Ok(false) } else { Location::is_url(path).map_err(|e| Failure::Usage(e.to_string())) }
}

/// The file that every store in a directory has.
pub(crate) const STORE_MARKER: &str = "lmc-store.json";
