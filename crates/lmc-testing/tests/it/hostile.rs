//! Files that no honest writer makes: each breaks one rule of the format, with all checks in order, and is refused by
//! every decoder for that reason; and files that the encoder never writes but that are valid.

use lmc::internals::Isa;
use lmc::{Base, DecodeLimits, Decompressor, ErrorKind, FORMAT_VERSION};
use lmc_testing::damage::{HUGE, cluster_map, file_of, refused};
use lmc_testing::data::noise;
use lmc_testing::decoders::{LIMIT, Way, agree, agree_by, isas, options};
use lmc_testing::handmade::{FIRST, copy, frame_with_window};
use lmc_testing::reference::{self, write::block::BlockFields, write::block::Column, write::*};
use lmc_testing::samples::cluster_map_block;

/// The file of the cluster map block with a change that must be refused.
#[track_caller]
fn refused_file(reason: &str, change: impl FnOnce(&mut File)) {
    let mut file = file_of(&cluster_map());
    change(&mut file);
    refused(&file.to_bytes(), reason);
}

#[test]
fn headers_and_trailers() {
    refused_file("magic of the header", |file| file.magic[1] = b'l');
    for version in [0, FORMAT_VERSION + 1, u16::MAX] {
        refused_file("version", |file| file.version = version);
    }
    for hash in [0, 2, 255] {
        refused_file("unknown hash", |file| file.hash = hash);
    }
    for reserved in [1, 0x80] {
        refused_file("reserved", |file| file.reserved = reserved);
    }
    for bit in [3, 7, 31] {
        refused_file("feature", |file| file.features = 1 << bit);
    }
    refused_file("needs bit 0", |file| file.features = 2);
    refused_file("needs bit 0", |file| file.features = 6);
    refused_file("wrong offset", |file| file.offset_error = 1);
    refused_file("wrong offset", |file| file.offset_error = u64::MAX);
    refused_file("wrong offset", |file| file.offset_error = 1 << 63);
    refused_file("wrong length", |file| file.length_error = 1);
    refused_file("wrong length", |file| file.length_error = 1 << 63);
    refused_file("magic of the trailer", |file| file.end_magic[7] = 0);
    refused_file("follows the trailer", |file| file.after = vec![0]);
}

#[test]
fn records() {
    refused_file("unknown tag", |file| file.records[0].tag = *b"BLOK");
    refused_file("unknown tag", |file| file.records.insert(0, Record::new(*b"Next", vec![], vec![])));
    refused_file("unknown tag", |file| file.records.insert(0, Record::new([0; 4], vec![], vec![])));
    // An index in the middle ends the file.
    refused_file("wrong", |file| file.records.insert(0, file.index.record()));
    refused_file("has a body", |file| file.index_record = Some(Record { body: vec![0], ..file.index.record() }));

    // Lengths of the record itself, with a check that fits.
    let valid = file_of(&cluster_map()).to_bytes();
    for length in HUGE.into_iter().chain([0, 1]) {
        let mut file = valid.clone();
        file[16 + 8..16 + 16].copy_from_slice(&length.to_le_bytes());
        reseal_first_record(&mut file);
        assert!(agree(&file).is_err(), "body of {length} bytes");
        if let Ok(length) = u32::try_from(length) {
            let mut file = valid.clone();
            file[16 + 4..16 + 8].copy_from_slice(&length.to_le_bytes());
            reseal_first_record(&mut file);
            assert!(agree(&file).is_err(), "head of {length} bytes");
        }
    }
}

/// Puts the check of the first record right where its head is all there, and leaves the rest.
fn reseal_first_record(file: &mut [u8]) {
    let head_length = u32::from_le_bytes(file[20..24].try_into().expect("four bytes")) as usize;
    let end = (40 + head_length).min(file.len());
    let check = check64(&[&file[16..32], &file[40..end]].concat());
    file[32..40].copy_from_slice(&check.to_le_bytes());
}

