//! Files with wrong lengths, counts and sizes but valid checksums, and files that need too much memory.

use crate::support::{noise, refused, try_all};
use lmc::{CompressOptions, DecodeLimits, DecompressOptions, ErrorKind, Reader};
use lmc_testing::reference::write::{File, Index, Segment};

const BIG: [u64; 6] = [1 << 24, 1 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63];

fn options() -> DecompressOptions {
    DecompressOptions::default()
}

/// A small file, taken apart: three blocks.
fn file() -> (Vec<u8>, File) {
    let raw = [vec![1; 1 << 20], noise(1 << 20, 1), vec![2; 1_500_000]].concat();
    let file = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    let f = File::parse(&file).unwrap();
    assert_eq!(f.records.len(), 4);
    (raw, f)
}

/// Refused in every way, as damage or for a limit.
fn check_refused(f: &File, what: &str) {
    let bytes = f.to_bytes();
    for e in refused(&bytes, &options()) {
        assert!(matches!(e.kind(), ErrorKind::Damaged | ErrorKind::Limit), "{what}: {e:?}");
        assert!(e.offset().is_some_and(|at| at <= bytes.len() as u64), "{what}: {e:?}");
    }
    assert!(Reader::open(&bytes, &options()).is_err(), "{what}");
}

#[test]
fn a_file_put_together_again_is_restored() {
    let (raw, f) = file();
    for r in try_all(&f.to_bytes(), &options()) {
        assert!(r.unwrap() == raw);
    }
}

#[test]
fn an_index_that_lies_is_refused() {
    let (_, good) = file();
    type Change = fn(&mut Index, u64);
    let changes: &[(&str, Change)] = &[
        ("raw size", |i, n| i.raw_size = i.raw_size.wrapping_add(n)),
        ("number of blocks", |i, n| i.block_count = i.block_count.wrapping_add(n)),
        ("record length", |i, n| i.blocks[1].0 = i.blocks[1].0.wrapping_add(n)),
        ("raw length", |i, n| i.blocks[1].1 = i.blocks[1].1.wrapping_add(n)),
        ("raw length and size", |i, n| {
            i.blocks[2].1 = i.blocks[2].1.wrapping_add(n);
            i.raw_size = i.raw_size.wrapping_add(n);
            i.segments[0].length = i.raw_size;
        }),
        ("number of segments", |i, n| i.segment_count = i.segment_count.wrapping_add(n)),
        ("segment length", |i, n| i.segments[0].length = i.segments[0].length.wrapping_add(n)),
        ("table length", |i, n| i.table_length_error = n),
        ("lengths swapped", |i, _| i.blocks.swap(0, 1)),
        ("a block more", |i, n| {
            i.blocks.push((n, 0));
            i.block_count += 1;
        }),
        ("a block less", |i, _| {
            i.block_count -= 1;
            i.blocks.pop();
        }),
        ("content hash", |i, n| i.content_hash[(n % 16) as usize] ^= 1),
        ("bytes after the table", |i, _| i.after.push(0)),
    ];
    for (what, change) in changes {
        for n in BIG.into_iter().chain([1, 2, 25, u64::MAX, u64::MAX - 1]) {
            let mut f = good.clone();
            change(&mut f.index, n);
            if matches!(*what, "content hash" | "raw length and size" | "lengths swapped") {
                // Seen only when blocks are read.
                refused(&f.to_bytes(), &options());
            } else {
                check_refused(&f, &format!("{what}, {n}"));
            }
        }
    }
}

#[test]
fn records_that_lie_are_refused() {
    let (_, good) = file();
    let good = good.to_bytes();
    // The lengths of a block's record: 4 bytes of head, 8 of body. The checks are made to fit.
    let number = |at: usize, len: usize| good[at..at + len].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b));
    for at in [16, 16 + 24 + number(20, 4) + number(24, 8)] {
        for n in BIG.into_iter().chain([0, 1, u64::MAX, (1 << 25) + 1, u64::from(u32::MAX)]) {
            for (from, len) in [(at + 4, 4), (at + 8, 8)] {
                let mut bytes = good.clone();
                bytes[from..from + len].copy_from_slice(&n.to_le_bytes()[..len]);
                if bytes == good {
                    continue;
                }
                refused(&bytes, &options());
                let head_len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
                if let Some(head) = bytes.get(at + 24..at + 24 + head_len) {
                    let check = xxhash_rust::xxh3::xxh3_64(&[&bytes[at..at + 16], head].concat());
                    bytes[at + 16..at + 24].copy_from_slice(&check.to_le_bytes());
                    refused(&bytes, &options());
                }
            }
        }
    }
}

#[test]
fn limits_are_kept_and_named() {
    let (raw, f) = file();
    let bytes = f.to_bytes();
    let limit = |raw_size: u64, index: usize| {
        let limits = DecodeLimits::default().with_max_raw_size(raw_size).with_max_index_size(index);
        DecompressOptions::default().with_limits(limits)
    };
    let size = raw.len() as u64;
    assert!(try_all(&bytes, &limit(size, 1000)).iter().all(Result::is_ok));
    for o in [limit(size - 1, 1000), limit(0, 1000), limit(size, 100), limit(size, 0)] {
        for e in refused(&bytes, &o) {
            assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
            assert!(e.to_string().contains("limit of"), "{e}");
        }
        assert_eq!(Reader::open(&bytes, &o).unwrap_err().kind(), ErrorKind::Limit);
    }
}

#[test]
fn an_index_that_expands_is_stopped() {
    let (_, good) = file();
    // Frames of a few kilobytes that unpack to more than the limit, and declared lengths that are false.
    let long = zstd::bulk::compress(&vec![0; 300 << 20], 1).unwrap();
    assert!(long.len() < 1 << 20);
    for (length, frame) in [(300 << 20, &long), (200 << 20, &long), (1 << 60, &long), (u64::MAX, &long), (3, &long)] {
        let mut f = good.clone();
        f.index_record = Some(f.index.record_of_frame(length, frame));
        check_refused(&f, "expansion");
    }
    // Millions of segments of no length, two bytes each.
    let mut index = good.index.clone();
    index.segments = vec![Segment::default(); 10_000_000];
    index.segments[0].length = index.raw_size;
    index.segment_count = 10_000_000;
    let mut f = good.clone();
    f.index_record = Some(index.record());
    check_refused(&f, "no length");
}
