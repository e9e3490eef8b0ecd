//! Tests of the crate's public API.

mod advice;
mod analyze;
mod density;
mod describe;
mod diff;
mod page;
mod vega;

/// A safetensors file of a few tensors: name, dtype, shape and data.
fn safetensors(tensors: &[(&str, &str, Vec<u64>, &[u8])]) -> Vec<u8> {
    let mut at = 0;
    let entry = |(name, dtype, shape, data): &(&str, &str, Vec<u64>, &[u8])| {
        let begin = at;
        at += data.len();
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{at}]}}"#)
    };
    let json = format!("{{{}}}", tensors.iter().map(entry).collect::<Vec<_>>().join(","));
    let data = tensors.iter().flat_map(|t| t.3).copied();
    (json.len() as u64).to_le_bytes().into_iter().chain(json.bytes()).chain(data).collect()
}
