//! Files of safetensors: their headers, and the names and the index of several.

use std::collections::BTreeMap;

use lmc::Dtype;
use lmc::layout::safetensors;
use serde_json::json;

/// The header of a file of these tensors, in this order.
///
/// # Errors
/// The reason, when one of them has a name that safetensors reserves, or that another one has.
pub(super) fn header<'a>(tensors: impl IntoIterator<Item = (&'a str, Dtype, &'a [u64])>) -> Result<Vec<u8>, String> {
    // Libraries of Hugging Face refuse a file that does not say which framework wrote it.
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::header(tensors, Some(&metadata)).map_err(|e| format!("{e}: select others with --prefix"))
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
