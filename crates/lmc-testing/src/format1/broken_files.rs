//! Headers, records, indexes, trailers and bases (§2) that break a rule.

use super::broken_blocks::zeros;
use super::containers::{digests, sha256};
use super::{Broken, broken_delta, broken_file};
use crate::handmade::{FIRST, FrameBlock, copy, frame_of_blocks, frame_with_window, records, stored};
use crate::reference::write::{Bases, File, Record, Segment, check64, zstd_frame};

pub(super) fn all() -> Vec<Broken> {
    let of_records = [varints(), headers(), tags(), skippable_records(), records_of_digests()];
    let of_ends = [indexes(), bounds(), segments(), trailers()];
    of_records.into_iter().chain(of_ends).chain([bases()]).flatten().collect()
}

/// The raw bytes of [`valid`].
const RAW: &[u8] = b"eight by";

fn valid() -> File {
    File::new(records(&[stored(RAW)]))
}

fn changed(name: &str, section: &'static str, rule: &'static str, change: impl FnOnce(&mut File)) -> Broken {
    let mut file = valid();
    change(&mut file);
    broken_file(name, section, rule, &file)
}

/// A file with a change of its bytes.
fn patched(name: &str, section: &'static str, rule: &'static str, change: impl FnOnce(&mut Vec<u8>)) -> Broken {
    let mut file = valid().to_bytes();
    change(&mut file);
    Broken { name: name.into(), section, rule, file, bases: Vec::new(), optional: None }
}

fn varints() -> Vec<Broken> {
    // In place of the number of segments, which the table of the index ends with, after the lengths of the block.
    let number = |name: &str, rule, bytes: &[u8]| {
        changed(name, "1", rule, |file| {
            let mut table = file.index.table();
            let rest = table.split_off(table.len() - 3);
            table.extend(bytes);
            table.extend(&rest[1..]);
            file.index_record = Some(file.index.record_of_frame(table.len() as u64, &zstd_frame(&table)));
        })
    };
    vec![
        number("varint-padded", "a varint must not be padded", &[0x81, 0]),
        number("varint-above-64-bits", "a varint must be at most 2^64 - 1", &[&[0xff; 9][..], &[2]].concat()),
        number("varint-11-bytes", "a varint must have at most 10 bytes", &[&[0x81; 10][..], &[1]].concat()),
        changed("string-utf-8", "1", "a string must be UTF-8", |file| file.index.layout = vec![0xc0, 0x80]),
    ]
}

fn headers() -> Vec<Broken> {
    let of = |name: &str, rule, change: fn(&mut File)| changed(name, "2.1", rule, change);
    vec![
        of("magic", "the magic must be 89 4C 4D 43 0D 0A 1A 0A", |file| file.magic[4] = b'\n'),
        of("version-2", "the version must be 1", |file| file.version = 2),
        of("version-0", "the version must be 1", |file| file.version = 0),
        of("hash-0", "the hash must be 1", |file| file.hash = 0),
        of("hash-2", "the hash must be 1", |file| file.hash = 2),
        of("header-reserved", "the reserved field must be 0", |file| file.reserved = 1),
        of("features-bit-16", "a file that needs an unknown feature is refused", |file| {
            (file.features, file.index.exact_features) = (1 << 16, 1 << 16);
        }),
        of("features-bit-31", "a file that needs an unknown feature is refused", |file| {
            (file.features, file.index.exact_features) = (1 << 31 | 4, 1 << 31);
        }),
        of("features-bit-1-alone", "bit 1 of the required features needs bit 0", |file| file.features = 2),
        of("features-bits-1-and-2", "bit 1 of the required features needs bit 0", |file| file.features = 6),
        of("exact-features-bit-1-alone", "bit 1 of the exact features needs bit 0", |file| {
            (file.features, file.index.exact_features) = (3, 2);
        }),
    ]
}

