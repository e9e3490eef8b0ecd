//! Estimated sizes compared with the sizes of compressed files.

use std::path::Path;

use crate::support::snapshots::{Tensor, bf16, f32s, file_of, model};
use crate::support::{delta_of, safetensors, weights};
use lmc::{Base, CompressOptions, Compressor};

#[test]
fn estimates_are_near_what_comes_of_it() {
    // Weights whose scale changes from row to row; more and more of them are unchanged.
    let values = weights(20_000_000, 1);
    let old: Vec<f32> = values.iter().enumerate().map(|(i, w)| w * (1.0 + (i / 1000 % 97) as f32)).collect();
    let moves = weights(old.len(), 2);
    let new: Vec<f32> = (0..old.len())
        .map(|i| if (moves[i] > 0.0) ^ (i % 5000 < i / 4000) { old[i] } else { old[i] + 0.002 * moves[i] })
        .collect();
    let file = |w: &[f32]| {
        let (wide, narrow, small) = (f32s(w), bf16(&w[..16_000_000]), f32s(&weights(100_000, 3)));
        let tensors: &[Tensor<'_>] = &[
            ("a", "F32", vec![20_000, 1000], &wide),
            ("b", "BF16", vec![16_000_000], &narrow),
            ("c", "F32", vec![100_000], &small),
        ];
        safetensors(tensors)
    };
    let (old, new) = (file(&old), file(&new));
    let bases = [Base::new(&old[..]).unwrap().with_name("old")];
    for level in [lmc::Level::Fast, lmc::Level::Default] {
        for independent in [false, true] {
            let o = CompressOptions::default().with_level(level).with_independent(independent);
            for bases in [&bases[..], &[]] {
                let real = delta_of(&new, bases, &o).unwrap().len() as f64;
                let e = Compressor::new(&o).unwrap().estimate_from(&&new[..], bases, 32 << 20).unwrap();
                let (error, margin) = (e.compressed_size as f64 / real - 1.0, e.margin as f64 / real);
                println!("{:.3} % off, margin {:.3} %", 100.0 * error, 100.0 * margin);
                assert!(error.abs() < margin.max(0.01), "{:.3} % off", 100.0 * error);
                assert_eq!(e.raw_size, new.len() as u64);
                assert!(e.sampled * 4 < e.raw_size * 3, "{} of {}", e.sampled, e.raw_size);
            }
        }
    }
    // A small file is not sampled.
    let small = file_of(&model(0, 0.0));
    let o = CompressOptions::default().with_independent(true);
    let e = lmc::estimate(&small, &[], &o).unwrap();
    assert_eq!((e.compressed_size, e.sampled), (lmc::compress(&small, &o).unwrap().len() as u64, small.len() as u64));
    let none = lmc::estimate(&&[][..], &bases, &o).unwrap();
    assert_eq!(none.compressed_size, lmc::compress(&[], &o).unwrap().len() as u64);
}

/// A model's file with this many different copies of all its tensors: each begins at another element.
fn enlarged(file: &str, copies: usize) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(file);
    let raw = std::fs::read(path).unwrap();
    let base = Base::new(&raw[..]).unwrap();
    let mut tensors = Vec::new();
    for copy in 0..copies {
        for s in base.segments() {
            let (Some(name), Some(dtype)) = (&s.name, s.dtype) else { continue };
            let mut bytes = raw[s.offset as usize..s.end() as usize].to_vec();
            let by = 97 * copy * dtype.coding_width() % bytes.len();
            bytes.rotate_left(by);
            tensors.push((format!("{copy}.{name}"), dtype.to_string(), s.shape.to_vec(), bytes));
        }
    }
    let list: Vec<Tensor<'_>> = tensors.iter().map(|t| (&t.0[..], &t.1[..], t.2.clone(), &t.3[..])).collect();
    safetensors(&list)
}

#[test]
fn estimates_of_real_models() {
    let (old, new) = (enlarged("gpt-step300-state.safetensors", 16), enlarged("gpt-step310-state.safetensors", 16));
    let base = [Base::new(&old[..]).unwrap()];
    for bases in [&base[..], &[]] {
        for raw in [&new, &old] {
            let o = CompressOptions::default();
            let real = delta_of(raw, bases, &o).unwrap().len() as f64;
            let e = Compressor::new(&o).unwrap().estimate_from(&&raw[..], bases, 24 << 20).unwrap();
            let error = (e.compressed_size as f64 - real).abs();
            println!("{real}: {error} off, margin {}, {} of {}", e.margin, e.sampled, e.raw_size);
            // Unchanged blocks consist of heads only, where a few bytes are a large share.
            let margin = (e.margin as f64).max(0.01 * real);
            assert!(error <= margin + 1e-5 * raw.len() as f64, "{} instead of {real}", e.compressed_size);
            // Large blocks are those of deltas.
            assert!(e.sampled * 4 < e.raw_size * 3 || !bases.is_empty(), "{} of {}", e.sampled, e.raw_size);
        }
    }
}
