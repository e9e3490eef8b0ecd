//! Tensors that are not noise are no larger than zstd makes them.

use lmc::{CompressOptions, Level, compress, decompress};
use lmc_testing::input::Random;

/// About as large as the smallest tensors for which all of it is tried.
const ROWS: usize = 640;
const COLS: usize = 512;

fn normal(r: &mut Random) -> f32 {
    (0..12).map(|_| (r.u64() >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0
}

fn weights(seed: u64) -> Vec<f32> {
    let mut r = Random::new(seed);
    (0..ROWS * COLS).map(|_| 0.02 * normal(&mut r)).collect()
}

fn bf16(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|v| (((v.to_bits() + 0x8000) >> 16) as u16).to_le_bytes()).collect()
}

fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn planes(width: usize, bytes: &[u8]) -> Vec<u8> {
    (0..width).flat_map(|p| bytes.iter().skip(p).step_by(width)).copied().collect()
}

/// Compresses the tensor as a file of its own; returns the part of raw that it takes, and that of the smaller of two zstd files.
fn parts_of_raw(dtype: &str, width: usize, data: &[u8], level: Level) -> (f64, f64) {
    let (n, len) = (data.len() / width, data.len());
    let header = format!(r#"{{"w":{{"dtype":"{dtype}","shape":[{n}],"data_offsets":[0,{len}]}}}}"#);
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
    let o = CompressOptions::default().with_level(level);
    let packed = compress(&file, &o).unwrap();
    assert!(decompress(&packed, &Default::default()).unwrap() == file);
    let zstd = [data.to_vec(), planes(width, data)].map(|d| zstd::bulk::compress(&d, 3).unwrap().len());
    let part = |n: usize| n as f64 / file.len() as f64;
    (part(packed.len()), part(zstd[0].min(zstd[1])))
}

#[test]
fn elements_are_found_in_opaque_bytes() {
    let data = bf16(weights(3));
    let o = CompressOptions::default();
    let aligned = compress(&data, &o).unwrap().len();
    assert!(aligned * 10 < data.len() * 8);
    for (before, after) in [(1, 0), (0, 3), (3, 1), (6, 5)] {
        let file = [&vec![0x80; before], &data[..], &vec![0x81; after]].concat();
        let packed = compress(&file, &o).unwrap();
        assert!(decompress(&packed, &Default::default()).unwrap() == file);
        assert!(packed.len() < aligned + aligned / 200, "{before}, {after}: {} and {aligned} bytes", packed.len());
    }
}

#[test]
fn no_tensor_is_larger_than_zstd_makes_it() {
    let (w, mut r) = (weights(1), Random::new(2));
    let largest = w.iter().fold(0f32, |m, v| m.max(v.abs()));
    let by_group = |bits: f32, n: usize| -> Vec<f32> {
        let group = |g: &[f32]| {
            let scale = g.iter().fold(0f32, |m, v| m.max(v.abs())) / bits;
            g.iter().map(|v| (v / scale).round() * scale).collect::<Vec<_>>()
        };
        w.chunks(n).flat_map(group).collect()
    };
    let ternary = |v: f32| if v.abs() > 0.015 { 0.031f32.copysign(v) } else { 0.0 };
    let angle = |i: usize| (i / COLS) as f32 / 10000f32.powf((i % COLS / 2) as f32 * 2.0 / COLS as f32);
    let pruned = w.iter().map(|&v| if r.below(2) == 0 { v } else { 0.0 }).collect::<Vec<_>>();
    let signed = w.iter().zip(&pruned).map(|(&v, &p)| if p == 0.0 { 0f32.copysign(v) } else { p });
    let padded = w.iter().enumerate().map(|(i, &v)| if i < w.len() / 4 * 3 { v } else { w[i % COLS] });
    let cases: Vec<(&str, &str, usize, Vec<u8>, f64)> = vec![
        ("int8 by row in fp32", "F32", 4, f32s(by_group(127.0, COLS)), 1.0),
        ("int8 in fp32", "F32", 4, f32s(w.iter().map(|v| (v / largest * 127.0).round() * largest / 127.0)), 0.23),
        ("int4 by group in bf16", "BF16", 2, bf16(by_group(7.0, 64)), 1.0),
        ("int4 by group in fp32", "F32", 4, f32s(by_group(7.0, 64)), 1.0),
        ("pruned", "BF16", 2, bf16(pruned.iter().copied()), 0.41),
        ("pruned, zeros of both signs", "BF16", 2, bf16(signed), 0.44),
        ("ternary", "BF16", 2, bf16(w.iter().map(|&v| ternary(v))), 0.10),
        ("sinusoids", "F32", 4, f32s((0..w.len()).map(|i| angle(i).sin())), 1.0),
        ("repeated rows", "BF16", 2, bf16(w[..w.len() / 8].repeat(8)), 0.12),
        ("padded", "BF16", 2, bf16(padded), 0.55),
        ("range in fp32", "F32", 4, f32s((0..100_000).map(|i| i as f32)), 0.02),
        ("few of a range in fp32", "F32", 4, f32s((0..4096).map(|i| i as f32)), 0.15),
        ("negative steps in fp32", "F32", 4, f32s((0..100_000).map(|i| i as f32 * -0.1)), 0.02),
        ("range in fp64", "F64", 8, (0..100_000).flat_map(|i| f64::from(i).to_le_bytes()).collect(), 0.02),
        ("range", "I64", 8, (0..100_000u64).flat_map(u64::to_le_bytes).collect(), 0.01),
        ("indices", "I64", 8, (0..100_000).flat_map(|_| r.below(32_000).to_le_bytes()).collect(), 0.25),
        ("one value", "F32", 4, f32s(vec![0.5; 100_000]), 0.01),
    ];
    for (name, dtype, width, data, bar) in cases {
        for level in [Level::Default, Level::Max] {
            let (ours, zstd) = parts_of_raw(dtype, width, &data, level);
            // One in a hundred, and the file's index.
            let most = (1.01 * zstd + 0.001 + 600.0 / data.len() as f64).min(bar);
            assert!(ours <= most, "{name}, {level:?}: {ours:.4} of raw, zstd {zstd:.4}, at most {most:.4}");
        }
    }
}

/// Big-endian elements and complex numbers of two binary64, which have no dtype: no larger than a thorough zstd makes them.
#[test]
fn elements_without_a_dtype_are_no_larger_than_zstd_makes_them() {
    let w = weights(5);
    let rounded = |v: f32| (v * 2500.0).round();
    let big = |f: &dyn Fn(f32) -> f64| w[..1 << 17].iter().flat_map(|v| f(*v).to_be_bytes()).collect::<Vec<u8>>();
    let complex = |f: &dyn Fn(f32) -> f64| w[..1 << 17].iter().flat_map(|v| f(*v).to_le_bytes()).collect::<Vec<u8>>();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (">f8", big(&|v| f64::from(v.abs()).sqrt())),
        (">f8 of fp32", big(&f64::from)),
        (">f8 of integers", big(&|v| f64::from(rounded(v)))),
        (">f4", w.iter().flat_map(|v| v.to_be_bytes()).collect()),
        (">f4 of integers", w.iter().flat_map(|v| rounded(*v).to_be_bytes()).collect()),
        (">i4, a range", (0..100_000u32).flat_map(u32::to_be_bytes).collect()),
        ("complex128 of fp32", complex(&f64::from)),
        ("complex128 of integers", complex(&|v| f64::from(rounded(v)))),
    ];
    for (name, data) in cases {
        let zstd = zstd::bulk::compress(&data, 19).unwrap().len();
        for level in [Level::Default, Level::Max] {
            let packed = compress(&data, &CompressOptions::default().with_level(level)).unwrap();
            assert!(decompress(&packed, &Default::default()).unwrap() == data, "{name}");
            assert!(packed.len() <= zstd + zstd / 100 + 300, "{name}, {level:?}: {} bytes, zstd {zstd}", packed.len());
        }
    }
}

/// Weights are not taken for structure: the sizes of both levels are those of clusters.
#[test]
fn weights_are_noise() {
    let data = bf16(weights(3));
    let (ours, zstd) = parts_of_raw("BF16", 2, &data, Level::Default);
    assert!(ours < 0.67 && ours < 0.96 * zstd, "{ours} of raw, zstd {zstd}");
}

/// A header that promises more data than exist: structure is searched for in the existing data.
#[test]
fn tensors_that_end_early() {
    let header = r#"{"w":{"dtype":"BF16","shape":[4194304],"data_offsets":[0,8388608]}}"#;
    let start = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let data = bf16(weights(4)).repeat(4);
    for len in [0, 1, 2, 100, 127, 128, 129, 255, 300, 5000, 32 << 10, 70_001, data.len()] {
        let file = [&start, &data[..len]].concat();
        for level in [Level::Fast, Level::Default] {
            let packed = compress(&file, &CompressOptions::default().with_level(level)).unwrap();
            assert!(decompress(&packed, &Default::default()).unwrap() == file, "{len}");
        }
    }
}
