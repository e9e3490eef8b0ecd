//! Blocks (§3.1, §3.2), their columns without streams (§3.3), and ranges (§3.6) that break a rule.

use super::containers::too_costly;
use super::{Broken, broken_delta, broken_file, redigested};
use crate::handmade::{
    FIRST, FrameBlock, LEAF, copy, encoded, frame_of_blocks, frame_with_window, naming, naming_in_columns, records,
    stored,
};
use crate::reference::content_hash;
use crate::reference::write::block::{Block, BlockFields, Cluster, Column, Plain, Stream};
use crate::reference::write::{File, varint, zstd_frame};

pub(super) fn all() -> Vec<Broken> {
    [heads(), bodies(), columns(), frames(), ranges()].into_iter().flatten().collect()
}

/// A file of one block that has no bases.
fn block(name: &str, section: &'static str, rule: &'static str, fields: &BlockFields) -> Broken {
    broken_delta(name, section, rule, File::new(vec![fields.record()]), &[])
}

/// Bytes as they are, with a change.
fn changed(name: &str, section: &'static str, rule: &'static str, change: impl FnOnce(&mut BlockFields)) -> Broken {
    let mut fields = stored(b"eight by");
    change(&mut fields);
    block(name, section, rule, &fields)
}

/// Zeros in one cluster.
pub(super) fn zeros(length: usize) -> BlockFields {
    let plain = Plain { raw: vec![0; length], width_code: 0, stream: Stream::of(0, zero()) };
    encoded(&Block::of(Column::Plain(plain), 0))
}

fn zero() -> Cluster {
    Cluster { z: 8, ..Cluster::default() }
}

fn heads() -> Vec<Broken> {
    let of = |name: &str, rule, change: fn(&mut BlockFields)| changed(name, "3.1", rule, change);
    let length = "the raw length of a block must be 1 to 2^24";
    let lane_sets = "a block must have no lane sets, or two";
    let long = zeros((1 << 24) + 1);
    let leaf = {
        let mut file = File::new(vec![stored(b"no leaf").record(), stored(b"more").record()]);
        file.index.content_hash = content_hash(b"no leafmore");
        // The digests are right: the index has those of the blocks.
        broken_file("block-no-leaf", "2.5", "all blocks but the last must have a whole number of leaves", &file)
    };
    let digest = {
        let mut fields = stored(b"eight by");
        fields.digest[0] ^= 1;
        let file = File::new(vec![fields.record()]).to_bytes();
        let rule = "the digest of a block must be right";
        Broken { name: "block-digest".into(), section: "3.1", rule, file, bases: Vec::new(), optional: None }
    };
    vec![
        block("block-empty", "3.1", length, &stored(b"")),
        block("block-above-2-24", "3.1", length, &long),
        leaf,
        of("lane-sets-1", lane_sets, |fields| {
            (fields.lane_sets, fields.word_counts, fields.words) = (1, vec![0], vec![vec![]]);
            fields.states = vec![[1 << 16; 64]];
        }),
        of("lane-sets-3", lane_sets, |fields| {
            (fields.lane_sets, fields.word_counts, fields.words) = (3, vec![0; 3], vec![vec![]; 3]);
            fields.states = vec![[1 << 16; 64]; 3];
        }),
        of("columns-0", "a block must have 1 to 16 columns", |fields| {
            fields.column_count = 0;
            fields.columns.clear();
        }),
        of("head-after", "the head must end after the digest", |fields| fields.digest.push(0)),
        of("head-cut", "the head must have a digest", |fields| fields.digest.truncate(15)),
        digest,
        of("method-4", "the method of a column must be 0 to 3", |fields| fields.columns[0][0] = 4),
        // As a predicted column would be.
        delta("method-255", "3.3", "the method of a column must be 0 to 3", {
            let mut fields = copy(&[(1, 0, FIRST)]);
            fields.columns[0][0] = 255;
            fields
        }),
        of("body-check-without-ranges", "only a block that names ranges has the xxh3-64 of its body", |fields| {
            fields.has_body_check = true;
        }),
        broken_delta(
            "body-check-missing",
            "3.1",
            "a block that names ranges must have the xxh3-64 of its body",
            File {
                features: 1,
                ..File::delta(&[FIRST], records(&[BlockFields { has_body_check: false, ..copy(&[(1, 0, FIRST)]) }]))
            },
            &[FIRST],
        ),
    ]
}

fn bodies() -> Vec<Broken> {
    let of = |name: &str, rule, change: fn(&mut BlockFields)| changed(name, "3.2", rule, change);
    let exact = "the length of the body must be exactly what the head implies";
    vec![
        of("body-long", exact, |fields| fields.bulk[0].push(0)),
        of("body-short", exact, |fields| {
            fields.bulk[0].pop();
        }),
        of("body-without-states", "the body must have the states that the head implies", |fields| {
            (fields.lane_sets, fields.word_counts, fields.words) = (2, vec![0; 2], vec![vec![]; 2]);
        }),
    ]
}