#[test]
fn indexes() {
    refused_file("raw size", |file| file.index.raw_size += 1);
    let mut file = file_of(&cluster_map());
    file.index.content_hash[0] ^= 1;
    // The reader does not see all blocks, so it cannot know.
    let judged = agree_by(&[Way::Slice, Way::Stream, Way::Positional], &file.to_bytes());
    assert!(judged.is_err_and(|why| why.contains("content hash")));
    refused_file("disagrees", |file| file.index.blocks[0].0 += 1);
    refused_file("disagrees", |file| file.index.blocks[0].1 += 1);
    refused_file("UTF-8", |file| file.index.layout = vec![0xff]);
    refused_file("UTF-8", |file| file.index.writer = vec![0xc3]);
    refused_file("not among those of the header", |file| file.index.exact_features = 1);
    refused_file("follows the last segment", |file| file.index.after = vec![0]);
    refused_file("add up", |file| file.index.segments[0].length -= 1);
    refused_file("add up", |file| {
        file.index.segments.push(Segment { length: 1, ..Segment::default() });
        file.index.segment_count = 2;
    });
    refused_file("add up", |file| {
        // They do add up modulo 2^64.
        file.index.segments.extend([1 << 63, 1 << 63].map(|length| Segment { length, ..Segment::default() }));
        file.index.segment_count = 3;
    });
    refused_file("too early", |file| file.index.segment_count = 2);
    refused_file("add up", |file| file.index.segment_count = 0);
    for count in HUGE {
        refused_file("", |file| file.index.segment_count = count);
        refused_file("", |file| file.index.block_count = count);
        refused_file("", |file| file.index.raw_size = count);
        refused_file("", |file| file.index.blocks[0].0 = count);
        refused_file("", |file| file.index.blocks[0].1 = count);
        refused_file("", |file| file.index.segments[0].length = count);
        refused_file("", |file| file.index.table_length_error = count);
    }
    refused_file("state the length", |file| file.index.table_length_error = 1);
    refused_file("", |file| file.index.table_length_error = u64::MAX);
    refused_file("no zstd frame", |file| file.index_record = Some(file.index.record_of_frame(9, b"")));
    let frame = |file: &File| zstd::bulk::compress(&file.index.table(), 1).expect("zstd compresses anything");
    let record = |file: &File, frame: &[u8]| file.index.record_of_frame(file.index.table().len() as u64, frame);
    refused_file("follows the zstd frame", |file| {
        let frame = [frame(file), zstd::bulk::compress(&[], 1).expect("zstd compresses anything")].concat();
        file.index_record = Some(record(file, &frame));
    });
    refused_file("no zstd frame", |file| {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0], &frame(file)[..]].concat();
        file.index_record = Some(record(file, &skippable));
    });
}

#[test]
fn windows_of_indexes() {
    for window_log in 10..=41 {
        let mut file = file_of(&cluster_map());
        file.index.writer = noise(3000, 1).iter().map(|byte| byte & 0x7f).collect();
        let table = file.index.table();
        file.index_record =
            Some(file.index.record_of_frame(table.len() as u64, &frame_with_window(&table, window_log)));
        match window_log {
            12..=30 => assert!(agree(&file.to_bytes()).is_ok(), "a window of 2^{window_log} bytes"),
            // From 2^32 on, zstd's own limit.
            10..=31 => refused(&file.to_bytes(), "window"),
            _ => refused(&file.to_bytes(), ""),
        }
    }
}

