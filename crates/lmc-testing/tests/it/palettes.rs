//! Palettes (map 3, §3.3.1 and §4.1): known bytes, and each rule that a palette breaks.

use lmc_testing::decoders::agree;
use lmc_testing::handmade::{FIRST, copy, encoded, judged, judged_block, records, refused, refused_block};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{Block, BlockFields, Cluster, Column, Patch, Plain, Stream};
use lmc_testing::vectors;

/// No mask, one cluster without patches: zeros of two bytes.
const ZEROS: [u8; 8] = [0, 1, 0, 0, 16, 0, 0, 0];

/// A column of two-byte elements with this head, from the map on, and this bulk: of `length` only the number matters.
fn fields(length: usize, stream: &[u8], bulk: &[u8]) -> BlockFields {
    let stream_of_zeros = Stream::default();
    let column = Column::Plain(Plain { raw: vec![0; length], width_code: 1, stream: stream_of_zeros });
    let mut fields = encoded(&Block::of(column, 0));
    fields.columns[0] = [&[2, 1], stream].concat();
    fields.bulk[0] = bulk.to_vec();
    fields
}

#[test]
fn every_vector_is_restored() {
    for vector in vectors::palettes() {
        assert!(agree(&vector.file.to_bytes()) == Ok(vector.raw), "{}", vector.name);
    }
}

#[test]
fn palettes_as_they_are_written() {
    let palette = [0xabcd, 0x0001, 0x1234];
    let raw = [0x34, 0x12, 0xcd, 0xab, 1, 0, 0xcd, 0xab];
    let cluster = Cluster { k: 2, h: 14, ..Cluster::default() };
    let stream = Stream::of_palette(&palette, cluster);
    let written =
        encoded(&Block::of(Column::Plain(Plain { raw: raw.to_vec(), width_code: 1, stream: stream.clone() }), 0));
    assert_eq!(written.columns[0], [2, 1, 3, 2, 0xcd, 0xab, 1, 0, 0x34, 0x12, 0, 1, 0, 0, 0, 14, 2, 0]);
    // Indices 2, 0, 1, 0: their low bits, then the others.
    assert_eq!(written.bulk[0], [0b0100, 0b0001]);
    assert_eq!(judged_block(&written), Ok(raw.to_vec()));

    // The palette counts after patches: index 1 is 3 before.
    let stream = Stream { patches: vec![Patch { element: 2, x: 2 }], ..stream };
    let patched = encoded(&Block::of(Column::Plain(Plain { raw: raw.to_vec(), width_code: 1, stream }), 0));
    assert_eq!(patched.bulk[0][..2], [0b0100, 0b0101]);
    assert_eq!(judged_block(&patched), Ok(raw.to_vec()));
}

#[test]
fn values_that_are_there_twice() {
    // All elements are the first one.
    let with_palette = |palette: &[u8]| fields(4, &[&[3], palette, &ZEROS].concat(), &[]);
    assert_eq!(judged_block(&with_palette(&[2, 7, 0, 8, 0, 7, 1])), Ok(vec![7, 0, 7, 0]));
    for palette in [&[1, 7, 0, 7, 0][..], &[2, 7, 0, 8, 0, 7, 0], &[2, 9, 0, 7, 8, 7, 8]] {
        refused_block(&with_palette(palette), "twice");
    }
    let mut most: Vec<u8> = (0..=255).flat_map(|i| [i, 77]).collect();
    assert!(judged_block(&with_palette(&[&[255][..], &most].concat())).is_ok());
    most[510] = 0;
    refused_block(&with_palette(&[&[255][..], &most].concat()), "twice");
}

