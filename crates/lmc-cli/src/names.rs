//! Special file names on the command line.

use std::path::Path;

/// The suffix of compressed files.
pub(crate) const SUFFIX: &str = "lmc";

/// Whether a path on the command line means standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The file that every store in a directory has.
pub(crate) const STORE_MARKER: &str = "lmc-store.json";
