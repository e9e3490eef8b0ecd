//! The checksum at the end of a document (`docs/store.md` §3).

use crate::error::{Error, Result};
use crate::format::ids::Hash;

/// The text before and after the hash at the end of a document.
const CHECK: (&[u8], &[u8]) = (b",\"check\":\"", b"\"}");

/// Verifies that a document, whose field `check` was taken out, ends with the checksum of its other bytes.
///
/// # Errors
/// `Damaged` when it does not.
pub(super) fn unseal(check: Option<Hash>, bytes: &[u8]) -> Result<()> {
    let check = check.ok_or_else(|| Error::damaged("is damaged: it has no checksum"))?;
    let digits = check.to_string();
    let without = bytes
        .strip_suffix(CHECK.1)
        .and_then(|b| b.strip_suffix(digits.as_bytes()))
        .and_then(|b| b.strip_suffix(CHECK.0));
    match without.map(|b| Hash::of(&[b, b"}"].concat())) {
        Some(hash) if hash == check => Ok(()),
        Some(_) => Err(Error::damaged("is damaged: its contents do not have the checksum that is in it")),
        None => Err(Error::damaged("is damaged: it does not end with its checksum")),
    }
}

/// Appends the checksum to a document.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = Hash::of(&bytes).to_string();
    bytes.pop();
    bytes.extend([CHECK.0, check.as_bytes(), CHECK.1].concat());
    bytes
}
