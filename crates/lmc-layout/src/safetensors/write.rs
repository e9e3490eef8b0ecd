//! Writes headers.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use super::start::{MAX_HEADER, METADATA};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::segment::tensor_len;

/// The header of a file of these tensors, given by name, dtype and shape, whose bytes follow in this order; with its length before
/// it, as the `safetensors` crate writes it.
///
/// # Errors
/// `Usage` when two have the same name, or one that of the metadata, or when the bytes of one are no whole number; `Unsupported` when
/// safetensors has no such dtype; `Limit` when the header or the file would be too long.
pub fn header<'a>(
    tensors: impl IntoIterator<Item = (&'a str, Dtype, &'a [u64])>,
    metadata: Option<&BTreeMap<String, String>>,
) -> Result<Vec<u8>> {
    let mut text = String::from("{");
    if let Some(metadata) = metadata {
        _ = write!(text, "\"{METADATA}\":{}", json(metadata));
    }
    let (mut at, mut names) = (0u64, HashSet::new());
    for (name, dtype, shape) in tensors {
        let in_tensor = |e: Error| e.in_tensor(name);
        if name == METADATA {
            return Err(in_tensor(Error::usage("safetensors files cannot hold a tensor of this name")));
        }
        if !names.insert(name) {
            return Err(in_tensor(Error::usage(
                "two tensors have this name, and a safetensors file has each name once",
            )));
        }
        if matches!(dtype, Dtype::Named(_)) {
            return Err(in_tensor(Error::unsupported(format!("safetensors has no dtype {dtype}"))));
        }
        let len = tensor_len(dtype, shape).ok_or_else(|| {
            in_tensor(Error::usage(format!(
                "the shape {shape:?} of {dtype} has no whole number of bytes, or more than 2^61"
            )))
        })?;
        let end = at.checked_add(len).ok_or_else(|| Error::limit("the tensors have too many bytes for one file"))?;
        let comma = if text.len() > 1 { "," } else { "" };
        let (name, shape) = (json(name), json(shape));
        _ = write!(text, r#"{comma}{name}:{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{at},{end}]}}"#);
        at = end;
    }
    text.push('}');
    let mut text = text.into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let len = text.len() as u64;
    if len > MAX_HEADER {
        return Err(Error::limit(format!(
            "the header of the file has {len} bytes, but readers accept only {MAX_HEADER}: save fewer tensors in one file"
        )));
    }
    Ok([&len.to_le_bytes()[..], &text].concat())
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("strings and numbers serialize")
}
