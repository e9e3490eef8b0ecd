//! Small valid files with the largest blocks of the format, whose columns need the most memory.

use crate::{MIB, alone, at_most, kept, peak};
use lmc::{Base, DecompressOptions, Decompressor, ErrorKind, Reader, Sink, Source, WriteAt};
use lmc_inspect::describe_block;
use lmc_testing::handmade;
use lmc_testing::reference::write::block::{Block, BlockFields, Column, ZEROS, Zstd};
use lmc_testing::reference::write::{File, Segment, varint};
use std::io;

/// The raw length of the largest block.
const RAW: usize = 16 * MIB;
/// The raw length of a base that the ranges of some blocks are of.
const BASE: usize = 64 * MIB;

fn options(threads: usize) -> DecompressOptions {
    DecompressOptions::default().with_threads(threads)
}

/// A block of zeros without body, in one column with this head, which needs these features.
fn zeros(column: Vec<u8>, needs: u32) -> BlockFields {
    zeros_of(RAW, column, needs)
}

/// [`zeros`] of this raw length.
fn zeros_of(len: usize, column: Vec<u8>, needs: u32) -> BlockFields {
    let mut fields = BlockFields { columns: vec![column], ..handmade::zeros(len) };
    (fields.needs, fields.has_body_check) = (needs, needs & 1 != 0);
    fields
}

/// A block that asks for as much as any can: a column of two-byte elements, predictions that are converted from elements of four bytes, in
/// two ranges of a source, and several contexts, one with a mask.
fn wide_block(source: u64, at: [u64; 2]) -> BlockFields {
    // Predicted, two bytes, F32 to BF16, two ranges.
    let mut head = vec![3, 1, 1, 2];
    for at in at {
        [source, at, RAW as u64].into_iter().for_each(|number| varint(&mut head, number));
    }
    put_residuals(&mut head, RAW / 2);
    zeros(head, if source == 0 { 3 } else { 1 })
}

/// Appends `n` residuals of two bytes in two contexts, keys below 1 and all others. The first has all elements, with residuals 0, the second
/// has none.
fn put_residuals(head: &mut Vec<u8>, n: usize) {
    head.extend([1, 1]);
    varint(head, n as u64);
    put_masked(head, n, 16);
    head.push(0);
}

/// Appends a stream of `n` zeros of `bits` bits, all selected by a mask of constant bits. `n` is a multiple of 8.
fn put_masked(head: &mut Vec<u8>, n: usize, bits: u8) {
    head.extend([0, 1]);
    varint(head, n as u64);
    head.extend([1, 8, 0, 0, 0, 0xff]);
    head.extend([1, 0, 0, bits, 0, 0, 0]);
}

/// Appends a stream whose first `count` elements are listed, and are 1.
fn put_listed(head: &mut Vec<u8>, count: usize) {
    head.extend([0, 3]);
    varint(head, count as u64);
    head.extend([0; 8]);
}

/// Appends `n` residuals in two contexts, keys below 255 and all others. The first has all elements. As many residuals as a decoder holds
/// at once are listed, and are -1; the others are 0.
fn put_sparse_residuals(head: &mut Vec<u8>, n: usize) {
    head.extend([1, 255]);
    varint(head, n as u64);
    put_listed(head, n / 32);
    head.push(0);
}

/// A block of bytes that are predicted from a base at `at`: ones where residuals are listed, then zeros.
fn sparse_block(at: usize) -> BlockFields {
    // Predicted, one byte, not converted, one range.
    let mut head = vec![3, 0, 0, 1];
    [1, at as u64, RAW as u64].into_iter().for_each(|number| varint(&mut head, number));
    put_sparse_residuals(&mut head, RAW);
    zeros(head, 1)
}

