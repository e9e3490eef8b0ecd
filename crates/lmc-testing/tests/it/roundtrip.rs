//! Every way in and every way out, every dtype, every instruction set.

use crate::support::{check_all_paths, check_isas, noise, safetensors, weights};
use lmc::{CompressOptions, DecompressOptions, Dtype, Level, Reader};
use lmc_testing::input::Random;
use proptest::prelude::*;

fn options(dtype: Option<Dtype>, level: Level) -> CompressOptions {
    CompressOptions::default().with_dtype(dtype).with_level(level)
}

#[test]
fn sizes_around_every_boundary() {
    let leaf = 1 << 18;
    let mut sizes = vec![0, 1, 7, 63, 64, 65, 127, 128, 129];
    for n in [leaf, 2 * leaf, 4 * leaf, 5 * leaf, 9 * leaf] {
        sizes.extend([n - 1, n, n + 1]);
    }
    for size in sizes {
        let raw = noise(size, size as u64);
        for dtype in [None, Some(Dtype::Bf16), Some(Dtype::F6E2M3), Some(Dtype::F64)] {
            check_all_paths(&raw, &options(dtype, Level::Default));
        }
    }
}

/// The fields of floats of this width (in bytes): sign and exponent bits, mantissa bits.
fn special(width: usize) -> Vec<u64> {
    let (exponent, mantissa) = match width {
        1 => (0x78, 0x07),
        2 => (0x7f80, 0x007f),
        4 => (0x7f80_0000, 0x007f_ffff),
        _ => (0x7ff0_0000_0000_0000, 0x000f_ffff_ffff_ffff),
    };
    let sign = 1u64 << (8 * width - 1);
    // 0, the smallest and the largest denormal, infinity, NaNs, and all of them negative.
    let positive = [0, 1, mantissa, exponent, exponent | 1, exponent | mantissa];
    positive.iter().flat_map(|&x| [x, x | sign]).collect()
}

/// Elements of `width` bytes, distributed in every way that an encoder may trip over.
fn distributions(n: usize, width: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random::new((n * 31 + width) as u64);
    let specials = special(width);
    let scaled = weights(n, 7);
    let gaussian = |i: usize| match width {
        1 => (scaled[i] * 1000.0) as i8 as u8 as u64,
        2 => u64::from(scaled[i].to_bits() >> 16),
        4 => u64::from(scaled[i].to_bits()),
        _ => f64::from(scaled[i]).to_bits(),
    };
    let base = gaussian(0) | 0x11;
    let mut make = |f: &mut dyn FnMut(usize, &mut Random) -> u64| {
        (0..n).flat_map(|i| f(i, &mut random).to_le_bytes()[..width].to_vec()).collect::<Vec<u8>>()
    };
    vec![
        ("constant", make(&mut |_, _| base)),
        ("zero", make(&mut |_, _| 0)),
        ("two values", make(&mut |_, r| base ^ (r.u64() & 1))),
        ("one outlier", make(&mut |i, _| if i == n / 2 { !base } else { base })),
        ("noise", make(&mut |_, r| r.u64())),
        ("periodic", make(&mut |i, r| if i % 8 == 0 { base } else { r.u64() })),
        ("long period", make(&mut |i, r| if (i / 128) % 16 == 0 { base } else { r.u64() })),
        ("counting", make(&mut |i, _| i as u64)),
        ("specials", make(&mut |_, r| specials[r.below(specials.len() as u64) as usize])),
        ("rare specials", make(&mut |i, r| if r.below(50) == 0 { specials[i % specials.len()] } else { gaussian(i) })),
        ("gaussian", make(&mut |i, _| gaussian(i))),
        ("rows", make(&mut |i, _| if (i / 384) % 3 == 0 { gaussian(i) & !0xf } else { gaussian(i) })),
        ("runs", make(&mut |i, r| if i % 128 == 0 { r.u64() } else { (i / 128) as u64 })),
    ]
}

#[test]
fn every_dtype_and_distribution_on_every_instruction_set() {
    for &dtype in Dtype::ALL {
        let width = dtype.coding_width();
        for n in [1, 2, 63, 64, 65, 127, 128, 129, 1000, 20_011] {
            // Widths matter most: the long inputs once for each width and map.
            if n > 1000
                && !matches!(dtype, Dtype::I8 | Dtype::F8E4M3 | Dtype::Bf16 | Dtype::I16 | Dtype::F32 | Dtype::F64)
            {
                continue;
            }
            for (name, raw) in distributions(n, width) {
                for &level in Level::ALL {
                    let file = check_isas(&raw, &options(Some(dtype), level));
                    let bound = raw.len() + raw.len() / 1000 + 512;
                    assert!(file.len() <= bound, "{dtype} {name} {n}: {} bytes", file.len());
                }
            }
        }
    }
}

#[test]
fn every_16_bit_value() {
    let raw: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    // NaNs and infinities among numbers, which a sample misses.
    let mut mixed: Vec<u8> = weights(1 << 18, 3).iter().flat_map(|x| x.to_bits().to_le_bytes()[2..].to_vec()).collect();
    for (i, &b) in raw.iter().enumerate() {
        let at = (i / 2) * 8 + i % 2;
        mixed[at] = b;
    }
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::I16, Dtype::U16] {
        for &level in Level::ALL {
            check_isas(&raw, &options(Some(dtype), level));
            check_isas(&mixed, &options(Some(dtype), level));
        }
    }
}