fn tags() -> Vec<Broken> {
    let record = |tag: &[u8; 4]| Record::new(*tag, Vec::new(), Vec::new());
    let of = |name: &str, rule, change: &dyn Fn(&mut File)| changed(name, "2.2", rule, change);
    let unknown = "an unknown tag that does not begin with a lower-case letter is refused";
    vec![
        of("tag-upper-case", unknown, &|file| file.records.push(record(b"NOTE"))),
        of("tag-backquote", unknown, &|file| file.records.push(record(b"`ote"))),
        of("tag-brace", unknown, &|file| file.records.push(record(b"{ote"))),
        of("tag-blank", "the bytes of a tag must be 0x21 to 0x7E", &|file| file.records.push(record(b"no e"))),
        of("tag-delete", "the bytes of a tag must be 0x21 to 0x7E", &|file| file.records.push(record(b"not\x7f"))),
        of("tag-of-a-block", unknown, &|file| file.records[0].tag = *b"BLCk"),
        of("index-with-a-body", "the body length of the index must be 0", &|file| {
            file.index_record = Some(Record { body: vec![0], ..file.index.record() });
        }),
        patched("record-check", "2.2", "the check of a record must be right", |file| file[32] ^= 1),
        patched("index-check", "2.2", "the check of a record must be right", |file| {
            let check = file.len() - 32 - valid().index.record().size() as usize + 16;
            file[check] ^= 1;
        }),
        patched("record-body-cut", "2.2", "the body must have the body length", |file| {
            file[24..32].copy_from_slice(&9u64.to_le_bytes());
            let end = 40 + u32::from_le_bytes(file[20..24].try_into().expect("four bytes")) as usize;
            let check = check64(&[&file[16..32], &file[40..end]].concat());
            file[32..40].copy_from_slice(&check.to_le_bytes());
        }),
        patched("truncated", "2", "a file must have an index and a trailer", |file| {
            file.truncate(16 + valid().records[0].size() as usize);
        }),
    ]
}

fn skippable_records() -> Vec<Broken> {
    let record = || Record::new(*b"note", b"skipped".to_vec(), Vec::new());
    let of = |name: &str, rule, change: &dyn Fn(&mut File)| changed(name, "2.2", rule, change);
    vec![
        of("skippable-before-block", "skippable records must stand behind the last block", &|file| {
            file.records.insert(0, record());
        }),
        of("skippable-65", "there must be at most 64 skippable records", &|file| {
            file.records.extend(vec![record(); 65]);
        }),
        of("skippable-with-a-body", "a skippable record must have no body", &|file| {
            file.records.push(Record { body: vec![1], ..record() });
        }),
        patched("skippable-check", "2.2", "the check of a skippable record must be right", |file| {
            let mut with = valid();
            with.records.push(record());
            *file = with.to_bytes();
            let at = 16 + with.records[0].size() as usize + 16;
            file[at] ^= 1;
        }),
    ]
}

