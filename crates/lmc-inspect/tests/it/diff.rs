//! Files compared with earlier ones.

use crate::safetensors;
use lmc::{Base, CompressOptions, Compressor};
use lmc_inspect::diff;

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
