//! The index of a version: its kind, and the file of each tensor.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::checksum::Checksum;
use super::encoding::DeltaEncoding;
use crate::error::{Error, Result};
use crate::ids::{Hash, SaveId, Step};
use crate::manifest::names::check_name;

/// Its name in a version's directory.
pub(super) const INDEX: &str = "model.safetensors.index.json";
/// The suffix of files with tensors.
pub(super) const FILE: &str = ".safetensors";
/// The longest index.
pub(super) const MAX: u64 = 100_000_000;
/// The prefix of the names of versions.
const PREFIX: &str = "weight_v";

/// An index that is valid in itself.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) kind: Kind,
    /// The file of each tensor.
    pub(crate) weight_map: BTreeMap<String, String>,
    /// The entry of lmc, if it wrote the version.
    pub(crate) own: Option<Own>,
}

/// The kind of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole checkpoint.
    Full {
        /// Of the tensors, in the metadata of their files.
        checksum: Option<Checksum>,
    },
    /// The tensors that changed since another version.
    Delta { version: Step, base: Step, encoding: DeltaEncoding, checksum: Checksum },
}

/// The entry that lmc adds to the metadata of an index. Other receivers ignore it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Own {
    /// The snapshot of the store.
    pub(super) snapshot: SaveId,
    /// How many deltas there are since the last full version.
    pub(super) deltas: u64,
    /// BLAKE3 of each file: of the header, if it has tensors, whose checksums are there; otherwise of all.
    pub(crate) files: BTreeMap<String, Hash>,
}

impl Index {
    /// Parses the index of the version `step`.
    pub(super) fn parse(bytes: &[u8], step: Step) -> Result<Self> {
        let damaged = |why: String| Error::damaged(format!("{INDEX} {why}"));
        let json: Value = serde_json::from_slice(bytes).map_err(|e| damaged(format!("is no JSON: {e}")))?;
        // Other fields are refused: an index whose `metadata` is misspelled must not pass for a full version.
        let other =
            json.as_object().and_then(|all| all.keys().find(|key| !matches!(&key[..], "metadata" | "weight_map")));
        if let Some(other) = other {
            return Err(damaged(format!("has a field {other:?}: an index has \"metadata\" and \"weight_map\"")));
        }
        let none = Map::new();
        let metadata = match json.get("metadata") {
            None => &none,
            Some(Value::Object(metadata)) => metadata,
            Some(_) => return Err(damaged("has metadata that are no object".into())),
        };
        let text = |key: &str| match metadata.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(&text[..])),
            Some(other) => Err(damaged(format!("has {key} {other}, which is no text"))),
        };
        let checksum = text("checksum_format")?.map(|c| c.parse::<Checksum>());
        let checksum = checksum.transpose().map_err(|e| damaged(format!("has checksum_format {e}")))?;
        let kind = match (text("delta_encoding")?, text("base_version")?) {
            (None, None) if metadata.contains_key("compression_format") => {
                return Err(damaged("has compression_format, as a delta has, and no delta_encoding".into()));
            }
            (None, None) => Kind::Full { checksum },
            (None, Some(base)) => {
                return Err(damaged(format!("has base_version {base:?}, as a delta has, and no delta_encoding")));
            }
            (Some(encoding), base) => {
                let compression = text("compression_format")?.unwrap_or_default();
                if compression != "zstd" {
                    return Err(Error::unsupported(format!(
                        "{INDEX} has compression_format {compression:?}; lmc reads \"zstd\""
                    )));
                }
                let number = |key: &str, text: Option<&str>| {
                    let text = text.unwrap_or_default();
                    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                    let step = text.parse().ok().filter(|_| digits).and_then(|n| Step::new(n).ok());
                    step.ok_or_else(|| damaged(format!("has {key} {text:?}, which is no number: lmc reads numbers")))
                };
                let (version, base) = (number("version", text("version")?)?, number("base_version", base)?);
                if version != step || base >= version {
                    let what = format!("has version {version} and base_version {base}, and is that of version {step}");
                    return Err(damaged(what));
                }
                let encoding = encoding.parse().map_err(|e| damaged(format!("has delta_encoding {e}")))?;
                let checksum = checksum.ok_or_else(|| damaged("has no checksum_format".into()))?;
                Kind::Delta { version, base, encoding, checksum }
            }
        };
        let map =
            json.get("weight_map").and_then(Value::as_object).ok_or_else(|| damaged("has no weight_map".into()))?;
        let mut weight_map = BTreeMap::new();
        for (name, file) in map {
            let file = file.as_str().filter(|file| is_file_of_tensors(file)).ok_or_else(|| {
                damaged(format!("has a weight_map with {file}, which is not the name of a .safetensors file beside it"))
            })?;
            weight_map.insert(name.clone(), file.to_owned());
        }
        let own = metadata.get("lmc").map(Own::deserialize).transpose();
        let own = own.map_err(|e| damaged(format!("has metadata of lmc that are not what lmc writes: {e}")))?;
        Ok(Self { kind, weight_map, own })
    }

    /// Writes one. `total_size` is that of a checkpoint's tensors.
    pub(super) fn to_bytes(kind: Kind, total_size: u64, weight_map: &BTreeMap<String, String>, own: &Own) -> Vec<u8> {
        let mut metadata = match kind {
            Kind::Full { checksum } => json!({
                "total_size": total_size,
                "checksum_format": checksum.map(Checksum::name),
            }),
            Kind::Delta { version, base, encoding, checksum } => json!({
                "version": number(version),
                "base_version": number(base),
                "delta_encoding": encoding.name(),
                "compression_format": "zstd",
                "checksum_format": checksum.name(),
            }),
        };
        metadata["lmc"] = json!(own);
        json!({ "metadata": metadata, "weight_map": weight_map }).to_string().into_bytes()
    }

    /// The files with tensors, and which tensors each has.
    pub(super) fn files(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, file) in &self.weight_map {
            files.entry(file).or_default().insert(name);
        }
        files
    }
}

