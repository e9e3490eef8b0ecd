//! Files compared with earlier ones.

use crate::safetensors;
use lmc::{Base, CompressOptions, Compressor};
use lmc_inspect::diff;
use lmc_test_inputs::noise;

/// Tensors that are nearly all zeros: alone they are cut into other large blocks than in deltas, and comparing files copes with both.
#[test]
fn zeros_are_compared_with_what_they_were() {
    let n: u64 = 6 << 20;
    let old: Vec<u8> = (0..n).flat_map(|i| if i % 100 == 7 { [1, 0x3c] } else { [0, 0] }).collect();
    // A little different in the same places; and dense.
    let moved: Vec<u8> = old.chunks(2).flat_map(|e| if e[1] == 0 { [0, 0] } else { [9, 0x3c] }).collect();
    let dense: Vec<u8> = (0..n).flat_map(|i| ((i * i % 509) as u16 + 0x3c00).to_le_bytes()).collect();
    let file = |raw: &[u8]| safetensors(&[("a", "BF16", vec![n], raw)]);
    let zeros = vec![0; 2 * n as usize];
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    for (new, old) in [(&old, &old), (&moved, &old), (&old, &dense), (&dense, &old), (&zeros, &zeros), (&zeros, &old)] {
        let (new, old) = (file(new), file(old));
        let (new, old) = (Base::new(&new[..]).unwrap(), Base::new(&old[..]).unwrap());
        let found = diff(&mut c, &new, std::slice::from_ref(&old), &mut |_| ()).unwrap();
        assert_eq!((found.delta.raw_size, found.alone.raw_size), (new.raw_size(), new.raw_size()));
        assert_eq!(found.delta.content_hash, found.alone.content_hash);
    }
}

/// A tensor whose second half repeats the first is one block in a delta, which blocks without a base do not divide.
#[test]
fn repeats_are_compared() {
    let (half, other) = (noise((3 << 20) - (1 << 18) + 100, 1), noise(2 << 20, 2));
    let file = |a: &[u8], b: &[u8]| {
        safetensors(&[("a", "F32", vec![a.len() as u64 / 4], a), ("b", "F32", vec![b.len() as u64 / 4], b)])
    };
    let (new, old) = (file(&half.repeat(2), &other), file(&noise(2 * half.len(), 3), &noise(2 << 20, 4)));
    let (new, old) = (Base::new(&new[..]).unwrap(), Base::new(&old[..]).unwrap());
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    let found = diff(&mut c, &new, std::slice::from_ref(&old), &mut |_| ()).unwrap();
    assert_eq!(found.delta.content_hash, found.alone.content_hash);
    assert!(found.delta.compressed_size < new.raw_size() * 3 / 4, "the repeat is found");
}
