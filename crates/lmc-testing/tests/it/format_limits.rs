//! Limits of the format (§6) that take large files: each at the limit, and above it. Where nothing valid is at the limit,
//! such a file is refused for another reason.

use crate::support::judged_without_limits;
use lmc::{Base, DecodeLimits, DecompressOptions, Decompressor, Sink, Source};
use lmc_testing::decoders::agree_with_bases;
use lmc_testing::handmade::{FIRST, copy, encoded, judged, prefixed, records, refused, stored};
use lmc_testing::reference::write::block::{Block, BlockFields, Column};
use lmc_testing::reference::write::{Bases, File, NamedBase, Record, Segment, zstd_frame};
use lmc_testing::reference::{content_hash, decode, decode_with_bases};

const RAW: &[u8] = b"eight by";

/// The codec's error for a file without bases, as a stream, with no limits of its own.
fn error_of(file: &[u8]) -> String {
    let limits = DecodeLimits::default().with_max_index_size(usize::MAX);
    let options = DecompressOptions::default().with_threads(1).with_limits(limits);
    let mut decompressor = Decompressor::new(&options).expect("no threads are needed");
    let restored = decompressor.decompress(Source::reader(&mut &*file), &[], Sink::writer(&mut Vec::new()));
    restored.expect_err("the file is not valid").to_string()
}

/// Asserts the errors of the reference decoder and the codec for a file with this block.
#[track_caller]
fn refused_block(block: Record, reason: &str, message: &str) {
    let file = File::new(vec![block]).to_bytes();
    let why = decode(&file, 1 << 25).expect_err(reason);
    assert!(why.contains(reason), "the reason is: {why}, but not: {reason}");
    let error = error_of(&file);
    assert!(error.contains(message), "the message is: {error}, but not: {message}");
}

#[test]
fn lengths_of_records() {
    // The head of the bases: the name of one fills the rest.
    let judged_bases = |head_length: usize| {
        let mut bases = Bases::of(&[FIRST]);
        // A count, a hash, a raw length of one byte, a length of the name of four.
        bases.bases[0].name = vec![b'n'; head_length - 22];
        let mut file = File::delta(&[FIRST], records(&[copy(&[(1, 0, FIRST)])]));
        file.records[0] = bases.record();
        assert_eq!(file.records[0].head.len(), head_length);
        judged_without_limits(&file, &[FIRST])
    };
    assert_eq!(judged_bases(1 << 24), Ok(FIRST.to_vec()));
    assert!(judged_bases((1 << 24) + 1).is_err_and(|why| why.contains("head of the bases exceeds 2^24")));

    // Of a block; both have zeros that they should not have.
    let longer = |head_length: usize, body_length: usize| {
        let mut block = stored(RAW).record();
        block.head.resize(head_length.max(block.head.len()), 0);
        block.body.resize(body_length.max(block.body.len()), 0);
        block
    };
    refused_block(longer(1 << 24, 0), "follows the digest", "left over");
    refused_block(longer((1 << 24) + 1, 0), "head of a block exceeds 2^24", "is too long: its head has 16777217");
    refused_block(longer(0, 1 << 25), "body of a block is too long", "left over");
    refused_block(longer(0, (1 << 25) + 1), "body of a block exceeds 2^25", "is too long: its head");
}

#[test]
fn lengths_of_indexes() {
    // A file that ends in the head of its index, where its length can be seen.
    let with_head_of = |length: u32| {
        let mut file = File::new(vec![stored(RAW).record()]).to_bytes();
        let index = 16 + stored(RAW).record().size() as usize;
        file[index + 4..index + 8].copy_from_slice(&length.to_le_bytes());
        file.truncate(index + 24);
        error_of(&file)
    };
    let (at, above) = (with_head_of(1 << 30), with_head_of((1 << 30) + 1));
    assert!(at.contains("ends early"), "{at}");
    assert!(above.contains("is too long"), "{above}");

    // A table that is not as long as the index says.
    let with_table_of = |length: u64| {
        let mut file = File::new(vec![stored(RAW).record()]);
        file.index_record = Some(file.index.record_of_frame(length, &zstd_frame(&file.index.table(), &[])));
        error_of(&file.to_bytes())
    };
    let (at, above) = (with_table_of(1 << 30), with_table_of((1 << 30) + 1));
    assert!(at.contains("not one zstd frame of 1073741824 bytes"), "{at}");
    assert!(above.contains("1073741825 bytes; it can have at most 1073741824"), "{above}");
}

