//! The JSON documents of a store (`docs/store.md` §2–4), parsed as untrusted input.

pub(crate) mod marker;
pub(crate) mod names;
pub(crate) mod part;
pub(crate) mod record;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// The version of the store's format that this crate reads and writes.
pub const VERSION: u32 = 0;

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
    if head.version == VERSION {
        return Ok(());
    }
    Err(Error::unsupported(match head.version {
        0 => "was written by lmc 0.1; restore it with that version, and see docs/upgrade.md".to_owned(),
        version => {
            format!(
                "has version {version} of the store's format, and this lmc reads version {VERSION}: use a newer lmc"
            )
        }
    }))
}

fn invalid(format: &str, e: &serde_json::Error) -> Error {
    Error::damaged(format!("not a valid {format}: {e}"))
}

/// A kind of document.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// The value of its field `format`.
    const FORMAT: &'static str;
    /// The most bytes that are read of one.
    const MAX: usize;

    /// Checks what serde cannot.
    ///
    /// # Errors
    /// `Damaged` when the document contradicts itself, `Limit` when it exceeds the format's limits.
    fn check(&self) -> Result<()>;

    /// Verifies and removes the document's checksum of its own bytes, if it has one.
    ///
    /// # Errors
    /// `Damaged` when the checksum is wrong or missing.
    fn unseal(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Appends the checksum to the bytes of a document, if its kind has one.
    fn seal(bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    /// Parses and checks a document.
    ///
    /// # Errors
    /// `Damaged`, `Limit`, and `Unsupported` when it was written by another version.
    fn parse(bytes: &[u8]) -> Result<Self> {
        Self::check_size(bytes.len())?;
        check_version(bytes, Self::FORMAT)?;
        let mut document: Self = serde_json::from_slice(bytes).map_err(|e| invalid(Self::FORMAT, &e))?;
        document.unseal(bytes)?;
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
