//! Files of safetensors: their headers, and the names and the index of several.

use std::collections::HashSet;
use std::fmt::Write as _;

use lmc::Dtype;
use serde_json::{Value, json};

/// A tensor of a file.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [u64],
    /// Its bytes.
    pub(super) len: u64,
}

/// The key of a header that is no tensor: it says what the file is.
const OF_FILE: &str = "__metadata__";

/// The header of a file of these tensors, in this order, whose length is a multiple of 8 bytes. Fails, with the reason, if one of them has a
/// name that safetensors reserves, or that another one has.
pub(super) fn header<'a>(tensors: impl IntoIterator<Item = Entry<'a>>) -> Result<Vec<u8>, String> {
    // Libraries of Hugging Face refuse a file that does not say which framework wrote it.
    let mut json = format!(r#"{{"{OF_FILE}":{{"format":"pt"}}"#);
    let (mut at, mut names) = (0, HashSet::new());
    for t in tensors {
        let why = match t.name {
            OF_FILE => "safetensors files cannot hold",
            name if !names.insert(name) => "two tensors have, and a safetensors file has each name once",
            _ => "",
        };
        if !why.is_empty() {
            return Err(format!("the tensor {:?} has a name that {why}: select others with --prefix", t.name));
        }
        let end = at + t.len;
        let (name, info) =
            (Value::from(t.name), json!({ "dtype": t.dtype.name(), "shape": t.shape, "data_offsets": [at, end] }));
        write!(json, ",{name}:{info}").expect("a string takes everything");
        at = end;
    }
    json.push('}');
    while !json.len().is_multiple_of(8) {
        json.push(' ');
    }
    Ok([&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat())
}

/// The index of a model in several files.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// The name of a model's file, as libraries of Hugging Face expect it.
pub(super) fn name(number: usize, files: usize) -> String {
    match files {
        1 => "model.safetensors".to_owned(),
        _ => format!("model-{:05}-of-{files:05}.safetensors", number + 1),
    }
}

/// Whether a file is part of a model of any number of files.
pub(super) fn is_of_a_model(name: &str) -> bool {
    name == INDEX || name.strip_prefix("model").is_some_and(|rest| rest.ends_with(".safetensors"))
}

/// The text of the index: names of tensors and of their files, and the bytes of all tensors.
pub(super) fn index<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a str)>, total: u64) -> String {
    let map: serde_json::Map<_, _> = tensors.into_iter().map(|(name, file)| (name.to_owned(), file.into())).collect();
    let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
    format!("{index:#}\n")
}