#[test]
fn segments() {
    let typed = |dtype, shape: &[u64], name: &[u8]| {
        let (shape, name) = (shape.to_vec(), name.to_vec());
        move |file: &mut File| {
            file.index.segments = vec![Segment { dtype, name, shape, ..Segment::default() }];
        }
    };
    let bytes = file_of(&cluster_map()).index.raw_size;
    let shape = "shape of a tensor";
    refused_file("unknown dtype", typed(23, &[bytes], b"w"));
    for code in [24, 126] {
        refused_file("unknown dtype", typed(code, &[bytes], b"w"));
    }
    let named = |name: &[u8], bits, elements| {
        let named = Some((name.to_vec(), bits));
        move |file: &mut File| {
            file.index.segments = vec![Segment { dtype: 127, named, shape: vec![elements], ..Segment::default() }];
        }
    };
    for (name, bits) in [(&b"X"[..], 4), (b"~!", 1), (&[b'x'; 31], 2), (b"BF16", 8)] {
        let mut file = file_of(&cluster_map());
        named(name, bits, bytes * 8 / bits)(&mut file);
        assert!(agree(&file.to_bytes()).is_ok());
    }
    for name in [&b""[..], b"a b", b"a\x7f", b"\x1b", "ä".as_bytes(), &[b'x'; 32]] {
        refused_file("name of a dtype", named(name, 8, bytes));
    }
    refused_file("UTF-8", named(&[0xff], 8, bytes));
    for bits in [0, (1 << 16) + 1, u64::MAX] {
        refused_file("element of a dtype", named(b"X", bits, bytes));
    }
    refused_file("add up", named(b"X", 1 << 16, 1));
    refused_file(shape, named(b"X", 1, 8 * bytes + 1));
    refused_file("UTF-8", typed(2, &[bytes], &[0xc0, 0x80]));
    refused_file("add up", typed(2, &[bytes + 1], b"w"));
    refused_file("add up", typed(2, &[], b"w"));
    refused_file("add up", typed(9, &[bytes], b"w"));
    refused_file("add up", typed(2, &[bytes, 0], b"w"));
    refused_file(shape, typed(18, &[2 * bytes + 1], b"w"));
    refused_file(shape, typed(2, &[1 << 32, 1 << 32, bytes], b"w"));
    refused_file(shape, typed(2, &[u64::MAX; 64], b"w"));
    refused_file("rank", typed(2, &[[1; 64].as_slice(), &[bytes]].concat(), b"w"));
    let after_first = |second: Segment| {
        move |file: &mut File| {
            let first = Segment { dtype: 2, name: "wä".into(), shape: vec![bytes - 1], ..Segment::default() };
            file.index.segments = vec![first, second];
            file.index.segment_count = 2;
        }
    };
    let second = Segment { dtype: 2, name: b"w".to_vec(), ..Segment::default() };
    for shared in [2, 4, 1 << 32, u64::MAX] {
        refused_file("shares", after_first(Segment { shared, ..second.clone() }));
    }
    refused_file("add up", after_first(Segment { same_shape: true, ..second }));
    refused_file("opaque", after_first(Segment { length: 1, same_shape: true, ..Segment::default() }));
    refused_file("before", move |file| {
        file.index.segments = vec![Segment { dtype: 2, same_shape: true, ..Segment::default() }];
    });
}

/// A block of 2^24 equal bytes: a few bytes in a file.
fn bomb() -> Record {
    let raw = vec![9; 1 << 24];
    let cluster = block::Cluster { constant: Some(9), z: 8, ..Default::default() };
    let column = block::Plain { raw, width_code: 0, stream: block::Stream::of(0, cluster) };
    block::Block::of(Column::Plain(column), 0).record().expect("the block can be coded")
}

#[test]
fn expansion_is_limited() {
    let bomb = bomb();
    assert!(bomb.size() < 1200);
    let file = File::new(vec![bomb; 1000]).to_bytes();
    assert_eq!(Decompressor::raw_size(&file).ok(), Some(1000 << 24));
    for &isa in isas() {
        for way in Way::ALL {
            let error = way.decode(&file, isa).expect_err("16 GB are more than the limit");
            assert_eq!(error.kind(), ErrorKind::Limit, "{way:?}: {error}");
        }
    }
    assert!(reference::decode(&file, LIMIT).is_err());
}

#[test]
fn a_table_that_expands_is_limited() {
    // An index whose table is a gigabyte of empty segments, which fit a few kilobytes.
    let mut file = file_of(&cluster_map());
    let table = vec![0; 1 << 30];
    let frame = zstd::bulk::compress(&table, 1).expect("zstd compresses anything");
    file.index_record = Some(file.index.record_of_frame(table.len() as u64, &frame));
    drop(table);
    for &isa in isas() {
        for way in Way::ALL {
            let error = way.decode(&file.to_bytes(), isa).expect_err("the table is larger than the limit");
            assert_eq!(error.kind(), ErrorKind::Limit, "{way:?}: {error}");
        }
    }
}

