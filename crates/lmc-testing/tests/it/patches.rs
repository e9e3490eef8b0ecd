//! Patches (§3.3.2), codes of numbers (§3.3.3) and streams without clusters: known bytes, and each rule that a block with patches breaks.

use lmc_testing::handmade::{encoded, judged_block as judged, refused_block as refused};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{
    Block, BlockFields, Cluster, Column, NumberCode, Patch, PatchCodes, Plain, Stream, mapped,
};
use lmc_testing::reference::write::varint;

/// All bits raw: the bulk is byte planes, then patches.
fn plain(width_code: u8) -> Cluster {
    Cluster { k: 8 << width_code, ..Cluster::default() }
}

/// Elements in one cluster.
fn block(raw: Vec<u8>, width_code: u8, map: u8, cluster: Cluster, patches: &[(u64, u64)]) -> Block {
    let patches = patches.iter().map(|&(element, x)| Patch { element, x }).collect();
    let stream = Stream { patches, ..Stream::of(map, cluster) };
    Block::of(Column::Plain(Plain { raw, width_code, stream }), 0)
}

/// A code of one bucket: numbers that are alike but for `raw` low bits.
fn alike(raw: u8, bucket: u8) -> Option<NumberCode> {
    Some(NumberCode { raw, first: bucket, lengths: vec![0] })
}

#[test]
fn patches_as_they_are_written() {
    let fields = encoded(&block(vec![1, 2, 3, 4], 0, 0, plain(0), &[(0, 0xff), (3, 0x80)]));
    // Gaps 0 and 2: a bit each. Changes 0xfe and 0x7f: buckets 31 (5 bits open) and 27 (4).
    let lengths = [1, 0, 0, 0, 1];
    let packed: Vec<u8> = lengths.chunks(2).map(|two| two[0] | two.get(1).unwrap_or(&0) << 4).collect();
    let head = [&[2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 2, 0x01, 0x01, 0, 27, 4][..], &packed, &[2, 0, 0, 0, 8, 0]].concat();
    assert_eq!(fields.columns[0], head);
    // From the lowest bit up: 0, 1 and 11110; 1, 0 and 1111.
    let bits = 0b1_1110_1111_1010u16;
    assert_eq!(fields.bulk[0], [&[1 ^ 0xff, 2, 3, 4 ^ 0x80][..], &bits.to_le_bytes()].concat());
    assert_eq!(judged(&fields), Ok(vec![1, 2, 3, 4]));
}

#[test]
fn patches_change_mapped_values() {
    // Rotated, 0xbf80 is 0x7f01. Only the top byte is coded but for the patch.
    let cluster = Cluster { constant: Some(0), z: 8, k: 8, ..Cluster::default() };
    let fields = encoded(&block(vec![0x80, 0xbf], 1, 1, cluster, &[(0, 0x0101)]));
    assert_eq!(fields.bulk[0][0], 0x7e);
    assert_eq!(judged(&fields), Ok(vec![0x80, 0xbf]));
    // Zigzag: −3 is 5.
    let fields = encoded(&block(vec![0xfd], 0, 2, plain(0), &[(0, 4)]));
    assert_eq!(fields.bulk[0], [1]);
    assert_eq!(judged(&fields), Ok(vec![0xfd]));
}

#[test]
fn patches_leave_low_bits_alone() {
    for low in 0..8 {
        let mut block = block(vec![0x55; 3], 0, 0, plain(0), &[(1, 0x80), (2, 0x80)]);
        let Column::Plain(plain_column) = &mut block.columns[0] else { unreachable!("the column is plain") };
        plain_column.stream.patch_codes = PatchCodes { low, gaps: alike(1, 0), ..PatchCodes::default() };
        let fields = encoded(&block);
        assert_eq!((fields.columns[0][7], judged(&fields)), (low, Ok(vec![0x55; 3])));
    }
}

#[test]
fn streams_without_clusters() {
    let mut random = Random::new(2);
    for map in 0..3 {
        for count in [1usize, 127, 128, 300] {
            let elements: Vec<u64> =
                (0..count).map(|_| if random.below(4) == 0 { random.below(1 << 16) } else { 0 }).collect();
            let raw: Vec<u8> = elements.iter().flat_map(|u| (*u as u16).to_le_bytes()).collect();
            let patches = (0..).zip(&elements).filter(|(_, u)| **u != 0);
            let patches = patches.map(|(element, &u)| Patch { element, x: mapped(u, 16, map) }).collect();
            let stream = Stream { map, patches, ..Stream::default() };
            let column = Column::Plain(Plain { raw: raw.clone(), width_code: 1, stream });
            assert_eq!(judged(&encoded(&Block::of(column, 0))), Ok(raw));
        }
    }
    // None at all: 0 times 4.
    let nothing = Column::Plain(Plain { raw: vec![0; 8], width_code: 1, stream: Stream::default() });
    let fields = encoded(&Block::of(nothing, 0));
    assert_eq!((&fields.columns[0][..], &fields.bulk[0][..]), (&[2, 1, 0, 0, 1, 0, 0, 16, 0, 0, 0][..], &[][..]));
    assert_eq!(judged(&fields), Ok(vec![0; 8]));
}

