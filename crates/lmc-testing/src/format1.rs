//! The files of `testdata/format1`: one for each feature of `docs/format.md`, and one for each rule that a file may break.

mod broken_blocks;
mod broken_derived;
mod broken_files;
mod broken_grids;
mod broken_optimizer;
mod broken_predictions;
mod broken_streams;
mod broken_terms;
mod codes;
mod containers;
mod derived;
mod folder;
mod frozen;
mod grid_offsets;
mod grids;
mod optimizer;
mod predictions;
mod streams;
mod terms;

pub use containers::most_costly;
pub use folder::{broken, contents, features, restore};
pub use frozen::{BrokenVector, FROZEN, broken_vectors, frozen_lines, unfrozen};

use crate::reference::write::File;

/// Raw bytes of the longest of the files, good or bad, and a bit more.
pub const LIMIT: usize = 1 << 25;

/// A valid file that shows a feature.
#[derive(Debug)]
pub struct Feature {
    /// Of its files, without suffix.
    pub name: &'static str,
    /// Of `docs/format.md`.
    pub section: &'static str,
    /// The feature that the file shows.
    pub shows: &'static str,
    /// The whole file.
    pub file: File,
    /// The raw bytes of each base.
    pub bases: Vec<Vec<u8>>,
    /// Its raw bytes.
    pub raw: Vec<u8>,
}

/// A file that breaks one rule; all checks and digests fit.
#[derive(Debug)]
pub struct Broken {
    /// Of its files, without suffix.
    pub name: String,
    /// Of `docs/format.md`.
    pub section: &'static str,
    /// The rule that is broken.
    pub rule: &'static str,
    /// The whole file.
    pub file: Vec<u8>,
    /// The raw bytes of each base.
    pub bases: Vec<Vec<u8>>,
    /// The part of the format that a decoder need not know, if only those who know it refuse the file.
    pub optional: Option<&'static str>,
}

/// A broken file without bases.
fn broken_file(name: impl Into<String>, section: &'static str, rule: &'static str, file: &File) -> Broken {
    Broken { name: name.into(), section, rule, file: file.to_bytes(), bases: Vec::new(), optional: None }
}

/// A file with the digests of its decoded bytes.
fn redigested(mut file: File, bases: &[&[u8]]) -> File {
    file.redigest(bases, LIMIT);
    file
}

/// A broken file, with the digests of its decoded bytes as far as it can be decoded, and the fewest features.
fn broken_delta(
    name: impl Into<String>,
    section: &'static str,
    rule: &'static str,
    file: File,
    bases: &[&[u8]],
) -> Broken {
    let file = redigested(file, bases).to_bytes();
    let bases = bases.iter().map(|base| base.to_vec()).collect();
    Broken { name: name.into(), section, rule, file, bases, optional: None }
}
