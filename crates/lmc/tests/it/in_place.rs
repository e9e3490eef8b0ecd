//! Deltas applied over their base.

use crate::support::snapshots::{Tensor, bf16, f32s, file_of, model, trained};
use crate::support::{decompress_options, safetensors, weights};
use lmc::reference::write::File;
use lmc::{Base, CompressOptions, Decompressor, ErrorKind, Reader};
use lmc_testing::handmade;

/// A training state: master weights, and the same rounded.
fn state(seed: u64, step: f32) -> Vec<u8> {
    let (a, b) = (weights(600_000, 1), weights(9_000, 2));
    let (a, b) = (trained(&a, seed, step), trained(&b, seed + 1, step));
    let (a32, b32, a16, b16) = (f32s(&a), f32s(&b), bf16(&a), bf16(&b));
    let tensors: &[Tensor<'_>] = &[
        ("master.a", "F32", vec![600, 1000], &a32),
        ("master.b", "F32", vec![9_000], &b32),
        ("a", "BF16", vec![600, 1000], &a16),
        ("b", "BF16", vec![9_000], &b16),
    ];
    safetensors(tensors)
}

#[test]
fn deltas_are_applied_in_place() {
    let o = CompressOptions::default();
    let steps: Vec<Vec<u8>> = (0..4).map(|i| state(10 * i, i as f32 * 0.0001)).collect();
    for threads in [1, 2, 5] {
        let mut d = Decompressor::new(&decompress_options(threads)).unwrap();
        let mut buf = steps[0].clone();
        let mut hash = None;
        for pair in steps.windows(2) {
            let bases = [Base::new(&pair[0][..]).unwrap()];
            let delta = lmc::compress_delta(&pair[1], &bases, &o).unwrap();
            assert_eq!(delta[12], 3, "blocks depend on the base and on earlier ones");
            let summary = d.apply_in_place(&delta, &mut buf, hash).unwrap();
            assert!(buf == pair[1]);
            assert_eq!(summary.content_hash, Base::new(&buf[..]).unwrap().content_hash(1).unwrap());
            hash = Some(summary.content_hash);
        }
    }
}

#[test]
fn what_cannot_be_applied_in_place_changes_nothing() {
    let o = CompressOptions::default();
    let (old, new) = (model(0, 0.0), model(7, 0.0005));
    // Too large for one block, which might well have all that it needs.
    let large = [("a".to_owned(), weights(4_200_000, 1)), ("b".to_owned(), weights(4_200_000, 2))];
    let mut moved = large.clone();
    moved.swap(0, 1);
    let large = file_of(&large);
    let (old_file, new_file) = (file_of(&old), file_of(&new));
    let mut d = Decompressor::new(&decompress_options(2)).unwrap();
    let mut refused = |file: &[u8], base: &[u8], hash, kind: ErrorKind, why: &str| {
        let mut buf = base.to_vec();
        let e = d.apply_in_place(file, &mut buf, hash).unwrap_err();
        assert!(e.kind() == kind && e.to_string().contains(why), "{e:?}");
        assert!(buf == base, "nothing is changed: {e}");
    };
    let delta = |new: &[u8], bases: &[&[u8]]| {
        let bases: Vec<_> = bases.iter().map(|b| Base::new(*b).unwrap()).collect();
        lmc::compress_delta(new, &bases, &o).unwrap()
    };
    let good = delta(&new_file, &[&old_file]);
    refused(
        &delta(&file_of(&moved), &[&large]),
        &large,
        None,
        ErrorKind::Usage,
        "bytes of the base that others replace",
    );
    refused(&delta(&file_of(&new[1..]), &[&old_file]), &old_file, None, ErrorKind::Usage, "another size");
    refused(&lmc::compress(&new_file, &o).unwrap(), &old_file, None, ErrorKind::Usage, "is no delta");
    let two = delta(&new_file, &[&file_of(&old[..3]), &file_of(&old[3..])]);
    refused(&two, &old_file, None, ErrorKind::Usage, "several bases");
    refused(&good, &old_file[1..], None, ErrorKind::Base, "another file");
    refused(&good, &new_file, None, ErrorKind::Base, "altered");
    refused(&good, &old_file, Some([1; 16]), ErrorKind::Base, "altered");
    refused(&good[..good.len() - 1], &old_file, None, ErrorKind::Damaged, "");
    // Blocks that depend on too many others, as their heads tell.
    let chained = |depth: u64| {
        let own: Vec<_> = (0..depth).map(|i| handmade::copy(&[(0, i, b"b")])).collect();
        let blocks = [&[handmade::stored(b"b")], &own[..]].concat();
        File::delta(&[&vec![b'a'; 1 + depth as usize]], handmade::records(&blocks)).to_bytes()
    };
    refused(&chained(9), &[b'a'; 10], None, ErrorKind::Damaged, "depends on more than 8 others");
    let mut buf = [b'a'; 9];
    Decompressor::new(&decompress_options(1)).unwrap().apply_in_place(&chained(8), &mut buf, None).unwrap();
    assert_eq!(buf, [b'b'; 9]);
    // Damage that only decoding finds.
    let mut bad = good.clone();
    let b = Reader::open(&good[..], &decompress_options(1)).unwrap().blocks().next().unwrap();
    bad[(b.record_offset + b.record_len) as usize - 1] ^= 0x40;
    let mut buf = old_file.clone();
    let e = d.apply_in_place(&bad, &mut buf, None).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("now neither old nor new"), "{e}");
    // And a base of which the caller said that it is the right one.
    let hash = Base::new(&old_file[..]).unwrap().content_hash(1).unwrap();
    buf = old_file.iter().map(|b| b ^ 1).collect();
    let e = d.apply_in_place(&good, &mut buf, Some(hash)).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("now neither old nor new"), "{e}");
}