fn indexes() -> Vec<Broken> {
    let of = |name: &str, rule, change: fn(&mut File)| changed(name, "2.3", rule, change);
    let frame = |name: &str, rule, change: &dyn Fn(&[u8]) -> Vec<u8>| {
        changed(name, "3.3", rule, |file| {
            let table = file.index.table();
            file.index_record = Some(file.index.record_of_frame(table.len() as u64, &change(&table)));
        })
    };
    let block = |tables: &dyn Fn(&mut File)| {
        let mut file = File::new(records(&[stored(b"first"), stored(b"second")]));
        file.redigest(&[], super::LIMIT);
        tables(&mut file);
        file
    };
    vec![
        of("raw-size", "the lengths of segments must add up to the raw size", |file| file.index.raw_size += 1),
        of("raw-size-of-segments", "the raw lengths of blocks must add up to the raw size", |file| {
            file.index.raw_size += 1;
            file.index.segments[0].length += 1;
        }),
        broken_file("content-hash", "2.5", "the content hash must be that of the raw bytes", &{
            let mut file = valid();
            file.index.content_hash[0] ^= 1;
            file
        }),
        of("exact-features-not-required", "the header must have the exact features", |file| {
            file.index.exact_features = 1;
        }),
        changed("exact-features-not-needed", "2.3", "the blocks must need all of the exact features", |file| {
            (file.features, file.index.exact_features) = (1, 1);
        }),
        {
            let mut file = File::delta(&[FIRST], records(&[copy(&[(1, 0, FIRST)])]));
            file.redigest(&[FIRST], super::LIMIT);
            file.index.exact_features = 0;
            let rule = "every block must need no features but the exact ones";
            let name = "exact-features-missing".into();
            Broken { name, section: "2.3", rule, file: file.to_bytes(), bases: vec![FIRST.to_vec()], optional: None }
        },
        of("index-tag", "the record before the trailer must be the index", |file| {
            file.index_record = Some(Record { tag: *b"BASE", ..file.index.record() });
        }),
        of("block-count-more", "the index must have as many blocks as the file", |file| {
            file.index.block_count = 2;
            file.index.blocks.push((50, 0));
        }),
        // Lengths of one block follow, as those do whose number is not looked at.
        of("block-count-alone", "the index must have as many blocks as the file", |file| file.index.block_count = 2),
        of("block-count-less", "the index must have as many blocks as the file", |file| {
            file.index.block_count = 0;
            file.index.blocks.clear();
        }),
        of("record-length", "the record length of each block must be that of its record", |file| {
            file.index.blocks[0].0 += 1;
        }),
        of("raw-length", "the raw length of each block must be that of its record", |file| file.index.blocks[0].1 += 1),
        broken_file(
            "raw-lengths-swapped",
            "2.3",
            "the raw length of each block must be that of its record",
            &block(&|file| {
                let first = file.index.blocks[0].1;
                file.index.blocks[0].1 = file.index.blocks[1].1;
                file.index.blocks[1].1 = first;
            }),
        ),
        of("table-after", "the table must end after the last segment", |file| file.index.after = vec![0]),
        of("table-short", "the table must have the segments that it counts", |file| file.index.segment_count = 2),
        of("table-length", "the frame must be of P bytes", |file| file.index.table_length_error = 1),
        frame("frame-missing", "the table is exactly one zstd frame", &|_| Vec::new()),
        frame("frame-cut", "a zstd frame must decode", &|table| {
            let mut frame = zstd_frame(table);
            frame.pop();
            frame
        }),
        frame("frame-followed", "the table is exactly one zstd frame", &|table| [zstd_frame(table), vec![0]].concat()),
        frame("frame-skippable", "the zstd frame must not be a skippable one", &|table| {
            [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0], &zstd_frame(table)[..]].concat()
        }),
        frame("frame-window", "the Single_Segment_flag of a frame must be set", &|table| frame_with_window(table, 10)),
        frame("frame-window-2-30", "the Single_Segment_flag of a frame must be set", &|table| {
            frame_with_window(table, 30)
        }),
        frame_block_above_2_17(),
        of("layout-256", "the layout must have at most 255 bytes", |file| file.index.layout = vec![b'x'; 256]),
        of("layout-delete", "the layout must have no byte 0x7F", |file| file.index.layout = b"raw\x7f".to_vec()),
        of("writer-256", "the writer must have at most 255 bytes", |file| file.index.writer = vec![b'x'; 256]),
        of("writer-newline", "the writer must have no byte below 0x20", |file| file.index.writer = b"lmc\n".to_vec()),
        of("writer-zero", "the writer must have no byte below 0x20", |file| file.index.writer = vec![0]),
    ]
}

/// The table of an index that has a segment for each byte of its file, so that it repeats, in a frame with a long match.
fn frame_block_above_2_17() -> Broken {
    const MOST: u32 = 1 << 17;
    let mut file = File::new(records(&[zeros(MOST as usize / 2 + 2)]));
    let of_a_byte = Segment { length: 1, ..Segment::default() };
    file.index.segments = vec![of_a_byte; MOST as usize / 2 + 2];
    file.index.segment_count = u64::from(MOST / 2 + 2);
    let table = file.index.table();
    let first = table[..table.len() - MOST as usize - 2].to_vec();
    let frame = frame_of_blocks(table.len(), &[FrameBlock::Raw(first), FrameBlock::Match(2, MOST + 2)]);
    file.index_record = Some(file.index.record_of_frame(table.len() as u64, &frame));
    let rule = "a block of a frame must decode to at most 2^17 bytes";
    broken_file("frame-block-above-2-17", "2.3", rule, &file)
}

