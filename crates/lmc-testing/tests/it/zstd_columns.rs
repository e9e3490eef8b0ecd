//! Columns of method 1 (§3.3): frames, byte planes and prefixes; known bytes, and each rule that such a column breaks.

use crate::support::judged_without_limits;
use lmc_testing::damage::HUGE;
use lmc_testing::data::noise;
use lmc_testing::decoders::agree_with_bases;
use lmc_testing::handmade::{encoded, judged, prefixed, records, refused};
use lmc_testing::reference::write::block::{Block, BlockFields, Column, Zstd};
use lmc_testing::reference::write::{File, varint, zstd_frame};
use lmc_testing::vectors;

/// A block of one column: of `raw` only the length matters. The head is given from the byte after the method up to the
/// frame's length.
fn fields(raw: &[u8], head: &[u8], frame_length: u64, frame: &[u8]) -> BlockFields {
    let mut fields = prefixed(raw, &[]);
    fields.columns[0] = [&[1], head].concat();
    varint(&mut fields.columns[0], frame_length);
    fields.bulk[0] = frame.to_vec();
    // If the head names any, it does so behind width code and number.
    fields.has_body_check = head.len() > 2;
    fields.needs = u32::from(fields.has_body_check);
    fields
}

/// A file of it, and of one base.
fn file(base: &[u8], fields: BlockFields) -> File {
    File::delta(&[base], records(&[fields]))
}

#[test]
fn every_vector_is_restored() {
    for vector in vectors::byte_planes().into_iter().chain(vectors::prefixes()) {
        let decoded = agree_with_bases(&vector.file.to_bytes(), &vector.bases());
        assert!(decoded == Ok(vector.raw), "{}", vector.name);
    }
}

#[test]
fn byte_planes_as_they_are_written() {
    let raw: Vec<u8> = (0..24).collect();
    let planes: [Vec<u8>; 4] = [
        raw.clone(),
        (0..2).flat_map(|i| (0..12).map(move |element| 2 * element + i)).collect(),
        (0..4).flat_map(|i| (0..6).map(move |element| 4 * element + i)).collect(),
        [0, 8, 16, 1, 9, 17, 2, 10, 18, 3, 11, 19, 4, 12, 20, 5, 13, 21, 6, 14, 22, 7, 15, 23].to_vec(),
    ];
    for (width_code, planes) in (0..).zip(planes) {
        let frame = zstd_frame(&planes, &[]);
        let column = Column::Zstd(Zstd { width_code, ..Zstd::of(raw.clone()) });
        let fields = encoded(&Block::of(column, 0));
        assert_eq!(fields.columns[0], [1, width_code, 0, frame.len() as u8]);
        assert_eq!(fields.bulk[0], frame);
        assert_eq!(judged(File::new(vec![fields.record()]), &[]), Ok(raw.clone()));
    }
}

#[test]
fn prefixes_as_they_are_written() {
    let base = noise(300, 1);
    let raw = [&base[100..], &base[..100]].concat();
    let valid = prefixed(&raw, &[(1, 0, &base[..100]), (1, 100, &base[100..])]);
    let frame = zstd_frame(&raw, &base);
    assert!(frame.len() < 50, "noise costs less only where it is in the prefix");
    assert_eq!(valid.columns[0], [1, 0, 2, 1, 0, 100, 1, 100, 0xc8, 1, frame.len() as u8]);
    assert_eq!(valid.bulk[0], frame);
    assert_eq!(judged(file(&base, valid), &[&base]), Ok(raw.clone()));

    // The ranges in another order, or one of them alone.
    let with_ranges = |ranges: &[u8]| fields(&raw, &[&[0], ranges].concat(), frame.len() as u64, &frame);
    let other = judged(file(&base, with_ranges(&[2, 1, 100, 0xc8, 1, 1, 0, 100])), &[&base]);
    assert!(other.is_ok_and(|other| other != raw));
    refused(file(&base, with_ranges(&[1, 1, 100, 0xc8, 1])), &[&base], "zstd");
    refused(file(&base, with_ranges(&[1, 1, 0, 1])), &[&base], "zstd");
    refused(file(&base, with_ranges(&[0])), &[&base], "zstd");
}