#[test]
fn indices_that_are_not_in_their_palette() {
    // Two elements of this mapped value, with these patches.
    let with = |width_code: u8, count: u64, v: u64, patches: &[u8]| {
        let width = 1 << width_code;
        let palette = (0..count).flat_map(|i| (3 * i % 256).to_le_bytes()[..width].to_vec());
        let patches_or_none = if patches.is_empty() { &[0] } else { patches };
        let cluster = [&[1, 8 * width as u8, 0, 0, 0], &v.to_le_bytes()[..width]].concat();
        let start = [2, width_code, 3, (count - 1) as u8];
        let head = [&start, &palette.collect::<Vec<_>>()[..], &[0, 1], patches_or_none];
        let mut fields = fields(2 * width, &[], &[]);
        fields.columns[0] = [&head.concat()[..], &cluster].concat();
        fields
    };
    for width_code in 0..4 {
        for count in [1, 2, 3, 200, 255, 256] {
            let most = u64::MAX >> (64 - (8 << width_code));
            assert!(judged_block(&with(width_code, count, count - 1, &[])).is_ok());
            // Also those that are, if not all of their bits are regarded.
            for v in [count, 255, 256, 1 << 8, 1 << 16, 1 << 32, 1 << 63, most] {
                if v >= count && v <= most {
                    refused_block(&with(width_code, count, v, &[]), "not in its palette");
                }
            }
        }
    }
    // A patch makes the second of them 2, or 3. Gaps and changes are without bits.
    let patch_of = |change: u8| [1, 1, 0, 0, 1, 0, 0, change, 0, 0];
    assert_eq!(judged_block(&with(0, 3, 0, &patch_of(1))), Ok(vec![0, 6]));
    refused_block(&with(0, 3, 0, &patch_of(2)), "not in its palette");
    assert_eq!(judged_block(&with(0, 3, 1, &patch_of(0))), Ok(vec![3, 0]));
    // Listed ones as well: one, after a gap of 1.
    let sparse = |change: u8| {
        let listed = [3, 1, 0, 1, 0, 0, 0, 0, change, 0, 0];
        fields(4, &[&[3, 2, 7, 0, 8, 0, 9, 0], &listed[..]].concat(), &[])
    };
    assert_eq!(judged_block(&sparse(1)), Ok(vec![7, 0, 9, 0]));
    refused_block(&sparse(2), "not in its palette");
    // Indices of a run that are all right but for the last.
    let in_bits = |last: u8| fields(6, &[3, 2, 7, 0, 8, 0, 9, 0, 0, 1, 0, 0, 0, 8, 8, 0], &[0, 2, last]);
    assert_eq!(judged_block(&in_bits(1)), Ok(vec![7, 0, 9, 0, 8, 0]));
    refused_block(&in_bits(3), "not in its palette");
}

#[test]
fn heads_of_palettes() {
    let valid = [3, 1, 7, 0, 8, 0, 0, 1, 0, 0, 16, 0, 0, 0];
    assert_eq!(judged_block(&fields(4, &valid, &[])), Ok(vec![7, 0, 7, 0]));
    for end in 0..valid.len() {
        // The missing byte is taken from the digest, so the head ends too early, or nothing fits.
        assert!(judged_block(&fields(4, &valid[..end], &[])).is_err());
    }
    for count_less_one in [0, 2, 255] {
        let mut other = valid;
        other[1] = count_less_one;
        assert!(judged_block(&fields(4, &other, &[])).is_err());
    }
    for map in [4, 5, 255] {
        let mut other = valid;
        other[0] = map;
        refused_block(&fields(4, &other, &[]), "unknown map");
    }
}

#[test]
fn predicted_columns_have_no_palette() {
    let mut fields = copy(&[(1, 0, FIRST)]);
    let map = 11;
    assert_eq!(fields.columns[0][map..], [0, 0, 1, 0, 0, 8, 0, 0, 0]);
    assert!(judged(File::delta(&[FIRST], records(&[fields.clone()])), &[FIRST]).is_ok());
    // All residuals are the only value, 0, as they were.
    fields.columns[0].splice(map..map + 1, [3, 0, 0]);
    refused(File::delta(&[FIRST], records(&[fields])), &[FIRST], "predicted column");
}
