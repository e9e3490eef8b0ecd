//! The JSON documents of a store (`docs/store.md` §2–4), parsed as untrusted input.

pub(crate) mod counts;
pub(crate) mod floor;
pub(crate) mod marker;
pub(crate) mod metadata;
pub(crate) mod names;
pub(crate) mod record;
mod sealed;
pub(crate) mod shard;
pub(crate) mod stored;
pub(crate) mod tag;
mod values;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::format::ids::Hash;

/// The version of the store's format that this crate reads and writes.
const VERSION: u32 = 1;

/// The most characters of an unknown field's path in an error.
const SHOWN: usize = 200;

/// Checks the format and version of a document, before anything else in it is interpreted.
///
/// # Errors
/// `Damaged` when it is of another format, `Unsupported` when it was written by another version.
fn check_version(document: &[u8], format: &str) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let head: Head = serde_json::from_slice(document).map_err(|e| invalid(format, &e))?;
    if head.format != format {
        return Err(Error::damaged(format!("is a {:?}, not a {format:?}", head.format)));
    }
    if head.version != VERSION {
        return Err(Error::unsupported(format!(
            "has version {} of the store's format, and this lmc reads version {VERSION}: use the lmc that wrote it, or a newer one",
            head.version
        )));
    }
    Ok(())
}

fn invalid(format: &str, e: &serde_json::Error) -> Error {
    Error::damaged(format!("not a valid {format}: {e}"))
}

/// Whether a reader ignores a field that this version does not define (`docs/store.md` §1).
fn may_be_ignored(path: &serde_ignored::Path<'_>) -> bool {
    matches!(path, serde_ignored::Path::Map { key, .. } if key.starts_with("x_"))
}

/// A kind of document.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// The value of its field `format`.
    const FORMAT: &'static str;
    /// The most bytes that are read of one.
    const MAX: usize;

    /// Checks conditions that serde cannot.
    ///
    /// # Errors
    /// `Damaged` when the document contradicts itself, `Limit` when it exceeds the format's limits.
    fn check(&self) -> Result<()>;

    /// Checks how much a document lists, before any of it is held.
    ///
    /// # Errors
    /// `Limit`, or `Damaged` when it is no document.
    fn check_counts(_bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Whether it ends with the checksum of its own bytes.
    const SEALED: bool = false;

    /// Takes out the checksum that a sealed document was parsed with.
    fn take_check(&mut self) -> Option<Hash> {
        None
    }

    /// Appends the checksum to the bytes of a document, if its kind has one.
    fn seal(bytes: Vec<u8>) -> Vec<u8> {
        if Self::SEALED { sealed::seal(bytes) } else { bytes }
    }

    /// Parses and checks a document.
    ///
    /// # Errors
    /// `Damaged`, `Limit`, and `Unsupported` when it was written by another version.
    fn parse(bytes: &[u8]) -> Result<Self> {
        Self::check_size(bytes.len())?;
        // The parser does not look into strings that it skips.
        std::str::from_utf8(bytes).map_err(|e| Error::damaged(format!("not a valid {}: {e}", Self::FORMAT)))?;
        check_version(bytes, Self::FORMAT)?;
        Self::check_counts(bytes)?;
        let mut unknown = None;
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let document = serde_ignored::deserialize(&mut json, |path| {
            if unknown.is_none() && !may_be_ignored(&path) {
                unknown = Some(path.to_string());
            }
        });
        let mut document: Self = document.map_err(|e| invalid(Self::FORMAT, &e))?;
        json.end().map_err(|e| invalid(Self::FORMAT, &e))?;
        if let Some(path) = unknown {
            let path: String = path.chars().take(SHOWN).collect();
            return Err(Error::damaged(format!("has the unknown field {path:?}")));
        }
        if Self::SEALED {
            sealed::unseal(document.take_check(), bytes)?;
        }
        document.check()?;
        Ok(document)
    }

    /// Serializes the document.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check()?;
        let bytes = Self::seal(serde_json::to_vec(self).expect("a document is valid JSON"));
        debug_assert!(check_version(&bytes, Self::FORMAT).is_ok());
        Self::check_size(bytes.len())?;
        Ok(bytes)
    }

    fn check_size(len: usize) -> Result<()> {
        if len > Self::MAX {
            return Err(Error::limit(format!("a {} of {len} bytes exceeds the limit of {}", Self::FORMAT, Self::MAX)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::marker::Marker;
    use super::shard::Shard;
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::ids::RunId;

    #[test]
    fn other_versions_are_refused_before_anything_else_is_interpreted() {
        for (document, kind) in [
            (r#"{"format":"lmc-store","version":2,"grace_seconds":"x"}"#, ErrorKind::Unsupported),
            (r#"{"format":"lmc-store","version":4294967295}"#, ErrorKind::Unsupported),
            (r#"{"format":"lmc-shard","version":2}"#, ErrorKind::Damaged),
            (r#"{"format":"lmc-store","version":0}"#, ErrorKind::Unsupported),
            (r#"{"format":"x","version":0}"#, ErrorKind::Damaged),
            (r#"{"format":"lmc-store","version":-1}"#, ErrorKind::Damaged),
            (r#"{"format":"lmc-store","version":2,"version":2}"#, ErrorKind::Damaged),
            (r#"{"format":"lmc-store"}"#, ErrorKind::Damaged),
            (r#"["lmc-store",1,null,86400]"#, ErrorKind::Damaged),
        ] {
            let e = Marker::parse(document.as_bytes()).unwrap_err();
            assert_eq!(e.kind(), kind, "{document}: {e}");
        }
        let e = Marker::parse(br#"{"format":"lmc-store","version":2}"#).unwrap_err().to_string();
        assert!(e.contains("version 2") && e.contains("reads version 1"), "{e}");
    }

    #[test]
    fn ignored_values_are_utf_8() {
        let with = |byte: u8| {
            let mut bytes =
                br#"{"format":"lmc-store","version":1,"run":"00000000000000000000000000000000","grace_seconds":60,"x_":"?"}"#.to_vec();
            let at = bytes.iter().position(|&b| b == b'?').unwrap();
            bytes[at] = byte;
            Marker::parse(&bytes)
        };
        assert_eq!(with(b'y').unwrap(), Marker::new(60, RunId::new([0; 16])));
        assert_eq!(with(0xff).unwrap_err().kind(), ErrorKind::Damaged);
    }

    #[test]
    fn shards_above_the_limit_are_refused_unread() {
        assert_eq!(Shard::parse(&vec![0; Shard::MAX + 1]).unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!(Shard::parse(&vec![0; Shard::MAX]).unwrap_err().kind(), ErrorKind::Damaged);
    }
}
