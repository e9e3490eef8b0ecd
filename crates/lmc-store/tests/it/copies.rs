//! Copies of a model in other precisions, saved beside it: they cost next to nothing, whichever of the files change.

use std::collections::BTreeMap;

use crate::support::{data_objects, memory, new_store, noise, reader, step};
use lmc::Dtype;
use lmc_kernels::predict::derived::{BlockType, Number, cast};
use lmc_store::{Input, Keep, RebaseOptions, SaveOptions, Snapshot, Store, Tensor, Tensors};

const ROWS: usize = 320;
/// Less than the elements of a chunk, and more than those that share one; their blocks are fewer.
const ROW: usize = 320;

/// Weights in bf16, which move with the number.
fn weights(number: u64) -> Vec<u8> {
    let mut random = noise(2 * ROWS * ROW, 1);
    let moves = noise(ROWS * ROW, 100 + number);
    for (x, moved) in random.chunks_exact_mut(2).zip(moves) {
        let value = f32::from(u16::from_le_bytes([x[0], x[1]])) - 32768.0 + if moved < 20 { 300.0 } else { 0.0 };
        x.copy_from_slice(&((value * 1e-6).to_bits() >> 16).to_le_bytes()[..2]);
    }
    random
}

/// The rows of each head of 64 in the order of llama.cpp.
fn interleaved(weights: &[u8]) -> Vec<u8> {
    let row = |i: usize| &weights[i * 2 * ROW..][..2 * ROW];
    (0..ROWS).flat_map(|i| row(i / 64 * 64 + i % 2 * 32 + i % 64 / 2)).copied().collect()
}

/// A file of llama.cpp with tensors of Q8_0 and Q4_0.
fn gguf(of: [&[u8]; 2]) -> Vec<u8> {
    let mut file = [&b"GGUF"[..], &3u32.to_le_bytes(), &2u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
    let mut data = vec![];
    for (i, (weights, blocks)) in of.into_iter().zip([BlockType::Q8_0, BlockType::Q4_0]).enumerate() {
        let name = format!("blk.{i}.weight");
        file.extend((name.len() as u64).to_le_bytes());
        file.extend(name.bytes());
        file.extend(2u32.to_le_bytes());
        file.extend([ROW as u64, ROWS as u64].map(u64::to_le_bytes).as_flattened());
        file.extend((blocks as u32).to_le_bytes());
        file.extend((data.len() as u64).to_le_bytes());
        let fields: Vec<Vec<u8>> = (0..2)
            .map(|field| {
                let mut out = vec![0; ROWS * ROW / 32 * blocks.field_len(field).unwrap()];
                blocks.predict(field, Number::Bf16, weights, &mut out);
                out
            })
            .collect();
        for block in 0..ROWS * ROW / 32 {
            for (field, of) in (0..).zip(&fields) {
                let len = blocks.field_len(field).unwrap();
                data.extend(&of[block * len..][..len]);
            }
        }
        data.resize(data.len().next_multiple_of(32), 0);
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    file
}

fn safetensors(dtype: Dtype, [a, b]: [&[u8]; 2]) -> Vec<u8> {
    let shape = &[ROWS as u64, ROW as u64];
    let of = [Tensor { name: "a", dtype, shape, data: a }, Tensor { name: "b", dtype, shape, data: b }];
    let tensors = Tensors::new(&of, None).unwrap();
    let mut file = vec![0; lmc::ReadAt::size(&tensors).unwrap() as usize];
    lmc::ReadAt::read_exact_at(&tensors, &mut file, 0).unwrap();
    file
}

/// The model, and its copies; files in an order in which some come before it.
fn files(a: &[u8], b: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let converted = |to: Number, x: &[u8]| {
        let mut out = vec![0; x.len() / 2 * to.width()];
        cast(Number::Bf16, to, x, &mut out);
        out
    };
    let copy = |dtype, to| safetensors(dtype, [&converted(to, a), &converted(to, b)]);
    vec![
        ("a-half", copy(Dtype::F16, Number::F16)),
        ("model", safetensors(Dtype::Bf16, [a, b])),
        ("p8", copy(Dtype::F8E4M3, Number::E4m3)),
        ("q8.gguf", gguf([&interleaved(a), b])),
    ]
}

fn save(store: &Store, n: u64, files: &[(&str, Vec<u8>)]) -> Snapshot {
    let inputs: Vec<Input<'_>> = files.iter().map(|(name, bytes)| Input::new(*name, bytes)).collect();
    store.save(&inputs, Some(step(n)), BTreeMap::new(), &SaveOptions::default()).unwrap()
}

fn check(store: &Store, n: u64, files: &[(&str, Vec<u8>)]) {
    let reader = reader(store, n);
    for (name, bytes) in files {
        let mut whole = vec![];
        reader.read_file(name, &mut whole).unwrap();
        assert!(whole == *bytes, "{name} of step {n}");
    }
}

#[test]
fn copies_cost_next_to_nothing_and_survive_what_is_done_to_snapshots() {
    let (with, without) = (new_store(&memory()), new_store(&memory()));
    let mut saved = vec![];
    for n in 0..4 {
        let all = files(&weights(n), &weights(n + 50));
        let s = save(&with, n, &all);
        let alone = save(&without, n, &all[1..2]);
        let copies: usize = all.iter().map(|f| f.1.len()).sum::<usize>() - all[1].1.len();
        assert!(s.new_size < alone.new_size + copies as u64 / 40, "step {n}: {} and {}", s.new_size, alone.new_size);
        check(&with, n, &all);
        saved.push(all);
    }
    let mut keep = Keep::default();
    keep.steps = [1, 2, 3].map(step).into();
    with.prune(&with.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    with.rebase(&[step(2)], &RebaseOptions::default()).unwrap();
    for n in 1..4 {
        check(&with, n, &saved[n as usize]);
    }
    assert!(with.verify(&with.snapshots().unwrap(), true, 1).unwrap().problems.is_empty());
}

#[test]
fn copies_of_nothing_are_saved_alone() {
    let (a, b) = (weights(1), weights(2));
    let other: Vec<u8> = a.iter().rev().copied().collect();
    let all = [files(&a, &b).remove(3), ("other", safetensors(Dtype::Bf16, [&other, &other]))];
    let (together, apart) = (memory(), memory());
    let (one, two) = (new_store(&together), new_store(&apart));
    let both = save(&one, 0, &all).new_size;
    let each = save(&two, 0, &all[..1]).new_size + save(&two, 1, &all[1..]).new_size;
    assert_eq!(both, each);
    check(&one, 0, &all);
    assert_eq!(data_objects(&together).len(), 1);
}
