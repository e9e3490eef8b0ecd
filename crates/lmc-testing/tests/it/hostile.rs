//! Files that no honest writer makes: those that expand to more than the limits, those of a newer writer, and skippable
//! records.

use lmc::{Base, DecodeLimits, Decompressor, ErrorKind, FORMAT_VERSION};
use lmc_kernels::isa::Isa;
use lmc_testing::decoders::{LIMIT, Way, agree, agree_by, isas, options};
use lmc_testing::handmade::{FIRST, copy, encoded};
use lmc_testing::reference::{self, write::block::BlockFields, write::block::Column, write::*};
use lmc_testing::samples::cluster_map_block;

/// A block with a cluster map, to be changed.
fn cluster_map() -> BlockFields {
    encoded(&cluster_map_block())
}

fn file_of(fields: &BlockFields) -> File {
    File::new(vec![fields.record()])
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
            // The size of a slice is read with the default limits, which allow what the format does; the others have lower ones.
            let kind = if matches!(way, Way::Slice) { ErrorKind::Damaged } else { ErrorKind::Limit };
            assert_eq!(error.kind(), kind, "{way:?}: {error}");
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
    (file.features, file.index.exact_features) = (1 << 16, 1 << 16);
    assert_eq!(kind_of(&file.to_bytes()), ErrorKind::Unsupported);
    (file.features, file.index.exact_features) = (0, 0);
    file.hash = 2;
    assert_eq!(kind_of(&file.to_bytes()), ErrorKind::Unsupported);
    // A column's method, its map and its mask.
    for at in [0, 2, 3] {
        assert_eq!(kind_of(&changed(&|block| block.columns[0][at] = 5)), ErrorKind::Unsupported, "byte {at}");
    }
    // The head of a predicted column, byte by byte: method, width, conversion and ranges, boundaries.
    let predicted = || {
        let mut fields = copy(&[(1, 0, FIRST)]);
        assert_eq!(fields.columns[0][..8], [3, 0, 0, 1, 1, 0, FIRST.len() as u8, 0]);
        fields.columns[0][2] = 99;
        let file = File::delta(&[FIRST], vec![fields.record()]).to_bytes();
        let base = [Base::new(FIRST).expect("memory can be read")];
        Way::Slice.decode_delta(&file, &base, Isa::PORTABLE).expect_err("the file is from the future").kind()
    };
    assert_eq!(predicted(), ErrorKind::Unsupported);
}

/// Every way that decodes all of a file.
const WHOLE: [Way; 3] = [Way::Slice, Way::Stream, Way::Positional];

/// A skippable record of this many bytes.
fn skippable(size: usize) -> Record {
    Record::new(*b"note", vec![7; size - 24], Vec::new())
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
