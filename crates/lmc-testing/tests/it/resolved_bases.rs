//! Files that may be bases of each other.

use crate::support::{delta_of, restore};
use lmc::{Base, CompressOptions, DecompressOptions, ErrorKind, resolve_bases};

/// A file and two later versions of it, and the deltas of each from the one before.
fn chain() -> ([Vec<u8>; 3], [Vec<u8>; 3]) {
    let raw = [1.0f32, 1.0001, 1.0002]
        .map(|scale| (0..50_000u32).flat_map(|i| ((i as f32).sqrt() * scale).to_le_bytes()).collect::<Vec<u8>>());
    let o = CompressOptions::default();
    let delta = |n: usize| delta_of(&raw[n], &[Base::new(&raw[n - 1][..]).unwrap()], &o).unwrap();
    let files = [lmc::compress(&raw[0], &o).unwrap(), delta(1), delta(2)];
    (raw, files)
}

fn named<'a>(files: &[(&str, &'a [u8])]) -> Vec<(String, &'a [u8])> {
    files.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
}

#[test]
fn deltas_find_their_bases_in_any_order() {
    let (raw, [first, second, third]) = chain();
    let files = [("0", &first[..]), ("1", &second[..])];
    for order in [[0, 1], [1, 0]] {
        let files = named(&order.map(|i| files[i]));
        let bases = resolve_bases(files, 1).unwrap();
        assert_eq!(restore(&third, &bases, &DecompressOptions::default()).unwrap(), raw[2]);
        for (b, i) in bases.iter().zip(order) {
            // Only the second is needed for the third; the first is for the second.
            assert_eq!((b.name(), b.is_optional()), (["0", "1"][i], i == 0));
        }
    }
    // Raw files beside compressed ones.
    let bases = resolve_bases(named(&[("1", &second), ("0", &raw[0])]), 2).unwrap();
    assert_eq!(restore(&third, &bases, &DecompressOptions::default()).unwrap(), raw[2]);
    assert!(resolve_bases(named(&[]), 1).unwrap().is_empty());
}

#[test]
fn files_without_their_bases_are_reported() {
    let (raw, [first, second, third]) = chain();
    let e = resolve_bases(named(&[("0", &first), ("2", &third)]), 1).unwrap_err();
    assert_eq!((e.file, e.error.kind()), (1, ErrorKind::Base));
    assert_eq!(e.missing.unwrap().raw_size, raw[1].len() as u64);
    assert!(e.error.to_string().contains("\"2\""), "{}", e.error);
    let e = resolve_bases(named(&[("0", &raw[0]), ("cut", &second[..second.len() - 9])]), 1).unwrap_err();
    assert_eq!((e.file, e.error.kind()), (1, ErrorKind::Damaged));
    assert!(e.missing.is_none());
    // Nothing that begins as a file of ours does is taken for raw bytes, and nothing else is refused.
    let e = resolve_bases(named(&[("magic", &first[..8])]), 1).unwrap_err();
    assert_eq!(e.error.kind(), ErrorKind::Damaged);
    assert_eq!(resolve_bases(named(&[("short", &first[..7])]), 1).unwrap()[0].raw_size(), 7);
}
