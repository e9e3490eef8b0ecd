//! Names for people (`docs/format.md` §2.3, §2.6): of layouts, writers and bases.

use std::borrow::Cow;

use super::limits::MAX_LABEL;
use lmc_kernels::varint::{Cursor, string};
use lmc_layout::error::{Error, Result};

/// Reads the name of a layout or a writer.
pub(super) fn label(c: &mut Cursor<'_>, what: &str) -> Result<String> {
    let name = string(c)?;
    if name.len() <= MAX_LABEL && !name.bytes().any(is_control) {
        return Ok(name.to_owned());
    }
    let (len, start) = (name.len(), name.chars().take(40).collect::<String>());
    Err(Error::damaged(format!(
        "{what} has {len} bytes and begins with {start:?}; it can have {MAX_LABEL}, none of them a control character"
    )))
}

/// Reads the name of a base.
pub(super) fn base(c: &mut Cursor<'_>) -> Result<String> {
    let name = label(c, "the name of a base")?;
    if name.bytes().any(is_separator) {
        return Err(Error::damaged(format!("the name of a base is {name:?}; it can have no / and no \\")));
    }
    Ok(name)
}

/// A name as the format has it: without control characters, and cut if it is too long.
pub(super) fn of_label(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_LABEL && !name.bytes().any(is_control) {
        return Cow::Borrowed(name);
    }
    let is_control = |c: char| u8::try_from(c).is_ok_and(is_control);
    let mut name: String = name.chars().map(|c| if is_control(c) { '_' } else { c }).collect();
    let end = (0..=MAX_LABEL.min(name.len())).rev().find(|&n| name.is_char_boundary(n));
    name.truncate(end.unwrap_or(0));
    Cow::Owned(name)
}

/// The name of a base as the format has it: that of the file alone.
pub(super) fn of_base(name: &str) -> Cow<'_, str> {
    of_label(name.rsplit(['/', '\\']).next().unwrap_or_default())
}

fn is_control(b: u8) -> bool {
    b < 0x20 || b == 0x7f
}

fn is_separator(b: u8) -> bool {
    b == b'/' || b == b'\\'
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_kernels::varint::put_string;

    #[test]
    fn names_are_made_to_fit() {
        for (name, fits) in [
            ("", ""),
            ("old.safetensors", "old.safetensors"),
            ("a/b\\c\n\x7f", "c__"),
            ("a/", ""),
            ("wörter ü", "wörter ü"),
            (&"ö".repeat(130), &"ö".repeat(127)),
        ] {
            assert_eq!(of_base(name), fits);
            let mut bytes = vec![];
            put_string(&mut bytes, name);
            assert_eq!(base(&mut Cursor::new(&bytes)).is_ok(), name == fits, "{name:?}");
        }
        assert_eq!(of_label("a/b\n"), "a/b_");
    }
}
