//! The JSON documents of a store (`docs/store.md` §2–4), parsed as untrusted input.

pub(crate) mod marker;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod shard;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// The version of the store's format that this crate reads and writes.
pub const VERSION: u32 = 1;

/// The most optional fields of a document.
const MAX_OPTIONAL: usize = 64;

/// Checks the format and version of a document, before anything else in it is interpreted; returns the names of its optional fields.
///
/// # Errors
/// `Damaged` when it is of another format, `Unsupported` when it was written by another version.
fn check_version(document: &[u8], format: &str) -> Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: String,
        version: u32,
        #[serde(default)]
        optional: Vec<String>,
    }
    let head: Head = serde_json::from_slice(document).map_err(|e| invalid(format, &e))?;
    if head.format != format {
        return Err(Error::damaged(format!("is a {:?}, not a {format:?}", head.format)));
    }
    match head.version {
        VERSION => Ok(head.optional),
        0 => Err(Error::unsupported(
            "was written by lmc 0.1; restore it with that version, and see docs/upgrade.md",
        )),
        version => Err(Error::unsupported(format!(
            "has version {version} of the store's format, and this lmc reads version {VERSION}: use a newer lmc"
        ))),
    }
}

/// The fields of a document as they are written, in order.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a document")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = vec![];
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        d.deserialize_map(V)
    }
}

/// A document without its optional fields, whose names are these, and without the list of them.
///
/// # Errors
/// `Damaged` when one of them is listed twice or is not there exactly once, `Limit` when they are too many.
fn without_optional(document: &[u8], format: &str, optional: &[String]) -> Result<Vec<u8>> {
    if optional.len() > MAX_OPTIONAL {
        return Err(Error::limit(format!("has {} optional fields: the limit is {MAX_OPTIONAL}", optional.len())));
    }
    let Fields(fields) = serde_json::from_slice(document).map_err(|e| invalid(format, &e))?;
    let mut seen: BTreeMap<&str, usize> = optional.iter().map(|name| (&name[..], 0)).collect();
    if seen.len() < optional.len() {
        return Err(Error::damaged("lists an optional field twice"));
    }
    let mut rest = vec![b'{'];
    for (name, value) in &fields {
        if let Some(count) = seen.get_mut(&name[..]) {
            *count += 1;
        } else if name != "optional" {
            let comma = if rest.len() > 1 { "," } else { "" };
            let name = serde_json::to_string(name).expect("a string is valid JSON");
            rest.extend([comma, &name, ":", value.get()].concat().bytes());
        }
    }
    rest.push(b'}');
    match seen.iter().find(|(_, count)| **count != 1) {
        Some((name, count)) => {
            Err(Error::damaged(format!("lists the optional field {name:?}, and has it {count} times")))
        }
        None => Ok(rest),
    }
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

    /// Verifies and removes the document's checksum of its own bytes, if its kind has one.
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
        let optional = check_version(bytes, Self::FORMAT)?;
        let known = match &optional[..] {
            [] => Cow::Borrowed(bytes),
            _ => Cow::Owned(without_optional(bytes, Self::FORMAT, &optional)?),
        };
        let mut document: Self = serde_json::from_slice(&known).map_err(|e| invalid(Self::FORMAT, &e))?;
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
