//! Blocks of quantised elements: a column for each field.

use super::*;
use lmc_layout::dtype::NamedDtype;

/// Blocks of this type whose fields have these bits each, one after the other.
fn blocks(name: &str, fields: &[(usize, u32)], n: usize, seed: u64) -> (Dtype, Vec<u8>) {
    let mut r = Random(seed);
    let one: Vec<u32> = fields.iter().flat_map(|&(len, bits)| std::iter::repeat_n(bits, len)).collect();
    let dtype = Dtype::Named(NamedDtype::new(name, 8 * one.len() as u32).unwrap());
    (dtype, (0..n).flat_map(|_| one.clone()).map(|bits| (r.next() & ((1 << bits) - 1)) as u8).collect())
}

/// The lengths of the columns.
fn columns(record: &[u8]) -> Vec<usize> {
    head_of(record).columns.iter().map(|c| c.len).collect()
}

#[test]
fn every_field_has_a_column() {
    let n = 4000;
    let q4_k = [(2, 3), (2, 4), (12, 6), (128, 8)];
    let (dtype, raw) = blocks("Q4_K", &q4_k, n, 1);
    for &level in Level::ALL {
        let record = round_trip(&raw, &[Extent::plain(Some(dtype), raw.len())], level);
        assert_eq!(columns(&record), [2, 2, 12, 128].map(|len| len * n));
        let bits: usize = q4_k.iter().map(|&(len, bits)| len * bits as usize).sum();
        let least = bits * n / 8;
        assert!(record.len() > least && record.len() < least + least / 200 + 1000, "{} of {least}", record.len());
        assert_eq!(head_of(&record).extents.count(), 4 * n);
    }
}

#[test]
fn opaque_bytes_and_other_types_are_between_blocks() {
    let (q8_0, first) = blocks("Q8_0", &[(2, 4), (32, 7)], 500, 2);
    let (q6_k, second) = blocks("Q6_K", &[(128, 8), (64, 8), (16, 5), (2, 2)], 100, 3);
    let (_, third) = blocks("Q8_0", &[(2, 4), (32, 7)], 500, 7);
    let raw = [&[1, 2, 3][..], &first, &[4; 30], &second, &third, &[5]].concat();
    let lens =
        [(None, 3), (Some(q8_0), first.len()), (None, 30), (Some(q6_k), second.len()), (Some(q8_0), third.len())];
    let extents: Vec<_> = lens.into_iter().chain([(None, 1)]).map(|(d, len)| Extent::plain(d, len)).collect();
    let record = round_trip(&raw, &extents, Level::Default);
    // Equal fields of two tensors of a type share columns.
    assert_eq!(columns(&record), [34, 2 * 1000, 2 * 16_000, 12_800, 6400, 1600, 200]);
    // Tensors that have columns of their own.
    let own: Vec<_> = extents.iter().enumerate().map(|(i, p)| Extent { group: Group::Segment(i), ..*p }).collect();
    let record = round_trip(&raw, &own, Level::Default);
    assert_eq!(head_of(&record).columns.len(), 3 + 2 + 4 + 2);
}

#[test]
fn blocks_without_room_for_their_fields_are_opaque() {
    let (dtype, raw) = blocks("Q5_1", &[(2, 4), (2, 4), (4, 8), (16, 8)], 5 * 300, 4);
    let len = raw.len() / 5;
    let own = |i| Extent { group: Group::Segment(i), ..Extent::plain(Some(dtype), len) };
    let record = round_trip(&raw, &[0, 1, 2, 3, 4].map(own), Level::Default);
    // Three tensors with four columns each; the others are bytes.
    assert_eq!(columns(&record)[12..], [2 * len]);
}

#[test]
fn what_is_no_whole_block_is_bytes() {
    let (dtype, raw) = blocks("Q8_0", &[(2, 4), (32, 8)], 100, 5);
    let raw = &raw[..raw.len() - 1];
    assert_eq!(columns(&round_trip(raw, &[Extent::plain(Some(dtype), raw.len())], Level::Default)), [raw.len()]);
    // A type that is not known.
    let (dtype, raw) = blocks("Q9_9", &[(2, 4), (32, 8)], 100, 5);
    assert_eq!(columns(&round_trip(&raw, &[Extent::plain(Some(dtype), raw.len())], Level::Default)), [raw.len()]);
}

#[test]
fn blocks_that_repeat_are_left_to_zstd() {
    let (dtype, once) = blocks("Q4_0", &[(2, 8), (16, 8)], 128, 6);
    let raw = once.repeat(128);
    let record = round_trip(&raw, &[Extent::plain(Some(dtype), raw.len())], Level::Default);
    assert_eq!(columns(&record), [raw.len()]);
    assert!(record.len() < once.len() + 1000, "{} of {}", record.len(), once.len());
}
