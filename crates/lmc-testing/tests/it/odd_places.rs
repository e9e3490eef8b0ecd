//! Tensors in files of formats that lmc does not know, such as pickles, messages of MessagePack and of protobuf: they begin
//! anywhere.

use crate::support::{check_all_paths, decompress_options, restore, safetensors, snapshots::bf16, weights};
use lmc::CompressOptions;
use lmc_testing::input::Random;

/// The size of a file, compressed.
fn compressed(raw: &[u8]) -> usize {
    let file = lmc::compress(raw, &CompressOptions::default()).unwrap();
    assert!(restore(&file, &[], &decompress_options(1)).unwrap() == raw);
    file.len()
}

/// Elements of a dtype.
fn elements(dtype: &str, n: usize, seed: u64) -> Vec<u8> {
    let w = weights(n, seed);
    match dtype {
        "F64" => w.iter().flat_map(|&x| (f64::from(x) * std::f64::consts::E).to_le_bytes()).collect(),
        "F32" => w.iter().flat_map(|x| x.to_le_bytes()).collect(),
        "BF16" => bf16(&w),
        "F16" => w.iter().flat_map(|&x| half(x).to_le_bytes()).collect(),
        _ => unreachable!("{dtype}"),
    }
}

/// A small number in binary16, its last bits cut.
fn half(x: f32) -> u16 {
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 112;
    let sign = (bits >> 16 & 0x8000) as u16;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}

/// Tensors with what a message has before each.
fn message(tensors: &[Vec<u8>]) -> Vec<u8> {
    let mut raw = b"\x80\x04\x95state".to_vec();
    for (i, t) in tensors.iter().enumerate() {
        let name = format!("model.layers.{i}.{}", ["weight", "self_attn.q", "b"][i % 3]);
        raw.extend_from_slice(name.as_bytes());
        raw.extend_from_slice(b"\x8c\x05numpy\x94C");
        raw.extend_from_slice(&(t.len() as u32).to_le_bytes());
        raw.extend_from_slice(t);
    }
    raw
}

/// The same as a file of a known format.
fn known(dtype: &str, width: usize, tensors: &[Vec<u8>]) -> Vec<u8> {
    let names: Vec<_> = (0..tensors.len()).map(|i| format!("{i}")).collect();
    let named = |(name, t): (&String, &Vec<u8>)| (name.clone(), vec![(t.len() / width) as u64], t.clone());
    let all: Vec<_> = names.iter().zip(tensors).map(named).collect();
    safetensors(&all.iter().map(|(name, shape, t)| (&name[..], dtype, shape.clone(), &t[..])).collect::<Vec<_>>())
}

#[test]
fn tensors_are_found_wherever_they_begin() {
    for (dtype, width) in [("F32", 4), ("BF16", 2), ("F16", 2), ("F64", 8)] {
        for bytes in [24 << 10, 128 << 10, 700 << 10] {
            let n = |i: usize| (bytes + 512 * i) / width;
            let tensors: Vec<_> = (0..(3 << 20) / bytes).map(|i| elements(dtype, n(i), i as u64)).collect();
            let raw = message(&tensors);
            let (size, aligned) = (compressed(&raw), compressed(&known(dtype, width, &tensors)));
            // One point, and for short tensors the elements around each of their edges.
            let most = aligned + raw.len() / 100 + tensors.len() * 256;
            assert!(size <= most, "{dtype} of {bytes} bytes: {size} of {}, aligned {aligned}", raw.len());
        }
    }
}

#[test]
fn tensors_among_other_bytes() {
    // Weights of two widths, text and noise, in one block.
    let mut random = Random::new(1);
    let text: Vec<u8> = (0..9000).flat_map(|i| format!("token {} {}, ", i, random.below(5000)).into_bytes()).collect();
    let (narrow, wide, noise) = (elements("BF16", 150_000, 1), elements("F32", 50_001, 2), random.bytes(100_000));
    let parts = [&text[..101_003], &narrow, &noise[..50_001], &wide, b"odd", &narrow[..100_000], &noise[50_001..]];
    let raw = parts.concat();
    check_all_paths(&raw, &CompressOptions::default());
    let alone: usize = parts.iter().map(|p| compressed(p)).sum();
    let size = compressed(&raw);
    assert!(size < alone + raw.len() / 100, "{size} of {}, alone {alone}", raw.len());
}