#[test]
fn patches_reach_the_last_element_of_any_stream() {
    let mut random = Random::new(1);
    for count in [1u64, 2, 127, 128, 129, 256, 1000] {
        for width_code in 0..4 {
            // No bits in the clusters: patches alone make the elements.
            let w = 8u32 << width_code;
            let cluster = Cluster { z: w as u8, ..Cluster::default() };
            let x = u64::MAX >> (64 - w);
            let mut raw = vec![0; (count << width_code) as usize];
            raw[((count - 1) << width_code) as usize..].fill(0xff);
            let fields = encoded(&block(raw.clone(), width_code, 0, cluster.clone(), &[(count - 1, x)]));
            assert_eq!(judged(&fields), Ok(raw));

            // And all of them.
            let elements: Vec<u64> = (0..count).map(|_| 1 | random.u64() & x).collect();
            let raw: Vec<u8> = elements.iter().flat_map(|u| u.to_le_bytes()[..1 << width_code].to_vec()).collect();
            let patches: Vec<(u64, u64)> = (0..).zip(elements).collect();
            let fields = encoded(&block(raw.clone(), width_code, 0, cluster, &patches));
            assert_eq!(judged(&fields), Ok(raw));
        }
    }
}

#[test]
fn patches_of_several_clusters_come_last() {
    // The second cluster has no bits but a constant, from which a patch takes the last element.
    let mut raw: Vec<u8> = (0..200).map(|i| if i < 128 { i } else { 255 }).collect();
    raw[199] ^= 2;
    let stream = Stream {
        cluster_of: vec![0, 1],
        cluster_map: plain(0),
        clusters: vec![plain(0), Cluster { constant: Some(255), z: 8, ..Cluster::default() }],
        patches: vec![Patch { element: 127, x: 1 }, Patch { element: 199, x: 2 }],
        ..Stream::default()
    };
    let column = Column::Plain(Plain { raw: raw.clone(), width_code: 0, stream });
    let fields = encoded(&Block::of(column, 0));
    let values: Vec<u8> = (0..127).chain([126]).collect();
    // Gaps 127 and 71, of the buckets 27 and 24, each with four open bits; changes 0 and 1.
    // From the lowest bit up: 1 and 1111, 0; 0 and 0111, 1.
    let bits = 0b1011_1001_1111u16;
    assert_eq!(fields.bulk[0], [&[0, 1][..], &values, &bits.to_le_bytes()].concat());
    assert_eq!(judged(&fields), Ok(raw));
}

/// A code of eight raw bits and a single bucket, for gaps and changes.
const BYTES: [u8; 6] = [8, 0, 0, 8, 0, 0];

/// Ten bytes and their patches with these codes; the head gives `count` patches.
fn with_patches(count: u64, codes: &[u8], patches: &[u8]) -> BlockFields {
    let mut fields = encoded(&block((0..10).collect(), 0, 0, plain(0), &[(0, 1)]));
    fields.columns[0].truncate(3);
    // No mask, one cluster, patches.
    fields.columns[0].extend([0, 1, 1]);
    varint(&mut fields.columns[0], count);
    fields.columns[0].push(0);
    fields.columns[0].extend(codes);
    varint(&mut fields.columns[0], patches.len() as u64);
    fields.columns[0].extend([0, 0, 0, 8, 0]);
    fields.bulk[0] = (0..10).collect();
    fields.bulk[0].extend(patches);
    fields
}

