//! Tensors predicted from others of their own file, in any order.

use crate::support::snapshots::{bf16, f32s};
use crate::support::{Counted, Memory, decompress_options, safetensors, weights};
use lmc::{CompressOptions, Compressor, Decompressor, Reader, Sink, Source};
use lmc_testing::input::Random;

/// A file of these tensors: the index of the content, whether it is rounded to bf16, and the number of elements.
fn file(contents: &[Vec<f32>], tensors: &[(usize, bool, usize)]) -> Vec<u8> {
    let named: Vec<(String, &str, Vec<u64>, Vec<u8>)> = tensors
        .iter()
        .enumerate()
        .map(|(i, &(content, rounded, n))| {
            let elements = &contents[content][..n];
            let (dtype, bytes) = if rounded { ("BF16", bf16(elements)) } else { ("F32", f32s(elements)) };
            (format!("{i}"), dtype, vec![n as u64], bytes)
        })
        .collect();
    let tensors: Vec<_> =
        named.iter().map(|(name, dtype, shape, data)| (&name[..], *dtype, shape.clone(), &data[..])).collect();
    safetensors(&tensors)
}

/// Compresses in several ways, with equal results, and restores by every decoder; returns the compressed size.
fn restored(raw: &[u8]) -> usize {
    let compressed = |threads, from_file| {
        let o = CompressOptions::default().with_threads(threads);
        let (mut c, mut out) = (Compressor::new(&o).unwrap(), Vec::new());
        if from_file {
            c.compress(&Counted::new(raw), &[], &mut out).unwrap();
        } else {
            c.compress(raw, &[], &mut out).unwrap();
        }
        out
    };
    let lmc = compressed(1, false);
    for (threads, from_file) in [(1, true), (3, false), (3, true)] {
        assert!(compressed(threads, from_file) == lmc, "{threads} threads, from a file: {from_file}");
    }
    for threads in [1, 3] {
        let mut d = Decompressor::new(&decompress_options(threads)).unwrap();
        let mut back = vec![0; raw.len()];
        d.decompress(&lmc, &[], &mut back[..]).unwrap();
        assert!(back == raw);
        let memory = Memory::default();
        d.decompress(&lmc[..], &[], &memory).unwrap();
        assert!(memory.0.into_inner().unwrap() == raw);
        let mut back = Vec::new();
        d.decompress(Source::reader(&mut &lmc[..]), &[], Sink::writer(&mut back)).unwrap();
        assert!(back == raw);
    }
    assert!(lmc_testing::reference::decode(&lmc, raw.len()).unwrap() == raw);
    // The last block needs all its ranges.
    let reader = Reader::open(&lmc, &decompress_options(1)).unwrap();
    let mut last = [0; 1000];
    reader.read_range((raw.len() - last.len()) as u64, &mut last).unwrap();
    assert_eq!(last, raw[raw.len() - last.len()..]);
    lmc.len()
}

#[test]
fn blocks_that_each_depend_on_the_one_before() {
    // Every weight stands behind the master of the next: nearly every block has one that was rounded in the block before.
    let n = 130_000;
    let contents: Vec<_> = (0..40).map(|i| weights(n, i)).collect();
    let mut tensors = vec![(0, false, n)];
    for i in 1..40 {
        tensors.extend([(i, false, n), (i - 1, true, n)]);
    }
    let chained = restored(&file(&contents, &tensors));
    let masters: Vec<_> = (0..40).map(|i| (i, false, n)).collect();
    let alone = restored(&file(&contents, &masters));
    // Without predictions weights take four tenths of the size of masters; so do those in the block of their masters, and one block in
    // nine.
    assert!(chained < alone + alone / 5, "{chained} {alone}");
}

#[test]
fn any_order_of_tensors_that_say_the_same() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let contents: Vec<_> = (0..1 + random.below(6)).map(|i| weights(400_000, 100 * seed + i)).collect();
        let sizes = [4095, 4096, 20_000, 60_000, 90_000, 131_072, 262_144, 400_000];
        let (mut tensors, mut bytes) = (vec![], 0);
        loop {
            let content = random.below(contents.len() as u64) as usize;
            let n = sizes[random.below(if seed < 8 { 5 } else { 8 }) as usize];
            bytes += 4 * n;
            if bytes > if seed < 8 { 15 << 20 } else { 40 << 20 } {
                break;
            }
            tensors.push((content, random.below(2) == 0, n));
        }
        restored(&file(&contents, &tensors));
    }
}
