//! Limits of the format (§6) that take large files: each at the limit, and above it. Where nothing valid is at the limit,
//! such a file is refused for another reason.

use lmc::{Base, DecodeLimits, DecompressOptions, Decompressor, Sink, Source};
use lmc_testing::decoders::agree_with_bases;
use lmc_testing::handmade::{FIRST, copy, encoded, judged, records, stored};
use lmc_testing::reference::write::block::{Block, BlockFields, Column};
use lmc_testing::reference::write::{Bases, File, NamedBase, Record, Segment, zstd_frame};
use lmc_testing::reference::{content_hash, decode, decode_with_bases};
use zstd::zstd_safe::{CCtx, CParameter, compress_bound};

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
    // Bases that are counted as none, and bytes after them.
    let with_bases = |head_length: usize| {
        let mut file = File::delta(&[FIRST], records(&[copy(&[(1, 0, FIRST)])]));
        file.records[0] = Record::new(*b"BASE", vec![0; head_length], Vec::new());
        let file = file.to_bytes();
        (decode_with_bases(&file, &[FIRST], 1 << 25).expect_err("there are no bases"), error_of(&file))
    };
    let (reason, error) = with_bases(1 << 24);
    assert!(
        reason.contains("impossible number of bases") && error.contains("number of bases is 0"),
        "{reason}; {error}"
    );
    let (reason, error) = with_bases((1 << 24) + 1);
    assert!(reason.contains("head of the bases exceeds 2^24") && error.contains("is too long"), "{reason}; {error}");

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
    let (at, above) = (with_head_of(1 << 28), with_head_of((1 << 28) + 1));
    assert!(at.contains("ends early"), "{at}");
    assert!(above.contains("is too long"), "{above}");

    // A table that is not as long as the index says.
    let with_table_of = |length: u64| {
        let mut file = File::new(vec![stored(RAW).record()]);
        file.index_record = Some(file.index.record_of_frame(length, &zstd_frame(&file.index.table())));
        error_of(&file.to_bytes())
    };
    let (at, above) = (with_table_of(1 << 28), with_table_of((1 << 28) + 1));
    assert!(at.contains("not one zstd frame of 268435456 bytes"), "{at}");
    assert!(above.contains("268435457 bytes; it can have at most 268435456"), "{above}");
}

/// A file of one block with this table of the index; `count` is the number of blocks that it states.
fn with_table(count: u64, table: &[u8]) -> Vec<u8> {
    let mut file = File::new(vec![stored(RAW).record()]);
    file.index.block_count = count;
    let mut zstd = CCtx::create();
    for parameter in [CParameter::CompressionLevel(1), CParameter::WindowLog(26)] {
        zstd.set_parameter(parameter).expect("zstd takes them");
    }
    let mut frame = Vec::with_capacity(compress_bound(table.len()));
    zstd.compress2(&mut frame, table).expect("there is room");
    file.index_record = Some(file.index.record_of_frame(table.len() as u64, &frame));
    file.to_bytes()
}

#[test]
fn numbers_of_blocks() {
    // Lengths of 0, which no block has.
    let of = |count| error_of(&with_table(count, &vec![0; (2 << 24) + 2]));
    let (at, above) = (of(1 << 24), of((1 << 24) + 1));
    assert!(at.contains("a block in the index has a record of 0 bytes"), "{at}");
    assert!(above.contains("has 16777217 blocks"), "{above}");
}

#[test]
fn numbers_of_segments() {
    let of = |count: u64| {
        let mut index = File::new(vec![stored(RAW).record()]).index;
        let empty = Segment { dtype: 2, shape: vec![0], ..Segment::default() };
        index.segments.push(empty);
        index.segment_count = count;
        let mut table = index.table();
        // Empty names, and shapes as before.
        table.extend([2 | 0x80, 0, 0].repeat(count as usize - 2));
        restored(&with_table(1, &table))
    };
    // One of all bytes, the others with a dimension.
    let most = ((1 << 28) - 64) / 72 + 1;
    assert_eq!(of(most).as_deref(), Ok(RAW));
    assert!(of(most + 1).is_err_and(|e| e.contains("take more than 268435456 bytes")));
}

#[test]
fn names_and_dimensions() {
    // 4092 names of 2^16 - 1 bytes and 64 more, and a dimension in 543 of them, or in one more, as it is; the others have an element.
    let of = |with_dimension: usize| {
        let longest = (1 << 16) - 1;
        let same = |same_shape| Segment { dtype: 2, shared: longest, same_shape, ..Segment::default() };
        let first = Segment { dtype: 2, name: vec![b'n'; longest as usize], shape: vec![0], ..Segment::default() };
        let scalars = 4092 - with_dimension;
        let mut segments = vec![first];
        segments.extend(vec![same(true); with_dimension - 1]);
        segments.push(same(false));
        segments.extend(vec![same(true); scalars - 1]);
        let mut file = File::new(vec![stored(&vec![7; scalars]).record()]);
        (file.index.segment_count, file.index.segments) = (4092, segments);
        restored(&file.to_bytes()).map(|raw| raw.len())
    };
    assert_eq!(of(543), Ok(4092 - 543));
    assert!(of(544).is_err_and(|e| e.contains("segments of the index take more than 268435456 bytes")));
}

/// What a file restores to, or the codec's error.
fn restored(file: &[u8]) -> Result<Vec<u8>, String> {
    lmc::decompress(file, &DecompressOptions::default().with_threads(1)).map_err(|e| e.to_string())
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
