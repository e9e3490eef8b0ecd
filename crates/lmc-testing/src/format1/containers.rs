//! Headers, records, indexes, bases and the columns of blocks, and columns without streams.

use super::{Feature, redigested};
use crate::data::noise;
use crate::handmade::{
    BASES, FIRST, FrameBlock, LEAF, copy, encoded, filled, frame_of_blocks, naming, records, stored,
};
use crate::reference::write::block::{Block, BlockFields, Column, Zstd};
use crate::reference::write::{Bases, File, Record, Segment, varint, zstd_frame};
use sha2::{Digest as _, Sha256};

pub(super) fn all() -> Vec<Feature> {
    let of_containers = [files(), skippable_records(), records_of_digests(), segments(), bases()];
    of_containers.into_iter().chain([columns(), frames()]).flatten().collect()
}

const BYTES: &[u8] = b"some bytes";

/// Bytes as they are, in a file with a change.
fn changed(name: &'static str, section: &'static str, shows: &'static str, change: impl FnOnce(&mut File)) -> Feature {
    let mut file = File::new(records(&[stored(BYTES)]));
    change(&mut file);
    feature(name, section, shows, file, &[], BYTES)
}

pub(super) fn feature(
    name: &'static str,
    section: &'static str,
    shows: &'static str,
    file: File,
    bases: &[&[u8]],
    raw: &[u8],
) -> Feature {
    let bases = bases.iter().map(|base| base.to_vec()).collect();
    Feature { name, section, shows, file, bases, raw: raw.to_vec() }
}

fn files() -> Vec<Feature> {
    let longest = || b"x".repeat(255);
    vec![
        feature("empty", "2", "no bytes: no block, no segment", File::new(Vec::new()), &[], &[]),
        changed("stored", "3.3", "a stored column, one opaque segment", |_| ()),
        changed("required-features-3", "2.1", "the header requires features that no block needs", |file| {
            file.features = 3;
        }),
        changed("required-features-1", "2.1", "the header has the feature ranges, which no block needs", |file| {
            file.features = 1;
        }),
        changed("required-features-4", "2.1", "the header has the feature grids, which no block needs", |file| {
            file.features = 4;
        }),
        changed("required-features-8", "2.1", "the header has the feature optimizer, which no block needs", |file| {
            file.features = 8;
        }),
        changed("required-features-16", "2.1", "the header requires bit 4, which no block needs", |file| {
            file.features = 16;
        }),
        changed(
            "required-features-31",
            "2.1",
            "the header requires all features, none of which a block needs",
            |file| {
                file.features = 31;
            },
        ),
        changed("writer-empty", "2.3", "no name of the writer, no name of the layout", |file| {
            (file.index.writer, file.index.layout) = (Vec::new(), Vec::new());
        }),
        changed("writer-utf-8", "2.3", "a writer and a layout of other than ASCII characters", |file| {
            (file.index.writer, file.index.layout) = ("schön / 🦀\\".into(), "表".into());
        }),
        changed("writer-255", "2.3", "the longest names of the writer and of the layout", |file| {
            (file.index.writer, file.index.layout) = (longest(), longest());
        }),
    ]
}

