//! The index of a version: its kind, and the file of each tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::encoding::{CHECKSUM, ENCODING};
use crate::error::{Error, Result};
use crate::format::ids::{Hash, SaveId, Step};

/// Its name in a version's directory.
pub(super) const INDEX: &str = "model.safetensors.index.json";
/// The suffix of files with tensors.
pub(super) const FILE: &str = ".safetensors";
/// The prefix of the names of versions.
const PREFIX: &str = "weight_v";

/// The kind of a version.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A whole checkpoint. The metadata of its files have the checksums of the tensors.
    Full,
    /// The tensors that changed since another version.
    Delta { version: Step, base: Step },
}

/// The entry that lmc adds to the metadata of an index. Receivers ignore it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Own {
    /// The snapshot of the store.
    pub(super) snapshot: SaveId,
    /// BLAKE3 of each file: of the header, if it has tensors, whose checksums are there; otherwise of all.
    pub(super) files: BTreeMap<String, Hash>,
}

impl Own {
    /// The entry in an index. `None` if there is none: lmc did not write it.
    pub(super) fn parse(index: &[u8]) -> Result<Option<Self>> {
        let damaged = |why: String| Error::damaged(format!("{INDEX} {why}"));
        let index: Value = serde_json::from_slice(index).map_err(|e| damaged(format!("is no JSON: {e}")))?;
        let own = index.pointer("/metadata/lmc").map(Self::deserialize).transpose();
        own.map_err(|e| damaged(format!("has metadata of lmc that are not what lmc writes: {e}")))
    }
}

/// Writes an index. `total_size` is that of a checkpoint's tensors.
pub(super) fn index(kind: Kind, total_size: u64, weight_map: &BTreeMap<String, String>, own: &Own) -> Vec<u8> {
    let mut metadata = match kind {
        Kind::Full => json!({
            "total_size": total_size,
            "checksum_format": CHECKSUM,
        }),
        Kind::Delta { version, base } => json!({
            "version": number(version),
            "base_version": number(base),
            "delta_encoding": ENCODING,
            "compression_format": "zstd",
            "checksum_format": CHECKSUM,
        }),
    };
    metadata["lmc"] = json!(own);
    json!({ "metadata": metadata, "weight_map": weight_map }).to_string().into_bytes()
}

/// The versions in a directory that have an index: others are not finished.
pub(super) fn versions(directory: &Path) -> io::Result<BTreeSet<Step>> {
    let mut versions = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Some(step) = entry.file_name().to_str().and_then(parse_directory) else { continue };
        match fs::symlink_metadata(entry.path().join(INDEX)) {
            Ok(_) => _ = versions.insert(step),
            // An unreadable version is not missing.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(versions)
}

/// The number of a version, as in its index.
fn number(step: Step) -> String {
    format!("{:06}", step.get())
}

/// The name of a version's directory.
pub(super) fn directory_of(step: Step) -> String {
    format!("{PREFIX}{}", number(step))
}

/// The version that a directory of this name has.
pub(super) fn parse_directory(name: &str) -> Option<Step> {
    let step = Step::new(name.strip_prefix(PREFIX)?.parse().ok()?).ok()?;
    (directory_of(step) == name).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n: u64) -> Step {
        Step::new(n).unwrap()
    }

    #[test]
    fn names_of_directories_are_parsed_as_they_are_written() {
        assert_eq!(directory_of(step(123)), "weight_v000123");
        assert_eq!(parse_directory("weight_v000123"), Some(step(123)));
        assert_eq!(parse_directory("weight_v1234567"), Some(step(1_234_567)));
        for bad in ["weight_v123", "weight_v0000123", "weight_v+00123", "weight_v", ".weight_v000123", "weight_v00012x"]
        {
            assert_eq!(parse_directory(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_index_tells_who_wrote_it() {
        let own = Own { snapshot: SaveId::new([7; 16]), files: [("f".into(), Hash::of(b""))].into() };
        let map = BTreeMap::from([("a".to_owned(), "m.safetensors".to_owned())]);
        for kind in [Kind::Full, Kind::Delta { version: step(9), base: step(7) }] {
            assert_eq!(Own::parse(&index(kind, 5, &map, &own)).unwrap(), Some(own.clone()));
        }
        for foreign in [&br#"{"weight_map":{"a":"b.safetensors"}}"#[..], br#"{"metadata":{"total_size":4}}"#, b"7"] {
            assert_eq!(Own::parse(foreign).unwrap(), None);
        }
        for (bad, why) in [(&b"{"[..], "is no JSON"), (br#"{"metadata":{"lmc":{}}}"#, "not what lmc writes")] {
            let e = Own::parse(bad).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
    }
}