#[test]
fn frames() {
    let refused_zstd = |reason: &str, frame: &[u8], length: u64| {
        for head in [&[0, 0][..], &[2, 0], &[0, 1, 1, 0, 4]] {
            refused(file(b"base", fields(&[7; 1000], head, length, frame)), &[b"base"], reason);
        }
    };
    let compress = |length: usize| zstd_frame(&vec![7; length], &[]);
    let frame = compress(1000);
    let length = frame.len() as u64;
    refused_zstd("state the length", &compress(999), compress(999).len() as u64);
    refused_zstd("zstd", &compress(1001), compress(1001).len() as u64);
    refused_zstd("follows the zstd frame", &[&frame[..], &compress(0)].concat(), length + compress(0).len() as u64);
    refused_zstd("follows the zstd frame", &[&frame[..], &[0]].concat(), length + 1);
    refused_zstd("too long", &[&frame[..], &[0]].concat(), length);
    refused_zstd("damaged zstd", &frame[..frame.len() - 1], length - 1);
    refused_zstd("no zstd frame", &[], 0);
    for length in HUGE {
        refused_zstd("too early", &frame, length);
    }
    let halves = [compress(500), compress(500)].concat();
    refused_zstd("follows the zstd frame", &halves, halves.len() as u64);
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0], &frame[..]].concat();
    refused_zstd("no zstd frame", &skippable, skippable.len() as u64);
    // A bomb: 64 MiB of zeros in a few kilobytes.
    let bomb = compress(1 << 26);
    refused_zstd("zstd", &bomb, bomb.len() as u64);
}

#[test]
fn frames_that_name_a_dictionary() {
    let frame = zstd_frame(&[7; 100], &[]);
    // One segment and no dictionary: its number would be the first byte after the descriptor.
    assert_eq!(frame[4] & 0b10_0011, 0b10_0000);
    let naming = |flag: u8, number: &[u8]| [&frame[..4], &[frame[4] | flag], number, &frame[5..]].concat();
    let judged_frame = |head: &[u8], frame: &[u8]| {
        judged(file(b"base", fields(&[7; 100], head, frame.len() as u64, frame)), &[b"base"])
    };
    for head in [&[0, 0][..], &[2, 0], &[0, 1, 1, 0, 4]] {
        assert!(judged_frame(head, &frame).is_ok());
        for flag in 1..4 {
            let mut number = vec![0; 1 << (flag - 1)];
            assert!(judged_frame(head, &naming(flag, &number)).is_ok(), "number 0 is none");
            number[0] = 1;
            let why = judged_frame(head, &naming(flag, &number)).expect_err("there is no dictionary");
            assert!(why.contains("dictionary"), "{why}");
        }
    }
}

#[test]
fn width_codes() {
    let refused_column = |length: usize, head: &[u8], reason: &str| {
        let raw = vec![7; length];
        let frame = zstd_frame(&raw, &[]);
        refused(file(b"base", fields(&raw, head, frame.len() as u64, &frame)), &[b"base"], reason);
    };
    for width_code in [4, 5, 255] {
        refused_column(64, &[width_code, 0], "width code");
    }
    for (width_code, length) in [(1, 1), (1, 63), (2, 62), (2, 2), (3, 60), (3, 63), (3, 65)] {
        refused_column(length, &[width_code, 0], "no multiple of its width");
    }
    // Nothing has both planes and a prefix.
    for width_code in 1..4 {
        refused_column(64, &[width_code, 1, 1, 0, 4], "prefix");
    }
}

#[test]
fn lengths_of_prefixes() {
    let base = vec![7; (1 << 23) + 1];
    let with_prefix = |length: usize, raw: &[u8]| {
        file(&base, prefixed(raw, &[(1, 0, &base[..length / 2]), (1, 1, &base[1..][..length - length / 2])]))
    };
    assert!(judged(with_prefix(1 << 23, b"xyz"), &[&base]).is_ok());
    refused(with_prefix((1 << 23) + 1, b"xyz"), &[&base], "prefix");

    // With the column.
    let judged_column = |length: usize| judged_without_limits(&with_prefix(1 << 23, &vec![7; length]), &[&base]);
    assert!(judged_column(1 << 23).is_ok());
    let why = judged_column((1 << 23) + 1).expect_err("together they are too long");
    assert!(why.contains("prefix"), "{why}");
}