#[test]
fn broken_patches() {
    assert_eq!(judged(&with_patches(2, &BYTES, &[2, 3, 6, 0x7f])), Ok(vec![0, 1, 6, 3, 4, 5, 6, 7, 8, 0x89]));
    refused(&with_patches(0, &BYTES, &[]), "none of them");
    refused(&with_patches(1, &BYTES, &[10, 0]), "not in its stream");
    refused(&with_patches(2, &BYTES, &[9, 0, 0, 0]), "not in its stream");
    refused(&with_patches(1, &BYTES, &[3, 0xff]), "wider than its element");
    refused(&with_patches(1, &BYTES, &[3, 0, 0]), "do not end");
    refused(&with_patches(2, &BYTES, &[3, 0, 1]), "too early");
    refused(&with_patches(1, &BYTES, &[3]), "too early");
    refused(&with_patches(1, &BYTES, &[]), "too early");
    for count in [3, 1 << 24, 1 << 32, u64::MAX] {
        refused(&with_patches(count, &BYTES, &[2, 3, 6, 0x7f]), "too early");
    }
    // Codes without bits: every number is 0, and a stream ends.
    let nothing = [0, 0, 0, 0, 0, 0];
    assert_eq!(judged(&with_patches(10, &nothing, &[])), Ok(vec![1, 0, 3, 2, 5, 4, 7, 6, 9, 8]));
    for count in [11, 1 << 24, 1 << 32, u64::MAX] {
        refused(&with_patches(count, &nothing, &[]), "not in its stream");
    }
    refused(&with_patches(1, &nothing, &[0]), "do not end");
    // Seven bits of a change, and one left over.
    let seven = [8, 0, 0, 7, 0, 0];
    assert!(judged(&with_patches(1, &seven, &[3, 0x7f])).is_ok());
    refused(&with_patches(1, &seven, &[3, 0xff]), "do not end");
    // Gaps of 64 bits: together they are 3, modulo 2^64.
    let wide = [63, 1, 0, 0, 0, 0];
    refused(&with_patches(1, &wide, &[0; 8]), "not in its stream");
    refused(&with_patches(1, &wide, &[0xff; 8]), "not in its stream");

    let changed = |at: usize, byte: u8| {
        let mut fields = with_patches(1, &BYTES, &[3, 1]);
        fields.columns[0][at] = byte;
        fields
    };
    refused(&changed(5, 2), "unknown kind");
    refused(&changed(5, 255), "unknown kind");
    refused(&changed(7, 8), "change no bit");
    refused(&changed(7, 255), "change no bit");
    refused(&changed(7, 7), "wider than its element");
    // The bytes of the patches are one more or fewer.
    refused(&changed(14, 1), "too early");
    refused(&changed(14, 3), "too early");
    let mut huge = with_patches(1, &BYTES, &[3, 1]);
    huge.columns[0].splice(14..15, [[0xff; 9].as_slice(), &[1]].concat());
    refused(&huge, "too early");
    let mut more = with_patches(1, &BYTES, &[3, 1]);
    more.bulk[0].push(0);
    refused(&more, "too long");
    // More clusters than there may be.
    refused(&changed(4, 17), "number of clusters");
}

#[test]
fn broken_codes_of_numbers() {
    let coded = |gaps: &[u8]| with_patches(1, &[gaps, &[8, 0, 0]].concat(), &[0, 0]);
    // A bit for the bucket, and a byte for the change: seven bits left over.
    assert!(judged(&coded(&[0, 0, 1, 0x11])).is_ok());
    refused(&coded(&[64, 0, 0]), "63 raw bits");
    refused(&coded(&[255, 0, 0]), "63 raw bits");
    refused(&coded(&[0, 255, 1, 0x11]), "above 255");
    refused(&coded(&[0, 1, 255]), "above 255");
    for lengths in [[0x12, 0x00], [0x22, 0x02], [0x11, 0x01], [0x00, 0x00], [0x01, 0x00]] {
        refused(&coded(&[&[0, 0, 2][..], &lengths].concat()), "not complete");
    }
    refused(&coded(&[0, 0, 2, 0xc1, 0x02]), "length above 11");
    refused(&coded(&[0, 0, 2, 0x21, 0x12]), "last half-byte");
    // Eleven bits are as many as there may be.
    let longest: Vec<u8> = (1..=11).chain([11]).collect();
    let packed: Vec<u8> = longest.chunks(2).map(|two| two[0] | two[1] << 4).collect();
    assert!(judged(&coded(&[&[0, 0, 11][..], &packed].concat())).is_ok());
    // Numbers of 64 bits, and more.
    for (raw, bucket) in [(63, 1), (62, 3), (60, 15), (59, 19), (0, 255)] {
        let numbers = |raw: u8| judged(&with_patches(1, &[raw, bucket, 0, 0, 0, 0], &[0; 8])).unwrap_err();
        assert!(!numbers(raw).contains("more than 64 bits"), "{raw} {bucket}");
        if raw < 63 {
            assert!(numbers(raw + 1).contains("more than 64 bits"), "{raw} {bucket}");
        }
    }
    refused(&with_patches(1, &[63, 2, 0, 0, 0, 0], &[0; 8]), "more than 64 bits");
}

#[test]
fn patches_as_wide_as_their_elements() {
    for width_code in 0..3u8 {
        let w = 8 << width_code;
        let refused_x = |y: u64| {
            let mut fields = encoded(&block(vec![7; 1 << width_code], width_code, 0, plain(width_code), &[(0, 1)]));
            // A gap of no bits, a change of w.
            fields.columns[0].splice(8..15, [0, 0, 0, w, 0, 0, 1 << width_code]);
            fields.bulk[0] = [&vec![7; 1 << width_code][..], &y.to_le_bytes()[..1 << width_code]].concat();
            judged(&fields)
        };
        assert!(refused_x((1 << w) - 2).is_ok());
        assert!(refused_x((1 << w) - 1).is_err_and(|why| why.contains("wider than its element")));
    }
}
