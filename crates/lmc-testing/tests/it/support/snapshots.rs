//! Snapshots of models in training.

use super::{safetensors, weights};

/// A tensor's bytes after a few steps of training: every weight moves a little.
pub(crate) fn trained(old: &[f32], seed: u64, step: f32) -> Vec<f32> {
    old.iter().zip(weights(old.len(), seed)).map(|(w, d)| w + step * d).collect()
}

pub(crate) fn bf16(w: &[f32]) -> Vec<u8> {
    w.iter().flat_map(|x| (((x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16) as u16).to_le_bytes()).collect()
}

pub(crate) fn f32s(w: &[f32]) -> Vec<u8> {
    w.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub(crate) type Tensor<'a> = (&'a str, &'a str, Vec<u64>, &'a [u8]);

/// A checkpoint of a few tensors, as pairs of a name and values.
pub(crate) fn model(seed: u64, step: f32) -> Vec<(String, Vec<f32>)> {
    (0..6)
        .map(|i| {
            let old = weights(20_000 + 1000 * (i as usize % 3), 100 + i);
            (format!("layer.{i}.weight"), if step == 0.0 { old } else { trained(&old, seed + i, step) })
        })
        .collect()
}

pub(crate) fn file_of(tensors: &[(String, Vec<f32>)]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|t| bf16(&t.1)).collect();
    let list: Vec<Tensor<'_>> =
        tensors.iter().zip(&bytes).map(|(t, b)| (&t.0[..], "BF16", vec![t.1.len() as u64], &b[..])).collect();
    safetensors(&list)
}