fn columns() -> Vec<Broken> {
    let of = |name: &str, rule, change: fn(&mut BlockFields)| {
        let columns = [&b"aaa"[..], b"bbb"].map(|bytes| Column::Stored(bytes.to_vec())).into();
        let mut fields = encoded(&Block {
            lane_sets: 0,
            columns,
            extents: vec![(0, 2), (1, 3), (0, 1)],
            states_repeats: false,
            final_state: 1 << 16,
        });
        change(&mut fields);
        block(name, "3.1", rule, &fields)
    };
    let repeat = |name: &str, rule, change: fn(&mut BlockFields)| {
        let columns = [&b"aaaaaa"[..], b"bbb"].map(|bytes| Column::Stored(bytes.to_vec())).into();
        let extents = vec![(0, 2), (1, 1), (0, 2), (1, 1), (0, 2), (1, 1)];
        let mut fields = encoded(&Block { lane_sets: 0, columns, extents, states_repeats: true, final_state: 1 << 16 });
        change(&mut fields);
        block(name, "3.1", rule, &fields)
    };
    let columns = (0..17).map(|i| Column::Stored(vec![i])).collect();
    let many = encoded(&Block {
        lane_sets: 0,
        columns,
        extents: (0..17).map(|i| (i, 1)).collect(),
        states_repeats: false,
        final_state: 1 << 16,
    });
    let sum = "the lengths of extents must add up to the raw length";
    vec![
        block("columns-17", "3.1", "a block must have 1 to 16 columns", &many),
        of("extent-column-2", "an extent must belong to a column", |fields| {
            fields.extents.push((2, 1));
            (fields.extent_count, fields.raw_length) = (4, 7);
        }),
        of("extent-empty", "an extent must have at least 1 byte", |fields| {
            fields.extents.push((0, 0));
            fields.extent_count += 1;
        }),
        of("extents-short", sum, |fields| fields.raw_length = 7),
        of("extents-long", sum, |fields| fields.raw_length = 5),
        of("extents-sum-modulo-2-64", sum, |fields| {
            fields.extents[0].1 = u64::MAX - 1;
            fields.extents[2].1 = 5;
        }),
        of("column-empty", "a column must have at least 1 byte", |fields| {
            fields.extents = vec![(0, 6)];
            fields.extent_count = 1;
            fields.bulk = vec![b"aabbba".into(), vec![]];
        }),
        of("extents-cut", "there must be as many extents as are counted", |fields| fields.extent_count = 4),
        repeat("repeat-of-none", "a repeat must be of at least 1 extent", |fields| fields.repeats[0].count = 0),
        repeat("repeat-of-more", "a repeat must be of extents that are stated", |fields| fields.repeats[0].count = 3),
        repeat("repeat-of-repeated", "a repeat must be of extents after the repeat before it", |fields| {
            fields.repeats[0].times = 1;
            fields.repeats.push(fields.repeats[0]);
            fields.extent_count += 1;
        }),
        repeat("repeat-0-times", "a repeat must add extents", |fields| fields.repeats[0].times = 0),
        repeat("repeat-short", sum, |fields| fields.repeats[0].times = 1),
        repeat("repeat-long", sum, |fields| fields.repeats[0].times = 3),
        repeat("repeat-modulo-2-64", sum, |fields| fields.repeats[0].times = 2 + (1 << 63)),
    ]
}

/// A zstd column: of `raw` only the length matters; the head from the width code to the ranges.
fn zstd_column(raw: &[u8], width_code: u8, frame: &[u8]) -> BlockFields {
    let mut fields = stored(raw);
    fields.columns[0] = vec![1, width_code];
    varint(&mut fields.columns[0], frame.len() as u64);
    fields.bulk[0] = frame.to_vec();
    fields
}

