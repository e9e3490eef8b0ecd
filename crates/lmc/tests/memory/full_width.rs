//! Small valid files with the largest blocks of the format, whose columns need the most memory.

use crate::{MIB, alone, at_most, kept, peak};
use lmc::{Base, DecompressOptions, Decompressor, ErrorKind, Reader, Sink, Source, WriteAt};
use lmc_inspect::describe_block;
use lmc_testing::reference::write::block::{Block, BlockFields, Column};
use lmc_testing::reference::write::{File, Segment, varint};
use std::io;

/// The raw length of the largest block.
const RAW: usize = 16 * MIB;
/// What a block may depend on.
const DEPENDENCIES: usize = 64 * MIB;

fn options(threads: usize) -> DecompressOptions {
    DecompressOptions::default().with_threads(threads)
}

/// A block of zeros without body, in one column with this head; dependencies: (source, offset, length).
fn zeros(len: usize, column: Vec<u8>, dependencies: &[(u64, u64, u64)]) -> BlockFields {
    let mut fields = Block::of(Column::Stored(vec![0; len]), 0).encode().unwrap();
    fields.bulk.clear();
    fields.columns = vec![column];
    fields.dependency_count = dependencies.len() as u64;
    for &(source, offset, length) in dependencies {
        [source, offset, length].into_iter().for_each(|n| varint(&mut fields.dependencies, n));
    }
    fields
}

/// The head of a column of two-byte elements that asks for all there is: predictions that are converted from elements of four bytes, in two
/// dependencies, several contexts, and a map of unchanged runs.
fn wide_column() -> Vec<u8> {
    let n = (RAW / 2) as u64;
    // Predicted, two bytes, difference of integers, F32 to BF16, two dependencies, two contexts: keys below 1, and all others.
    let mut head = vec![3, 1, 2, 1, 0, 2, 1, 1];
    // A map of unchanged runs in which there are none: eight constant bits.
    head.extend([1, 0, 0, 0, 8, 0, 0]);
    // The first context has all elements, with residuals 0; the second has none.
    varint(&mut head, n);
    head.extend([0, 0, 0]);
    head.push(0);
    head
}

/// A block that asks for as much as any can, of ranges of a source.
fn wide_block(source: u64, at: [u64; 2]) -> BlockFields {
    zeros(RAW, wide_column(), &at.map(|at| (source, at, RAW as u64)))
}

/// Offset of the `i`-th of the largest blocks.
fn start(i: u64) -> u64 {
    i * RAW as u64
}

/// A destination that is read back: all that is written are zeros.
struct Zeros;

impl WriteAt for Zeros {
    fn write_all_at(&self, buf: &[u8], _: u64) -> io::Result<()> {
        assert!(buf.iter().all(|&b| b == 0));
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], _: u64) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }
}

/// Memory of one thread, of the jobs that are under way, and of some more.
fn bound(threads: usize) -> usize {
    threads * 120 * MIB + (threads << 22) + 64 * MIB
}