#[test]
fn data_of_unknown_type() {
    for width in [1, 2, 4, 8] {
        for (name, raw) in distributions(30_000, width) {
            for &level in Level::ALL {
                let file = check_isas(&raw, &options(None, level));
                assert!(file.len() <= raw.len() + raw.len() / 1000 + 512, "{name}");
            }
        }
    }
    let text = "the quick brown fox jumps over the lazy dog\n".repeat(5000);
    let file = check_isas(text.as_bytes(), &options(None, Level::Default));
    assert!(file.len() < text.len() / 50);
}

#[test]
fn the_tail_that_fills_no_element_is_opaque() {
    for (dtype, len, typed, shape) in [
        (Dtype::F32, 1003, 1000, 250),
        (Dtype::F4, 7, 7, 14),
        (Dtype::F6E3M2, 8, 6, 8),
        (Dtype::C64, 15, 8, 1),
        (Dtype::F64, 7, 0, 0),
        (Dtype::Bf16, (3 << 20) + 1, 3 << 20, 3 << 19),
    ] {
        let raw = noise(len, 1);
        let file = check_all_paths(&raw, &options(Some(dtype), Level::Fast));
        let reader = Reader::open(&file, &DecompressOptions::default()).unwrap();
        assert_eq!(reader.layout(), "raw");
        let t = reader.tensor("").map_or((0, vec![0]), |t| (t.len, t.shape.to_vec()));
        assert_eq!(t, (typed, vec![shape]));
    }
}

#[test]
fn safetensors_files() {
    let floats: Vec<u8> = weights(700_000, 5).iter().flat_map(|x| x.to_le_bytes()).collect();
    let halves: Vec<u8> = weights(900_001, 6).iter().flat_map(|x| x.to_bits().to_le_bytes()[2..].to_vec()).collect();
    let small = &floats[..4000];
    let good = safetensors(&[
        ("a", "F32", vec![700, 1000], &floats),
        ("b", "BF16", vec![900_001], &halves),
        ("c", "F32", vec![10, 100], small),
        ("empty", "I64", vec![3, 0], &[]),
        ("scalar", "F64", vec![], &small[..8]),
        ("d", "C64", vec![500], small),
        ("e", "F4", vec![8000], small),
    ]);
    let mut files = vec![good.clone()];
    // Missing data and excess data; a header that is damaged, or cut.
    files.push(good[..good.len() - 1].to_vec());
    files.push(good[..good.len() - 5001].to_vec());
    files.push(good[..1_000_000].to_vec());
    files.push(good[..100].to_vec());
    files.push([&good[..], &noise(1_500_001, 4)].concat());
    files.push(good.iter().enumerate().map(|(i, &b)| if i == 30 { b'}' } else { b }).collect());
    for raw in files {
        check_all_paths(&raw, &options(None, Level::Default));
    }
    let file = lmc::compress(&good, &CompressOptions::default()).unwrap();
    let reader = Reader::open(&file, &DecompressOptions::default()).unwrap();
    assert_eq!(reader.layout(), "safetensors");
    let theirs = safetensors::SafeTensors::deserialize(&good).unwrap();
    for (name, t) in theirs.tensors() {
        assert!(reader.read_tensor(&name).unwrap() == t.data(), "{name}");
        assert_eq!(reader.tensor(&name).unwrap().dtype.unwrap().name(), t.dtype().to_string());
    }
}

#[test]
fn a_compressor_can_be_used_again() {
    let mut c = lmc::Compressor::new(&CompressOptions::default()).unwrap();
    let mut d = lmc::Decompressor::new(&DecompressOptions::default()).unwrap();
    let (mut out, mut back) = (Vec::new(), Vec::new());
    for len in [3_000_000, 10, 0, 5_000_000] {
        let raw = noise(len, len as u64);
        c.compress(&raw, &[], &mut out).unwrap();
        assert!(out == lmc::compress(&raw, &CompressOptions::default()).unwrap());
        back.resize(len, 0);
        d.decompress(&out, &[], &mut back[..]).unwrap();
        assert!(back == raw);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes(
        columns in prop::collection::vec((0usize..6, 0usize..40_000, any::<u64>()), 0..6),
        dtype in prop::option::of(prop::sample::select(Dtype::ALL)), level in prop::sample::select(Level::ALL),
    ) {
        let raw: Vec<u8> = columns.iter().flat_map(|&(kind, len, seed)| match kind {
            0 => vec![seed as u8; len],
            1 => noise(len, seed),
            2 => noise(len, seed).iter().map(|b| b & 3).collect(),
            3 => weights(len / 4, seed).iter().flat_map(|x| x.to_le_bytes()).collect(),
            4 => weights(len / 2, seed).iter().flat_map(|x| x.to_bits().to_le_bytes()[2..].to_vec()).collect(),
            _ => (0..len / 4).flat_map(|i| ((i as u64 * (seed & 0xff)) as u32).to_le_bytes()).collect(),
        }).collect();
        check_isas(&raw, &options(dtype, level));
    }

    #[test]
    fn any_safetensors_file(
        tensors in prop::collection::vec((prop::sample::select(Dtype::ALL), 0u64..30_000, any::<u64>()), 0..8), cut in 0usize..1000,
        level in prop::sample::select(Level::ALL),
    ) {
        let data: Vec<_> = tensors.iter().map(|(d, n, seed)| noise((u64::from(d.bits()) * 4 * n / 8) as usize, *seed)).collect();
        let names: Vec<_> = (0..tensors.len()).map(|i| format!("t{i}")).collect();
        let all: Vec<_> = (0..tensors.len()).map(|i| {
            let (d, n, _) = &tensors[i];
            (names[i].as_str(), d.name(), vec![4, *n], &data[i][..])
        }).collect();
        let raw = safetensors(&all);
        check_all_paths(&raw, &options(None, level));
        check_all_paths(&raw[..raw.len().saturating_sub(cut)], &options(None, level));
    }
}