/// A block that a grid predicts, with a scale for each element, and listed residuals.
fn sparse_grid_block() -> BlockFields {
    let n = RAW / 2;
    // Predicted, two bytes, a grid: F32 to BF16, without offsets, the level 2^16.
    let mut head = vec![3, 1, 4, 1, 0, 0];
    head.extend(65536f32.to_le_bytes());
    [n as u64 / 256, 1, 1, 0].into_iter().for_each(|number| varint(&mut head, number));
    // The smallest subnormal number: with the level, the element of bits 1.
    put_listed(&mut head, n / 32);
    head.extend(&ZEROS[2..]);
    put_sparse_residuals(&mut head, n);
    zeros(head, 4)
}

/// A block of `len` bytes that a grid predicts, with a scale and an offset for each element, and tables that take as many entries.
fn grid_block(len: usize) -> BlockFields {
    let n = len / 2;
    // Predicted, two bytes, a grid: F32 to BF16, with offsets, the level 0.
    let mut head = vec![3, 1, 4, 1, 1, 0, 0, 0, 0, 0];
    // One element to a group; a table for each in a row.
    [n as u64 / 256, 1, 1, 0].into_iter().for_each(|number| varint(&mut head, number));
    put_masked(&mut head, n, 32);
    // Offsets are listed: the smallest subnormal number, which is converted to 0.
    put_listed(&mut head, n);
    // Indices.
    head.extend(&ZEROS[2..]);
    put_residuals(&mut head, n);
    zeros_of(len, head, 4)
}

/// Blocks of one plain column of bytes, all of them selected: by a list, and by bits.
fn masked_blocks() -> [BlockFields; 2] {
    // Gaps of 0, and the value 1 for all; a cluster of bytes of ones, and one of zeros.
    let (list, bits, cluster) = ([0; 8], [1, 8, 0, 0, 0, 0xff], [1, 0, 0, 8, 0, 0, 0]);
    let block = |zero: u8, mask: u8, of_mask: &[u8], elements: &[u8]| {
        // Plain, one byte, a palette of two values with 0 at this place, the mask.
        let mut head = vec![2, 0, 3, 1, zero, 1 - zero, mask];
        varint(&mut head, RAW as u64);
        zeros([&head[..], of_mask, elements].concat(), 0)
    };
    [block(1, 3, &list, &[]), block(0, 1, &bits, &cluster)]
}

/// A block of zeros in two columns, the first in two pieces.
fn pieces() -> BlockFields {
    let mut fields = zeros(ZEROS.to_vec(), 0);
    fields.columns.push(ZEROS.to_vec());
    (fields.column_count, fields.extent_count) = (2, 3);
    fields.extents = vec![(0, 8), (1, 8), (0, RAW as u64 - 16)];
    fields
}

/// Offset of the `i`-th of the largest blocks.
fn start(i: u64) -> u64 {
    i * RAW as u64
}

/// A destination that is read back: all that is written are zeros.
pub(super) struct Zeros;

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

/// The most memory that a thread works with.
const OF_THREAD: usize = 184 * MIB;

/// Memory of the threads, of the jobs that are under way, and of some more.
fn bound(threads: usize) -> usize {
    threads * OF_THREAD + (threads << 22) + 64 * MIB
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
    let old = vec![0; BASE];
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
    let mut blocks = vec![zeros(ZEROS.to_vec(), 0).record()];
    blocks.extend((1..=8).map(|i| wide_block(0, [0, start(i - 1)]).record()));
    let file = File::delta(&[], blocks).to_bytes();
    assert!(file.len() < 4096, "{}", file.len());
    restore(&file, &[], 2, bound(2));
    // Blocks that wait for others are read, as long as all that they need costs no more than the format allows.
    let (done, allocated) = read(&file, &[], 1, start(2), 4096);
    done.unwrap();
    at_most(256 * MIB, allocated, "the third block");
    let reader = Reader::open(&file[..], &options(1)).unwrap();
    let (done, kept) = kept(|| reader.read_range(start(2), &mut [0; 4096]));
    done.unwrap();
    at_most(bound(1), kept, "what is kept of that");
    let (done, allocated) = read(&file, &[], 1, start(8), 4096);
    done.unwrap();
    at_most(1536 * MIB, allocated, "the last block");
}