/// The head of a record of digests (§2.7): whose, algorithm and digest of each.
pub(super) fn digests(entries: &[(u64, u8, [u8; 32])]) -> Record {
    let mut head = Vec::new();
    varint(&mut head, entries.len() as u64);
    for (whose, algorithm, digest) in entries {
        varint(&mut head, *whose);
        head.push(*algorithm);
        head.extend(digest);
    }
    Record::new(*b"dIGS", head, Vec::new())
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn records_of_digests() -> Vec<Feature> {
    let of_both = digests(&[(0, 1, sha256(b"first")), (0, 2, [2; 32]), (1, 1, sha256(FIRST)), (2, 1, sha256(b""))]);
    let mut of_bases = delta(&[FIRST, b""], &[copy(&[(1, 4, b"first")])]);
    of_bases.records.push(of_both);
    vec![
        changed("digests", "2.7", "the SHA-256 of the raw bytes, between other skippable records", |file| {
            let other = |tag| Record::new(tag, b"skipped".to_vec(), Vec::new());
            file.records.extend([other(*b"dIGs"), digests(&[(0, 1, sha256(BYTES))]), other(*b"digs")]);
        }),
        feature(
            "digests-of-bases",
            "2.7",
            "SHA-256 of the file and of bases, and a digest of an algorithm that is not defined",
            of_bases,
            &[FIRST, b""],
            b"first",
        ),
        changed("digests-unknown", "2.7", "digests of algorithms that are not defined, which are ignored", |file| {
            file.records.push(digests(&[(0, 0, [0; 32]), (0, 1, sha256(BYTES)), (0, 3, [3; 32]), (0, 255, [7; 32])]));
        }),
    ]
}

fn skippable_records() -> Vec<Feature> {
    let record = |tag: &[u8; 4], head: &[u8]| Record::new(*tag, head.to_vec(), Vec::new());
    vec![
        changed("skippable", "2.2", "two skippable records, one of them without a head", |file| {
            file.records.extend([record(b"note", b"skipped"), record(b"z!~{", b"")]);
        }),
        changed("skippable-64", "2.2", "as many skippable records as there may be", |file| {
            file.records.extend(vec![record(b"a!!!", b""); 64]);
        }),
    ]
}

fn tensor(dtype: u8, name: &str, shape: &[u64]) -> Segment {
    Segment { dtype, name: name.into(), shape: shape.to_vec(), ..Segment::default() }
}

fn segmented(name: &'static str, shows: &'static str, length: usize, segments: Vec<Segment>) -> Feature {
    let raw = noise(length, 1);
    let mut file = File::new(records(&[stored(&raw)]));
    file.index.segment_count = segments.len() as u64;
    file.index.segments = segments;
    feature(name, "2.3", shows, file, &[], &raw)
}

fn segments() -> Vec<Feature> {
    const BITS: [u64; 23] = [8, 8, 8, 8, 16, 16, 32, 32, 16, 16, 32, 64, 64, 8, 8, 8, 8, 8, 4, 6, 6, 64, 64];
    // Four elements of each dtype, 4 bits at least.
    let all: Vec<Segment> = (1..23).map(|dtype| tensor(dtype, &format!("t{dtype}"), &[4])).collect();
    let bytes: u64 = BITS[1..].iter().map(|bits| bits / 2).sum();
    let opaque = |length| Segment { length, ..Segment::default() };
    let named = |name: &[u8], bits, elements: u64| Segment {
        named: Some((name.to_vec(), bits)),
        ..tensor(127, "t", &[elements])
    };
    vec![
        segmented("segments-dtypes", "a tensor of each dtype that has a code", bytes as usize, all),
        segmented(
            "segments-names",
            "names with shared bytes, ended at a character; one twice; one empty; opaque bytes between them, of one byte and of two",
            7,
            vec![
                tensor(2, "layer.ä", &[1]),
                opaque(1),
                Segment { shared: 8, ..tensor(2, "", &[1]) },
                Segment { shared: 6, ..tensor(2, "ö.weight", &[1]) },
                Segment { shared: 0, ..tensor(2, "", &[1]) },
                opaque(2),
            ],
        ),
        segmented(
            "segments-shapes",
            "rank 0, rank 64, dimensions of 0, and shapes that are those of the tensor before",
            4 + 4 + 8 + 2 + 16 + 1 + 1,
            vec![
                tensor(10, "scalar", &[]),
                Segment { same_shape: true, ..tensor(6, "another", &[]) },
                tensor(9, "matrix", &[2, 2]),
                opaque(2),
                Segment { same_shape: true, ..tensor(10, "as wide", &[]) },
                tensor(10, "nothing", &[0, u64::MAX, u64::MAX]),
                tensor(2, "many", &[1; 64]),
                Segment { same_shape: true, ..tensor(2, "so many", &[]) },
                tensor(12, "none", &[1 << 57, 0]),
            ],
        ),
        segmented(
            "segments-named-dtypes",
            "dtypes that are named: of 4 bits, of 1, of 2^16; the longest name, and one nearly of the table of dtypes",
            1 + 1 + 1 + 2,
            vec![
                named(b"F4_E2M1", 4, 2),
                named(b"~", 1, 8),
                named(b"huge", 1 << 16, 0),
                named(&[b'x'; 31], 8, 1),
                named(b"bf16", 16, 1),
            ],
        ),
        segmented(
            "segments-longest-name",
            "a name of 2^16 - 1 bytes, and one that shares all of them but the last",
            2,
            vec![
                tensor(2, &"x".repeat((1 << 16) - 1), &[1]),
                Segment { shared: (1 << 16) - 2, ..tensor(2, "y", &[1]) },
            ],
        ),
    ]
}

fn delta(bases: &[&[u8]], blocks: &[BlockFields]) -> File {
    let file = redigested(File::delta(bases, records(blocks)), bases);
    let features = file.index.exact_features | u32::from(!bases.is_empty());
    File { features, ..file }
}

fn bases() -> Vec<Feature> {
    let mut named = Bases::of(&BASES);
    named.bases[0].name = b"step-1.safetensors".to_vec();
    named.bases[1].name = "ä".repeat(127).into_bytes();
    named.bases[1].name.push(b' ');
    let one = copy(&[(1, 4, b"first")]);
    let both = copy(&[(1, 4, b"first"), (2, 3, b" second one")]);
    let mut with_names = delta(&BASES, std::slice::from_ref(&both));
    with_names.records[0] = named.record();
    let mut wrong = delta(&[FIRST], &[BlockFields { body_check_error: 1, ..one.clone() }]);
    let fields = BlockFields { body_check_error: 1, ..one.clone() };
    wrong.records[1] = fields.record();
    let own = [stored(b"0123456789"), copy(&[(0, 2, b"23456")])];
    let copies = (0..8).map(|i| copy(&[(0, i * LEAF, b"a")]));
    let chain: Vec<BlockFields> = [stored(b"a")].into_iter().chain(copies).collect();
    let mixed = [stored(b"0123456789"), copy(&[(0, 5, b"56789"), (1, 0, b"the"), (0, LEAF - 2, b"\0\0")])];
    vec![
        feature(
            "bases",
            "2.6",
            "two bases with names, one as long as can be, and ranges of both",
            with_names,
            &BASES,
            b"first second one",
        ),
        feature(
            "base-unused",
            "2.6",
            "a base that no block depends on",
            delta(&[FIRST], &[stored(BYTES)]),
            &[FIRST],
            BYTES,
        ),
        feature(
            "base-empty",
            "2.6",
            "a base of no bytes, and one beside it",
            delta(&[b"", FIRST], &[copy(&[(2, 4, b"first")])]),
            &[b"", FIRST],
            b"first",
        ),
        feature(
            "body-check-wrong",
            "3.1",
            "valid: the xxh3-64 of the body is wrong, the digest of the block right",
            wrong,
            &[FIRST],
            b"first",
        ),
        feature(
            "own-range",
            "3.6",
            "two blocks; the second is predicted by a range of the first, so that its depth is 1",
            delta(&[], &own),
            &[],
            &filled(&[b"0123456789", b"23456"]),
        ),
        feature(
            "own-and-base-ranges",
            "3.6",
            "two blocks; a predicted column of ranges of the first block and of a base",
            delta(&[FIRST], &mixed),
            &[FIRST],
            &filled(&[b"0123456789", b"56789the\0\0"]),
        ),
        feature(
            "depth-8",
            "3.6",
            "nine blocks, each of which is predicted by the one before it, so that the last has the largest depth",
            delta(&[], &chain),
            &[],
            &filled(&[&b"a"[..]; 9]),
        ),
    ]
}

/// Blocks of 2^18 bytes of which each pair touches all blocks before it, so that their costs are 1, 2, 2, 6, 6, 18, 18, … times 2^18; then
/// one that touches those with a bit in `touched`.
fn costly(touched: u32) -> File {
    const PAIRS: u64 = 7;
    let block = |of: &[u64]| {
        let ranges: Vec<[u64; 3]> = of.iter().map(|i| [0, i * LEAF + 100, 1]).collect();
        naming(&ranges)
    };
    let mut blocks = vec![stored(b"the first")];
    for pair in 0..PAIRS {
        let all: Vec<u64> = (0..=2 * pair).collect();
        blocks.extend([block(&all), block(&all)]);
    }
    let of_last: Vec<u64> = (0..=2 * PAIRS).filter(|i| touched >> i & 1 == 1).collect();
    blocks.push(block(&of_last));
    // So that it is as long as the others.
    blocks.push(stored(b"end"));
    redigested(File::delta(&[], records(&blocks)), &[])
}

/// All but one of cost 162, two of 54, one of 6 and one of 2: 4095, and its own bytes.
const MOST: u32 = 0b111_1010_0110_1011;
/// Both of cost 2 in place of one of them and that of cost 1.
const TOO_MUCH: u32 = 0b111_1010_0110_1110;

/// A file with a block whose cost is 2^30, at a depth of 8.
pub fn most_costly() -> File {
    costly(MOST)
}

/// A file with a block whose cost is too high, with the digests of the same blocks with other ranges.
pub(super) fn too_costly() -> File {
    let (valid, mut file) = (costly(MOST), costly(TOO_MUCH));
    let last = file.records.len() - 2;
    let (record, right) = (&mut file.records[last], &valid.records[last]);
    // Digest, and check of the body.
    let ends = (record.head.len() - 24, right.head.len() - 24);
    record.head[ends.0..].copy_from_slice(&right.head[ends.1..]);
    record.leaves.clone_from(&right.leaves);
    record.needs = right.needs;
    file.records[last + 1] = valid.records[last + 1].clone();
    File { features: file.features, ..File::new(file.records) }
}

fn columns() -> Vec<Feature> {
    let of = |name, shows, block: &Block| {
        let raw = block.raw();
        feature(name, "3.1", shows, File::new(records(&[encoded(block)])), &[], &raw)
    };
    let block = |columns, extents, lane_sets| Block {
        lane_sets,
        columns,
        extents,
        states_repeats: false,
        final_state: 1 << 16,
    };
    let columns: Vec<Column> = (0..16).map(|i| Column::Stored(vec![b'a' + i; 2])).collect();
    let extents = (0..32).map(|i| (i % 16, 1)).collect();
    let period = [(0, 2), (1, 4), (2, 1)];
    let repeats = Block {
        lane_sets: 0,
        columns: vec![
            Column::Stored(b"aabbccddee!".to_vec()),
            Column::Zstd(Zstd::of(b"0123456789abcdefghij".to_vec())),
            Column::Stored(b"vwxyz..".to_vec()),
        ],
        extents: [&period[..]; 5].concat().into_iter().chain([(0, 1), (2, 1), (2, 1)]).collect(),
        states_repeats: true,
        final_state: 1 << 16,
    };
    let two = vec![Column::Stored(b"aaaaa".to_vec()), Column::Zstd(Zstd::of(b"bbb".to_vec()))];
    vec![
        of("columns", "two columns; three extents, which alternate", &block(two, vec![(0, 2), (1, 3), (0, 3)], 0)),
        of("repeats", "extents of three columns, five times and then others, twice", &repeats),
        of("columns-16", "as many columns as there may be; 32 extents", &block(columns, extents, 0)),
        of("lanes-unused", "two lane sets that nothing uses", &Block::of(Column::Stored(BYTES.to_vec()), 2)),
    ]
}

/// A block of these bytes as a zstd column with this frame.
fn framed(raw: &[u8], frame: Vec<u8>) -> File {
    let mut fields = encoded(&Block::of(Column::Zstd(Zstd::of(raw.to_vec())), 0));
    fields.columns[0] = vec![1, 0, frame.len() as u8];
    fields.bulk[0] = frame;
    File::new(vec![fields.record()])
}

fn frames() -> Vec<Feature> {
    let text = b"one after the other, one after the other";
    let of = |name, shows, width_code| {
        let raw: Vec<u8> = (0..24).map(|i| if i % 8 == 7 { 0x3f } else { i }).collect();
        let block = Block::of(Column::Zstd(Zstd { width_code, ..Zstd::of(raw.clone()) }), 0);
        feature(name, "3.3", shows, File::new(records(&[encoded(&block)])), &[], &raw)
    };
    let frame = zstd_frame(text);
    // A dictionary of number 0, in one byte, is none.
    let no_dictionary = [&frame[..4], &[frame[4] | 1, 0], &frame[5..]].concat();
    let mut zstd = zstd::bulk::Compressor::new(3).expect("zstd has this level");
    zstd.include_checksum(true).expect("zstd has checksums");
    let long = [7; 1 << 18];
    let checked = zstd.compress(text).expect("zstd compresses anything");
    vec![
        feature("zstd", "3.3", "a zstd column of bytes", framed(text, frame.clone()), &[], text),
        of("zstd-planes-2", "a zstd column of the planes of elements of 2 bytes", 1),
        of("zstd-planes-4", "a zstd column of the planes of elements of 4 bytes", 2),
        of("zstd-planes-8", "a zstd column of the planes of elements of 8 bytes", 3),
        feature("zstd-checksum", "3.3", "a frame with a checksum", framed(text, checked), &[], text),
        feature(
            "zstd-blocks-of-2-17",
            "3.3",
            "a frame with blocks of the most bytes that one decodes to",
            framed(&long, frame_of_blocks(long.len(), &[FrameBlock::Rle(7, 1 << 17), FrameBlock::Match(1, 1 << 17)])),
            &[],
            &long,
        ),
        feature(
            "zstd-dictionary-0",
            "3.3",
            "a frame that names dictionary 0, which is none",
            framed(text, no_dictionary),
            &[],
            text,
        ),
    ]
}