fn records_of_digests() -> Vec<Broken> {
    let of = |name: &str, rule, records: &[Record]| Broken {
        optional: Some("dIGS"),
        ..changed(name, "2.7", rule, |file| file.records.extend_from_slice(records))
    };
    let right = sha256(RAW);
    let mut after = digests(&[(0, 1, right)]);
    after.head.push(0);
    let mut cut = digests(&[(0, 1, right)]);
    cut.head.pop();
    let mut of_a_base = File::delta(&[FIRST], records(&[copy(&[(1, 4, b"first")])]));
    of_a_base.records.push(digests(&[(0, 1, sha256(b"first")), (1, 1, right)]));
    let order = "entries must rise by whose, then by algorithm";
    vec![
        of("digest-sha-256", "the SHA-256 must be that of the raw bytes", &[digests(&[(0, 1, [0; 32])])]),
        Broken {
            optional: Some("dIGS"),
            ..broken_delta(
                "digest-of-a-base",
                "2.7",
                "the SHA-256 must be that of the raw bytes of the base",
                of_a_base,
                &[FIRST],
            )
        },
        of("digests-none", "the number of entries must be at least 1", &[digests(&[])]),
        of("digests-of-no-base", "a base must be in the bases record", &[digests(&[(0, 1, right), (1, 1, right)])]),
        of("digests-order", order, &[digests(&[(0, 2, [2; 32]), (0, 1, right)])]),
        of("digests-same", order, &[digests(&[(0, 1, right), (0, 1, right)])]),
        of("digests-after", "the head must end after the last entry", &[after]),
        of("digests-cut", "the head must have the entries that it counts", &[cut]),
        of("digests-twice", "there is at most one record", &[digests(&[(0, 1, right)]), digests(&[(0, 1, right)])]),
    ]
}

/// Files that break the bounds of the index.
fn bounds() -> Vec<Broken> {
    let tensors = |name: &str, rule, count: u64, first: Segment, other: &Segment| {
        changed(name, "2.3", rule, |file| {
            let others = vec![other.clone(); count as usize - 1];
            file.index.segments = [vec![first], others].concat();
            // The bytes are in none of them.
            file.index.segments.push(Segment { length: RAW.len() as u64, ..Segment::default() });
            file.index.segment_count = count + 1;
        })
    };
    let none = |name: &str, shape: &[u64]| Segment {
        dtype: 2,
        name: name.into(),
        shape: shape.to_vec(),
        ..Segment::default()
    };
    let longest = "x".repeat((1 << 16) - 1);
    let same = |shared| Segment { shared, same_shape: true, ..none("", &[]) };
    let together = "names, 8 bytes a dimension and 64 a segment must be at most 2^28 bytes together";
    vec![
        changed("name-2-16", "2.3", "a name must have at most 2^16 - 1 bytes", |file| {
            file.index.segments = vec![none(&format!("{longest}x"), &[8])];
        }),
        changed("name-2-16-shared", "2.3", "a name must have at most 2^16 - 1 bytes", |file| {
            file.index.segments =
                vec![none(&longest, &[4]), Segment { shared: longest.len() as u64, ..none("y", &[4]) }];
            file.index.segment_count = 2;
        }),
        changed("opaque-0", "2.3", "an opaque segment must have at least 1 byte", |file| {
            file.index.segments.insert(0, Segment::default());
            file.index.segment_count = 2;
        }),
        tensors("names-above", together, 4092, none(&longest, &[0]), &same(longest.len() as u64)),
        tensors("dimensions-above", together, (1 << 28) / 576 + 1, none("", &[0; 64]), &same(0)),
        tensors("segments-above", together, (1 << 28) / 72 + 1, none("", &[0]), &same(0)),
    ]
}