/// Restores a file of zeros in all ways but by random access; none takes more than `bound` besides the output.
#[track_caller]
fn restore(file: &[u8], bases: &[Base<'_>], threads: usize, bound: usize) {
    let mut out = vec![0; Decompressor::raw_size(file).unwrap() as usize];
    let decompressor = || Decompressor::new(&options(threads)).unwrap();
    let (done, allocated) = peak(|| decompressor().decompress(file, bases, &mut out[..]));
    done.unwrap();
    at_most(bound, allocated, "to a slice");
    assert!(out.iter().all(|&b| b == 0));
    let (done, allocated) =
        peak(|| decompressor().decompress(Source::reader(&mut &file[..]), bases, Sink::writer(&mut io::sink())));
    done.unwrap();
    at_most(bound, allocated, "to a stream");
    let (done, allocated) = peak(|| decompressor().decompress(file, bases, &Zeros));
    done.unwrap();
    at_most(bound, allocated, "to a file");
}

/// Opens a file and reads `len` bytes from `at` on; returns the result, and the memory allocated besides the bytes.
fn read(file: &[u8], bases: &[Base<'_>], threads: usize, at: u64, len: usize) -> (lmc::Result<()>, usize) {
    let mut out = vec![0; len];
    peak(|| Reader::open(file, &options(threads))?.with_bases(bases.to_vec())?.read_range(at, &mut out))
}

#[test]
fn blocks_of_bases() {
    let _alone = alone();
    let old = vec![0; DEPENDENCIES];
    let blocks: Vec<_> = (0..4).map(|i| wide_block(1, [start(i); 2]).record()).collect();
    let file = File::delta(&[&old], blocks).to_bytes();
    assert!(file.len() < 4096, "{}", file.len());
    let bases = [Base::new(&old[..]).unwrap()];
    for threads in [1, 4] {
        restore(&file, &bases, threads, bound(threads));
        let (done, allocated) = read(&file, &bases, threads, start(1) / 2, RAW);
        done.unwrap();
        at_most(bound(threads), allocated, "by random access");
        let (described, allocated) = peak(|| describe_block(&Reader::open(&file[..], &options(threads)).unwrap(), 3));
        assert_eq!(described.unwrap().columns[0].method, "predicted");
        at_most(MIB, allocated, "listing");
    }
}

#[test]
fn blocks_of_the_file_itself() {
    let _alone = alone();
    // Each but the first depends on the one before, which is decoded when the largest buffers are in use already.
    let mut blocks = vec![zeros(RAW, vec![2, 0, 0, 0, 0], &[]).record()];
    blocks.extend((1..=8).map(|i| wide_block(0, [0, start(i - 1)]).record()));
    let file = File::delta(&[], blocks).to_bytes();
    assert!(file.len() < 4096, "{}", file.len());
    restore(&file, &[], 2, bound(2));
    // A block that waits for another is read; one that waits for many such is not.
    let (done, allocated) = read(&file, &[], 1, start(2), 4096);
    done.unwrap();
    at_most(256 * MIB, allocated, "the third block");
    let reader = Reader::open(&file[..], &options(1)).unwrap();
    let (done, kept) = kept(|| reader.read_range(start(2), &mut [0; 4096]));
    done.unwrap();
    at_most(bound(1), kept, "what is kept of that");
    let (done, allocated) = read(&file, &[], 1, start(8), 4096);
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Limit);
    at_most(512 * MIB, allocated, "the last block");
}

#[test]
fn the_longest_lists() {
    let _alone = alone();
    // Two columns that alternate every eight bytes; the first is predicted from a million ranges.
    let (each, count) = (8, 1 << 20);
    let old = vec![0; DEPENDENCIES];
    let block = Block::of(Column::Stored(vec![0; RAW]), 0);
    let mut fields = block.encode().unwrap();
    fields.bulk.clear();
    (fields.column_count, fields.extent_count) = (2, count);
    fields.extents = (0..count).map(|i| (i as u8 % 2, 2 * each)).collect();
    fields.dependency_count = count;
    for i in 0..count {
        [1, i * 64, each].into_iter().for_each(|n| varint(&mut fields.dependencies, n));
    }
    let mut predicted = vec![3, 0, 1, 0, 0];
    varint(&mut predicted, count);
    predicted.extend([0, 0]);
    varint(&mut predicted, count * each);
    predicted.extend([0, 0, 0]);
    fields.columns = vec![predicted, vec![2, 0, 0, 0, 0]];
    let file = File::delta(&[&old], vec![fields.record()]).to_bytes();
    let bases = [Base::new(&old[..]).unwrap()];
    restore(&file, &bases, 2, 160 * MIB);
    let (done, allocated) = read(&file, &bases, 1, 5, 10);
    done.unwrap();
    at_most(160 * MIB, allocated, "by random access");
    let (described, allocated) = peak(|| describe_block(&Reader::open(&file[..], &options(1)).unwrap(), 0));
    assert_eq!(described.unwrap().extents.len() as u64, count);
    at_most(128 * MIB, allocated, "listing");
}

#[test]
fn lists_of_tensors() {
    let _alone = alone();
    for byte in [0, 1, 2, 7, 0x7f, 0xff] {
        let column = Column::TensorList { raw: vec![0; RAW], list: vec![byte; RAW] };
        let file = File::new(vec![Block::of(column, 0).record().unwrap()]).to_bytes();
        let (done, allocated) = read(&file, &[], 1, 0, 10);
        assert!(matches!(done.unwrap_err().kind(), ErrorKind::Damaged | ErrorKind::Unsupported), "{byte}");
        at_most(64 * MIB, allocated, "a list of tensors");
    }
}

#[test]
fn the_largest_index() {
    let _alone = alone();
    let limit = options(1).limits.max_index_size;
    // One tensor of all bytes, and as many without any as there is room for.
    let empty = Segment { dtype: 2, shape: vec![0], same_shape: false, ..Segment::default() };
    let mut fields = zeros(RAW, vec![2, 0, 0, 0, 0], &[]);
    fields.digest[0] ^= 1;
    let mut file = File::new(vec![fields.record()]);
    file.index.segments = vec![empty; limit / 112];
    file.index.segments.push(Segment { length: RAW as u64, ..Segment::default() });
    file.index.segment_count = file.index.segments.len() as u64;
    let file = file.to_bytes();
    let (opened, allocated) = peak(|| Reader::open(&file[..], &options(1)).map(|r| r.segments().len()));
    assert_eq!(opened.unwrap(), limit / 112 + 1);
    at_most(limit, allocated, "opening");
    // Errors say which tensor they are in.
    let (done, allocated) = read(&file, &[], 1, 5, 10);
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Damaged);
    at_most(2 * limit, allocated, "an error");
}