fn frames() -> Vec<Broken> {
    let single_segment = "the Single_Segment_flag of a frame must be set";
    let raw = [7; 100];
    let frame = zstd_frame(&raw);
    let of = |name: &str, rule, frame: &[u8]| block(name, "3.3", rule, &zstd_column(&raw, 0, frame));
    let states = "a zstd frame must state the length of its column";
    // A descriptor without Frame_Content_Size: a window of 1 KiB, then the blocks.
    let unstated = [&frame[..4], &[0, 0], &frame[6..]].concat();
    let mut zstd = zstd::bulk::Compressor::new(3).expect("zstd has this level");
    zstd.include_checksum(true).expect("zstd has checksums");
    let mut checked = zstd.compress(&raw).expect("zstd compresses anything");
    *checked.last_mut().expect("a frame is not empty") ^= 1;
    let long = [7; 1025];
    // A byte, and a block of more than one may have.
    const MOST: usize = 1 << 17;
    let above = |name: &str, second| {
        let raw = vec![7; MOST + 2];
        let frame = frame_of_blocks(raw.len(), &[FrameBlock::Raw(vec![7]), second]);
        block(name, "3.3", "a block of a frame must decode to at most 2^17 bytes", &zstd_column(&raw, 0, &frame))
    };
    let width = |name: &str, code: u8, length: usize| {
        let raw = vec![7; length];
        block(name, "3.3", "a column must have whole elements", &zstd_column(&raw, code, &zstd_frame(&raw)))
    };
    vec![
        of("zstd-empty", "a zstd column has exactly one frame", &[]),
        of("zstd-long", states, &zstd_frame(&[7; 101])),
        of("zstd-short", states, &zstd_frame(&[7; 99])),
        of("zstd-length-not-stated", states, &unstated),
        of("zstd-cut", "a zstd frame must decode", &frame[..frame.len() - 1]),
        of("zstd-followed", "a zstd column has exactly one frame", &[&frame[..], &[0]].concat()),
        of("zstd-two-frames", "a zstd column has exactly one frame", &[zstd_frame(&raw), zstd_frame(&[])].concat()),
        of(
            "zstd-skippable",
            "the frame must not be a skippable one",
            &[&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0], &frame[..]].concat(),
        ),
        of(
            "zstd-dictionary-1",
            "a frame must name no dictionary",
            &[&frame[..4], &[frame[4] | 1, 1], &frame[5..]].concat(),
        ),
        of("zstd-checksum-wrong", "the checksum of a frame must be right", &checked),
        of("zstd-magic", "a zstd frame begins with its magic number", &[&[0x27], &frame[1..]].concat()),
        of("zstd-window-2-31", single_segment, &frame_with_window(&raw, 31)),
        block("zstd-window-small", "3.3", single_segment, &zstd_column(&long, 0, &frame_with_window(&long, 10))),
        above("zstd-raw-block-above-2-17", FrameBlock::Raw(vec![7; MOST + 1])),
        above("zstd-rle-block-above-2-17", FrameBlock::Rle(7, MOST + 1)),
        above("zstd-literals-above-2-17", FrameBlock::Literals(7, MOST + 1)),
        above("zstd-match-above-2-17", FrameBlock::Match(1, MOST as u32 + 1)),
        block("zstd-width-code-4", "3.3", "the width code must be 0 to 3", &zstd_column(&raw, 4, &frame)),
        width("zstd-part-of-an-element-2", 1, 99),
        width("zstd-part-of-an-element-8", 3, 100),
    ]
}

fn delta(name: &str, section: &'static str, rule: &'static str, fields: BlockFields) -> Broken {
    let file = File { features: 1, ..File::delta(&[FIRST], records(&[fields])) };
    broken_delta(name, section, rule, file, &[FIRST])
}

fn ranges() -> Vec<Broken> {
    let base = FIRST.len() as u64;
    let within = "a range must lie within the raw bytes of its source";
    let of = |name: &str, rule, range: [u64; 3]| delta(name, "3.6", rule, naming(&[range]));
    // A block of a leaf, and one after it that names this range.
    let own = |name: &str, rule, features, range: [u64; 3]| {
        let file = File { features, ..File::new(records(&[zeros(LEAF as usize), naming(&[range])])) };
        let mut file = redigested(file, &[]);
        // The index agrees with the header: the block alone needs more.
        file.index.exact_features &= features;
        Broken { name: name.into(), section: "3.6", rule, file: file.to_bytes(), bases: Vec::new(), optional: None }
    };
    let chain = {
        let mut blocks = vec![stored(b"a")];
        blocks.extend((0..9).map(|i| copy(&[(0, i * LEAF, b"a")])));
        let file = File { features: 3, ..File::new(records(&blocks)) };
        broken_delta("depth-9", "3.6", "the depth of a block must be at most 8", file, &[])
    };
    // Two columns: a range of one of them, and 2^20 of the other, which are not there.
    let mut many = naming_in_columns(&[&[[1, 0, 1]], &[]]);
    let mut number = Vec::new();
    varint(&mut number, 1 << 20);
    many.columns[1].splice(3..4, number);
    let features = "a block that names a range needs bit 0 of the required features";
    vec![
        of("source-2", "a source must be a base that is named", [2, 0, 1]),
        delta("range-empty", "3.6", "a range must have at least 1 byte", copy(&[(1, 0, b""), (1, 0, FIRST)])),
        of("range-long", within, [1, 0, base + 1]),
        of("range-at-the-end", within, [1, base, 1]),
        of("range-end-modulo-2-64", within, [1, u64::MAX, 2]),
        own("own-range-of-the-block", "a range of this file must lie before the block", 3, [0, LEAF, 1]),
        own("own-range-into-the-block", "a range of this file must lie before the block", 3, [0, LEAF - 1, 2]),
        own("ranges-need-bit-0", features, 0, [0, 0, 1]),
        own("own-ranges-need-bit-1", "a block with source 0 needs bit 1 of the required features", 1, [0, 0, 1]),
        chain,
        broken_file("cost-above-2-30", "3.6", "the cost of a block must be at most 2^30", &too_costly()),
        delta("ranges-above-2-20", "3.6", "the columns of a block must name at most 2^20 ranges", many),
    ]
}