#[test]
fn partial_products_of_shapes() {
    let judged_shape = |shape: &[u64]| {
        let mut file = File::new(vec![stored(RAW).record()]);
        let tensor = Segment { dtype: 2, name: b"w".to_vec(), shape: shape.to_vec(), ..Segment::default() };
        file.index.segments.push(tensor);
        file.index.segment_count = 2;
        agree_with_bases(&file.to_bytes(), &[])
    };
    for valid in [&[u64::MAX, 0][..], &[(1 << 32) - 1, (1 << 32) + 1, 0], &[0, u64::MAX, u64::MAX]] {
        assert_eq!(judged_shape(valid), Ok(RAW.to_vec()), "{valid:?}");
    }
    for above in [&[1 << 32, 1 << 32, 0][..], &[u64::MAX, 2, 0]] {
        assert!(judged_shape(above).is_err_and(|why| why.contains("product exceeds")), "{above:?}");
    }
    // With the bits of the dtype.
    assert!(judged_shape(&[(1 << 61) - 1]).is_err_and(|why| why.contains("add up")));
    assert!(judged_shape(&[1 << 61]).is_err_and(|why| why.contains("product exceeds")));
}

#[test]
fn numbers_of_bases() {
    let base = || NamedBase { content_hash: content_hash(b""), raw_length: 0, name: Vec::new() };
    let judged_bases = |count: usize| {
        let mut file = File { features: 1, ..File::new(vec![stored(RAW).record()]) };
        let bases = Bases { count: count as u64, bases: (0..count).map(|_| base()).collect(), after: Vec::new() };
        file.records.insert(0, bases.record());
        let file = file.to_bytes();
        let expected = decode_with_bases(&file, &vec![&b""[..]; count], 1 << 20);
        // The codec finds all of them in one, which takes as many steps.
        let given = [Base::new(&b""[..]).expect("memory can be read")];
        let given = if count > 0 { &given[..] } else { &[] };
        let options = DecompressOptions::default().with_threads(1);
        let mut decompressor = Decompressor::new(&options).expect("no threads are needed");
        let mut raw = vec![0; RAW.len()];
        let restored = decompressor.decompress(&file, given, &mut raw[..]);
        assert_eq!(restored.map(|_| raw).ok(), expected.clone().ok(), "{count} bases");
        expected
    };
    assert_eq!(judged_bases(1 << 16), Ok(RAW.to_vec()));
    assert!(judged_bases((1 << 16) + 1).is_err_and(|why| why.contains("impossible number of bases")));
    assert!(judged_bases(0).is_err_and(|why| why.contains("impossible number of bases")));
}

#[test]
fn numbers_of_words_and_literals() {
    // As many words in a set would exceed the limit of the body with the states.
    let with = |words: [u32; 2], literals: u32| {
        let column = Column::Stored(RAW.to_vec());
        let mut fields = encoded(&Block::of(column, 2));
        (fields.word_counts, fields.literal_count) = (words.into(), literals);
        fields.record()
    };
    let (most, more) = (1 << 24, (1 << 24) + 1);
    for at in [with([most, 0], 0), with([0, most], 0), with([0, 0], most)] {
        refused_block(at, "body of a block is too short", "fewer than the");
    }
    for above in [with([more, 0], 0), with([0, more], 0), with([0, 0], more)] {
        refused_block(above, "more than 2^24 words or literals", "it can be at most 16777216");
    }
    // With their data: all of them are left over.
    let mut fields = encoded(&Block::of(Column::Stored(RAW.to_vec()), 2));
    (fields.literal_count, fields.literals) = (most, vec![0; 1 << 24]);
    refused_block(fields.record(), "literals are left over", "use 0 of its 16777216 literals");
}

#[test]
fn numbers_of_extents() {
    for states_repeats in [false, true] {
        let judged_extents = |count: u64| {
            let columns = [count.div_ceil(2), count / 2].map(|length| Column::Stored(vec![7; length as usize])).into();
            let extents = (0..count).map(|i| ((i % 2) as u8, 1)).collect();
            let block = Block { lane_sets: 0, columns, extents, states_repeats, final_state: 1 << 16 };
            judged(File::new(vec![BlockFields::record(&encoded(&block))]), &[])
        };
        assert!(judged_extents(1 << 20) == Ok(vec![7; 1 << 20]));
        assert!(judged_extents((1 << 20) + 1).is_err_and(|why| why.contains("too many extents")));
    }
}

#[test]
fn lengths_of_prefixes() {
    let base = vec![7; (1 << 23) + 1];
    let with_prefix = |length: usize, raw: &[u8]| {
        let prefix: [(u64, u64, &[u8]); 2] = [(1, 0, &base[..length / 2]), (1, 1, &base[1..][..length - length / 2])];
        File::delta(&[&base], records(&[prefixed(raw, &prefix)]))
    };
    assert!(judged(with_prefix(1 << 23, b"xyz"), &[&base]).is_ok());
    refused(with_prefix((1 << 23) + 1, b"xyz"), &[&base], "prefix");

    // With the column.
    let judged_column = |length: usize| judged_without_limits(&with_prefix(1 << 23, &vec![7; length]), &[&base]);
    assert!(judged_column(1 << 23).is_ok());
    let why = judged_column((1 << 23) + 1).expect_err("together they are too long");
    assert!(why.contains("prefix"), "{why}");
}