#[test]
fn grids_and_lists() {
    let _alone = alone();
    let mut old = vec![0; BASE];
    old[BASE - RAW..][..RAW / 32].fill(1);
    // Every buffer becomes as large as it can; some grow from a little less.
    let mut blocks = vec![pieces().record(), wide_block(1, [0; 2]).record()];
    blocks.extend(masked_blocks().iter().map(BlockFields::record));
    blocks.extend([sparse_grid_block(), sparse_block(BASE - RAW)].iter().map(BlockFields::record));
    blocks.extend([RAW - (1 << 18), RAW].map(|len| grid_block(len).record()));
    let count = blocks.len() as u64;
    let file = File::delta(&[&old], blocks).to_bytes();
    assert!(file.len() < 4096, "{}", file.len());
    let bases = [Base::new(&old[..]).unwrap()];
    let mut out = vec![0; Decompressor::raw_size(&file).unwrap() as usize];
    let mut one = Decompressor::new(&options(1)).unwrap();
    let (done, allocated) = peak(|| one.decompress(&file, &bases, &mut out[..]));
    done.unwrap();
    at_most(OF_THREAD, allocated, "by one thread");
    for threads in [1, 4] {
        restore(&file, &bases, threads, bound(threads));
    }
    for block in 0..count {
        let (done, allocated) = read(&file, &bases, 1, start(block) + 5, 10);
        done.unwrap();
        at_most(OF_THREAD, allocated, "by random access");
    }
}

#[test]
fn the_longest_lists() {
    let _alone = alone();
    // Two columns that alternate every eight bytes; the first is predicted from a million ranges.
    let (each, count) = (8, 1 << 20);
    let old = vec![0; BASE];
    let block = Block::of(Column::Stored(vec![0; RAW]), 0);
    let mut fields = block.encode().unwrap();
    fields.bulk.clear();
    (fields.column_count, fields.extent_count) = (2, count);
    fields.extents = (0..count).map(|i| (i as u8 % 2, 2 * each)).collect();
    let mut predicted = vec![3, 0, 0];
    varint(&mut predicted, count);
    for i in 0..count {
        [1, i * 64, each].into_iter().for_each(|number| varint(&mut predicted, number));
    }
    predicted.push(0);
    varint(&mut predicted, count * each);
    predicted.extend(&ZEROS[2..]);
    fields.columns = vec![predicted, ZEROS.to_vec()];
    (fields.needs, fields.has_body_check) = (1, true);
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
fn byte_planes() {
    let _alone = alone();
    let planes = Zstd { width_code: 3, ..Zstd::of(vec![0; RAW]) };
    let record = Block::of(Column::Zstd(planes), 0).record().unwrap();
    let file = File::new(vec![record]).to_bytes();
    for threads in [1, 4] {
        restore(&file, &[], threads, bound(threads));
        let (done, allocated) = read(&file, &[], threads, 5, 10);
        done.unwrap();
        at_most(bound(threads), allocated, "by random access");
    }
}

#[test]
fn the_largest_index() {
    let _alone = alone();
    let limit = options(1).limits.max_index_size;
    // One segment of all bytes, and as many tensors without any as the format allows: 64 bytes and a dimension each.
    let count = ((1 << 28) - 64) / (64 + 8);
    let empty = Segment { dtype: 2, shape: vec![0], same_shape: false, ..Segment::default() };
    let mut fields = zeros(ZEROS.to_vec(), 0);
    fields.digest[0] ^= 1;
    let mut file = File::new(vec![fields.record()]);
    file.index.segments = vec![empty; count];
    file.index.segments.push(Segment { length: RAW as u64, ..Segment::default() });
    file.index.segment_count = file.index.segments.len() as u64;
    let file = file.to_bytes();
    let (opened, allocated) = peak(|| Reader::open(&file[..], &options(1)).map(|r| r.segments().len()));
    assert_eq!(opened.unwrap(), count + 1);
    at_most(limit, allocated, "opening");
    // Errors say which tensor they are in.
    let (done, allocated) = read(&file, &[], 1, 5, 10);
    assert_eq!(done.unwrap_err().kind(), ErrorKind::Damaged);
    at_most(2 * limit, allocated, "an error");
}
