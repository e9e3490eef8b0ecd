//! Names of files: which file of the checkpoint before belongs to one.

use std::path::Path;

use lmc::Base;

/// The order in which the files of the checkpoint before are searched for the tensors of a file. Files of ranks have tensors
/// of the same names: the file of the same name comes first, then those of the same name in other directories.
pub(super) fn order_for(file: &Base<'_>, old: &[Base<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..old.len()).collect();
    let name = uncompressed(file.name());
    let last = last_component(name);
    order.sort_by_cached_key(|&i| {
        let old = uncompressed(old[i].name());
        (old != name, last_component(old) != last)
    });
    order
}

/// The name of a file without its directories.
pub(super) fn last_component(name: &str) -> String {
    Path::new(name).file_name().map_or_else(|| name.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// The name of a file without the suffix of compressed ones.
pub(super) fn uncompressed(name: &str) -> &str {
    name.strip_suffix(".lmc").unwrap_or(name)
}