#[test]
fn what_a_newer_writer_may_write_is_unsupported_and_not_damage() {
    let kind_of = |file: &[u8]| {
        let error = Way::Slice.decode(file, Isa::PORTABLE).expect_err("the file is from the future");
        error.kind()
    };
    let changed = |change: &dyn Fn(&mut BlockFields)| {
        let mut fields = cluster_map();
        change(&mut fields);
        file_of(&fields).to_bytes()
    };
    let mut file = file_of(&cluster_map());
    file.version += 1;
    assert_eq!(kind_of(&file.to_bytes()), ErrorKind::Unsupported);
    file.version = FORMAT_VERSION;
    file.features = 8;
    assert_eq!(kind_of(&file.to_bytes()), ErrorKind::Unsupported);
    file.features = 0;
    file.hash = 2;
    assert_eq!(kind_of(&file.to_bytes()), ErrorKind::Unsupported);
    // A column's method, its map and its mask.
    for at in [0, 2, 3] {
        assert_eq!(kind_of(&changed(&|block| block.columns[0][at] = 5)), ErrorKind::Unsupported, "byte {at}");
    }
    // The head of a predicted column, byte by byte: method, width, predictor, operands (conversion and ranges),
    // boundaries.
    let predicted = |at: usize| {
        let mut fields = copy(&[(1, 0, FIRST)]);
        assert_eq!(fields.columns[0][..10], [3, 0, 2, 1, 0, 1, 1, 0, FIRST.len() as u8, 0]);
        fields.columns[0][at] = 5;
        let file = File::delta(&[FIRST], vec![fields.record()]).to_bytes();
        let base = [Base::new(FIRST).expect("memory can be read")];
        Way::Slice.decode_delta(&file, &base, Isa::PORTABLE).expect_err("the file is from the future").kind()
    };
    for at in [2, 4] {
        assert_eq!(predicted(at), ErrorKind::Unsupported, "byte {at}");
    }
}

/// Every way that decodes all of a file.
const WHOLE: [Way; 3] = [Way::Slice, Way::Stream, Way::Positional];

/// A skippable record of this many bytes.
fn skippable(size: usize) -> Record {
    Record::new(*b"note", vec![7; size - 24], Vec::new())
}

#[test]
fn skippable_records() {
    let block = cluster_map().record();
    let raw = cluster_map_block().raw();
    let file = |records: Vec<Record>| File::new([vec![block.clone()], records].concat()).to_bytes();
    let tags = [*b"a\0\0\0", *b"zZ{\xff"];
    for records in [
        vec![skippable(24)],
        vec![skippable(25), skippable(24), skippable(10_000)],
        tags.map(|tag| Record { tag, ..skippable(30) }).to_vec(),
        vec![skippable(24); 64],
    ] {
        assert!(agree(&file(records)).is_ok_and(|decoded| decoded == raw));
    }
    assert_eq!(agree(&File::new(vec![skippable(30)]).to_bytes()), Ok(Vec::new()), "without a block");

    let refused = |records: Vec<Record>, reason: &str| {
        let why = agree_by(&WHOLE, &file(records)).expect_err(reason);
        assert!(why.contains(reason), "the reason is: {why}, but not: {reason}");
    };
    refused(vec![skippable(24); 65], "more than 64");
    refused(vec![Record { body: vec![1], ..skippable(24) }], "has a body");
    for tag in [*b"Note", *b"`ote", *b"{ote", *b"\0ote"] {
        refused(vec![skippable(24), Record { tag, ..skippable(24) }], "unknown tag");
    }
    refused(vec![skippable(24), block.clone()], "a block follows");
    refused_file("a block follows", |file| file.records.insert(0, skippable(24)));
}

#[test]
fn the_longest_skippable_record() {
    let file = |size| File::new(vec![cluster_map().record(), skippable(size)]).to_bytes();
    let options = options(Isa::PORTABLE).with_limits(DecodeLimits::default());
    let mut decompressor = Decompressor::new(&options).expect("no threads are needed");
    for (size, is_valid) in [(1 << 24, true), ((1 << 24) + 1, false)] {
        assert_eq!(reference::decode(&file(size), LIMIT).is_ok(), is_valid);
        for way in WHOLE {
            let decoded = way.decode_by(&file(size), &[], &options, &mut decompressor);
            assert_eq!(decoded.is_ok(), is_valid, "{way:?}");
        }
    }
}

#[test]
fn every_bit_of_a_skippable_record_is_checked() {
    let block = cluster_map().record();
    let mut file = File::new(vec![block.clone(), skippable(40), skippable(24)]).to_bytes();
    let start = 16 + block.size() as usize;
    let raw = cluster_map_block().raw();
    for bit in 8 * start..8 * (start + 64) {
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(agree_by(&WHOLE, &file).is_err(), "bit {bit}");
        // Decoders that read through the index do not look at them.
        assert!(Way::Reader.decode(&file, Isa::PORTABLE).is_ok_and(|read| read == raw));
        file[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(agree(&file).is_ok());
}