/// Whether a name is that of a file of tensors in the same directory.
pub(super) fn is_file_of_tensors(name: &str) -> bool {
    check_name(name).is_ok() && !name.contains('/') && name.ends_with(FILE)
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
    fn an_index_is_parsed_as_it_is_written() {
        let own = Own { snapshot: SaveId::new([7; 16]), deltas: 1, files: [("f".into(), Hash::of(b""))].into() };
        let map = BTreeMap::from([("a".to_owned(), "m.safetensors".to_owned())]);
        let (encoding, checksum) = (DeltaEncoding::Overwrite, Checksum::Blake3);
        for kind in [
            Kind::Full { checksum: Some(checksum) },
            Kind::Delta { version: step(9), base: step(7), encoding, checksum },
        ] {
            let bytes = Index::to_bytes(kind, 5, &map, &own);
            let index = Index::parse(&bytes, step(9)).unwrap();
            assert_eq!((index.kind, &index.weight_map, index.own), (kind, &map, Some(own.clone())));
        }
    }

    #[test]
    fn what_slime_and_modelexpress_write_is_read() {
        let slime = br#"{"metadata": {"version": "000002", "base_version": "000001", "delta_encoding": "xor",
            "compression_format": "zstd", "checksum_format": "xxh3-128"}, "weight_map": {"a": "model-00000-of-00001.safetensors"}}"#;
        let (encoding, checksum) = (DeltaEncoding::Xor, Checksum::Xxh3);
        let index = Index::parse(slime, step(2)).unwrap();
        assert_eq!(index.kind, Kind::Delta { version: step(2), base: step(1), encoding, checksum });
        let full = br#"{"metadata":{"checksum_format":"adler32","total_size":4},"weight_map":{"a":"model-00001-of-00001.safetensors"}}"#;
        let index = Index::parse(full, step(2)).unwrap();
        assert_eq!(index.kind, Kind::Full { checksum: Some(Checksum::Adler32) });
        let plain = br#"{"weight_map":{"a":"b.safetensors"}}"#;
        assert_eq!(Index::parse(plain, step(2)).unwrap().kind, Kind::Full { checksum: None });
    }

    #[test]
    fn an_index_that_lies_is_refused() {
        let delta = r#"{"metadata": {"version": "2", "base_version": "1", "delta_encoding": "xor",
            "compression_format": "zstd", "checksum_format": "blake3"}, "weight_map": {"a": "m.safetensors"}}"#;
        Index::parse(delta.as_bytes(), step(2)).unwrap();
        for (from, to, why) in [
            (r#""2""#, r#""3""#, "has version 3"),
            (r#""2""#, "2", "is no text"),
            (r#""1""#, r#""2""#, "base_version 2"),
            (r#""1""#, r#""+1""#, "no number"),
            (r#""1""#, r#""99999999999999999999""#, "no number"),
            (r#""xor""#, r#""xor2""#, "is no encoding"),
            (r#""delta_encoding""#, r#""d""#, "no delta_encoding"),
            (r#""base_version""#, r#""b""#, "no number"),
            (r#""zstd""#, r#""lz4""#, "compression_format"),
            (r#""blake3""#, r#""crc""#, "is no checksum"),
            (r#""checksum_format""#, r#""c""#, "no checksum_format"),
            (r#""weight_map""#, r#""w""#, "has a field"),
            (r#""metadata""#, r#""m""#, "has a field"),
            (r#"{"metadata": {"#, r#"{"metadata": 7, "m": {"#, "has a field"),
            (r#"{"metadata""#, r#"{"metadata":{},"metadat""#, "has a field"),
            ("m.safetensors", "../x.safetensors", "not the name"),
            ("m.safetensors", "/x.safetensors", "not the name"),
            ("m.safetensors", "m.json", "not the name"),
            (r#""m.safetensors""#, "7", "not the name"),
            (r#"{"metadata""#, r#"{"metadata" "#, "no JSON"),
        ] {
            let bad = delta.replacen(from, to, 1);
            assert_ne!(bad, delta);
            let bad = if why == "no JSON" { bad.replace(':', " ") } else { bad };
            let e = Index::parse(bad.as_bytes(), step(2)).expect_err(&bad).to_string();
            assert!(e.contains(why), "{e}");
        }
        // An index that is neither a delta nor a full version by its fields.
        for (metadata, why) in [
            ("7", "are no object"),
            ("[]", "are no object"),
            (r#""xor""#, "are no object"),
            ("null", "are no object"),
            (r#"{"compression_format": "zstd"}"#, "no delta_encoding"),
            (r#"{"base_version": "1"}"#, "no delta_encoding"),
        ] {
            let bad = format!(r#"{{"metadata": {metadata}, "weight_map": {{"a": "m.safetensors"}}}}"#);
            let e = Index::parse(bad.as_bytes(), step(2)).expect_err(&bad).to_string();
            assert!(e.contains(why), "{e}");
        }
    }
}