fn segments() -> Vec<Broken> {
    let of = |name: &str, rule, segments: Vec<Segment>| {
        changed(name, "2.3", rule, |file| {
            file.index.segment_count = segments.len() as u64;
            file.index.segments = segments;
        })
    };
    let tensor = |dtype, name: &[u8], shape: &[u64]| Segment {
        dtype,
        name: name.to_vec(),
        shape: shape.to_vec(),
        ..Segment::default()
    };
    let opaque = |length| Segment { length, ..Segment::default() };
    let named =
        |name: &[u8], bits, elements| Segment { named: Some((name.to_vec(), bits)), ..tensor(127, b"w", &[elements]) };
    let sum = "the lengths of segments must add up to the raw size";
    let dtype = "a dtype must be of the table, or named";
    let name = "the name of a dtype must have 1 to 31 bytes";
    let characters = "the name of a dtype must have bytes of 0x21 to 0x7E alone";
    let taken = "the name of a dtype must be none of the table";
    let bits = "the bits of an element must be 1 to 2^16";
    let whole = "the raw length of a tensor must be whole";
    let product = "no partial product of a shape may exceed 2^64 - 1";
    let shared = "shared must be at most the length of the name before, and end at a character boundary";
    let shape = "bit 7 needs a tensor before";
    vec![
        of("segments-none", sum, vec![]),
        of("segments-short", sum, vec![opaque(7)]),
        of("segments-long", sum, vec![opaque(8), opaque(1)]),
        of("segments-sum-modulo-2-64", sum, vec![opaque(1 << 63), opaque(8), opaque(1 << 63)]),
        of("tensor-short", sum, vec![tensor(2, b"w", &[7])]),
        of("dtype-23", dtype, vec![tensor(23, b"w", &[8])]),
        of("dtype-126", dtype, vec![tensor(126, b"w", &[8])]),
        of("dtype-name-empty", name, vec![named(b"", 8, 8)]),
        of("dtype-name-32", name, vec![named(&[b'x'; 32], 8, 8)]),
        of("dtype-name-blank", characters, vec![named(b"a b", 8, 8)]),
        of("dtype-name-delete", characters, vec![named(b"a\x7f", 8, 8)]),
        of("dtype-name-umlaut", characters, vec![named("ä".as_bytes(), 8, 8)]),
        of("dtype-name-of-a-code", taken, vec![named(b"BF16", 16, 4)]),
        of("dtype-name-opaque", taken, vec![named(b"opaque", 8, 8)]),
        of("dtype-bits-0", bits, vec![named(b"X", 0, 8), opaque(8)]),
        of("dtype-bits-above", bits, vec![named(b"X", (1 << 16) + 8, 0), opaque(8)]),
        of("tensor-half-a-byte", whole, vec![tensor(18, b"w", &[15]), opaque(1)]),
        of("tensor-rank-65", "rank must be at most 64", vec![tensor(2, b"w", &[&[8][..], &[1; 64]].concat())]),
        of("tensor-product-above", product, vec![tensor(2, b"w", &[1 << 32, 1 << 32, 0]), opaque(8)]),
        of("tensor-bits-above", product, vec![tensor(2, b"w", &[1 << 61]), opaque(8)]),
        of("tensor-shared-long", shared, vec![tensor(2, b"ab", &[4]), Segment { shared: 3, ..tensor(2, b"c", &[4]) }]),
        of("tensor-shared-first", shared, vec![Segment { shared: 1, ..tensor(2, b"c", &[8]) }]),
        of(
            "tensor-shared-character",
            shared,
            vec![tensor(2, "ä".as_bytes(), &[4]), Segment { shared: 1, ..tensor(2, b"c", &[4]) }],
        ),
        of("tensor-name-utf-8", "a string must be UTF-8", vec![tensor(2, &[0xff], &[8])]),
        of("tensor-shape-of-none", shape, vec![Segment { same_shape: true, ..tensor(11, b"w", &[]) }]),
        of("tensor-shape-of-opaque", shape, vec![opaque(4), Segment { same_shape: true, ..tensor(2, b"w", &[]) }]),
        of("opaque-shape", "bit 7 of an opaque segment must be 0", vec![Segment { same_shape: true, ..opaque(8) }]),
    ]
}

fn trailers() -> Vec<Broken> {
    let of = |name: &str, rule, change: fn(&mut File)| changed(name, "2.4", rule, change);
    vec![
        of("trailer-offset", "the trailer must have the offset of the index record", |file| file.offset_error = 1),
        of("trailer-length", "the trailer must have the length of the index record", |file| {
            file.length_error = u64::MAX;
        }),
        // Together they end where the index does.
        of("trailer-offset-and-length", "the trailer must have the offset of the index record", |file| {
            (file.offset_error, file.length_error) = (1, u64::MAX);
        }),
        patched("trailer-check", "2.4", "the check of the trailer must be right", |file| {
            let check = file.len() - 16;
            file[check] ^= 1;
        }),
        of("trailer-magic", "the magic of the trailer must be 4C 4D 43 65 6E 64 0D 0A", |file| file.end_magic[0] = 0),
        of("after-the-trailer", "nothing may follow the trailer", |file| file.after = vec![0]),
    ]
}

fn bases() -> Vec<Broken> {
    let with = |name: &str, section, rule, features: u32, change: &dyn Fn(&mut Vec<Record>)| {
        let mut records = vec![Bases::of(&[FIRST]).record()];
        records.extend(self::records(&[copy(&[(1, 4, b"first")])]));
        change(&mut records);
        let file = File { features, ..File::new(records) };
        Broken { name: name.into(), section, rule, file: file.to_bytes(), bases: vec![FIRST.to_vec()], optional: None }
    };
    let of = |name: &str, rule, change: &dyn Fn(&mut Bases)| {
        let mut bases = Bases::of(&[FIRST]);
        change(&mut bases);
        with(name, "2.6", rule, 1, &|records| records[0] = bases.record())
    };
    let lone = |name: &str, rule, records: Vec<Record>| {
        let file = File { features: 1, ..File::new(records) };
        Broken {
            name: name.into(),
            section: "2.6",
            rule,
            file: file.to_bytes(),
            bases: vec![FIRST.to_vec()],
            optional: None,
        }
    };
    let record = || Bases::of(&[FIRST]).record();
    let block = || records(&[stored(RAW)]);
    vec![
        Broken {
            bases: Vec::new(),
            ..lone(
                "bases-none",
                "the number of bases must be 1 to 2^16",
                [vec![Bases::of(&[]).record()], block()].concat(),
            )
        },
        of("bases-after", "the head must end after the last base", &|bases| bases.after = vec![0]),
        of("base-cut", "the head must have the bases that it counts", &|bases| bases.count = 2),
        of("base-name-utf-8", "a string must be UTF-8", &|bases| bases.bases[0].name = vec![0xff]),
        of("base-name-256", "the name of a base must have at most 255 bytes", &|bases| {
            bases.bases[0].name = vec![b'x'; 256];
        }),
        of("base-name-slash", "the name of a base must have no /", &|bases| bases.bases[0].name = b"a/b".to_vec()),
        of("base-name-backslash", "the name of a base must have no \\", &|bases| {
            bases.bases[0].name = b"a\\b".to_vec();
        }),
        of("base-name-escape", "the name of a base must have no byte below 0x20", &|bases| {
            bases.bases[0].name = b"\x1b[2J".to_vec();
        }),
        of("base-content-hash", "a base must have its content hash", &|bases| bases.bases[0].content_hash[0] ^= 1),
        of("base-raw-length", "a base must have its raw length", &|bases| bases.bases[0].raw_length += 1),
        with("bases-body", "2.2", "the body length of the bases must be 0", 1, &|records| {
            records[0].body = vec![0];
        }),
        with("bases-feature", "2.6", "bases need bit 0 of the required features", 0, &|records| {
            records[1] = block().remove(0);
        }),
        lone("bases-twice", "there is at most one bases record", [vec![record(), record()], block()].concat()),
        lone("bases-behind-block", "the bases must follow the header directly", [block(), vec![record()]].concat()),
        broken_delta(
            "source-without-bases",
            "3.6",
            "a source must be a base that is named",
            File { features: 1, ..File::new(records(&[copy(&[(1, 4, b"first")])])) },
            &[],
        ),
    ]
}
