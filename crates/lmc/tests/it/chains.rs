//! Deltas of deltas, and files whose blocks depend on each other: the cost of reading any file is bounded.

use lmc::{Base, DecompressOptions, Decompressor, ErrorKind, Reader, WriteAt};
use lmc_testing::exhaustive;
use lmc_testing::handmade::{LEAF, copy, filled, records};
use lmc_testing::reference::write::block::{Block, Column, Operand, Plain, Predicted, Range, Stream};
use lmc_testing::reference::write::{File, block};
use std::io;

fn options(threads: usize) -> DecompressOptions {
    DecompressOptions::default().with_threads(threads)
}

/// The last of a chain of `length` copies of a delta; the base of the first one is raw.
fn chain<'a>(file: &'a [u8], raw: &'a [u8], length: usize) -> Base<'a> {
    let open = |base| Reader::open(file, &options(1)).and_then(|r| r.with_bases(vec![base])).expect("it has its base");
    let first = Base::new(raw).expect("memory can be read");
    (0..length).fold(first, |base, _| Base::lmc(open(base)))
}

/// Restores a delta of the last one.
fn restored(file: &[u8], raw: &[u8], length: usize, threads: usize) -> lmc::Result<Vec<u8>> {
    let mut out = vec![0; raw.len()];
    let base = [chain(file, raw, length)];
    Decompressor::new(&options(threads))?.decompress(file, &base, &mut out[..])?;
    Ok(out)
}

#[test]
fn chains_are_as_long_as_a_stack_has_room_for() {
    // The last block depends on eight others, one after the other; the first one on the last one of the base.
    let raw = &filled(&[&b"a"[..]; 9])[..];
    let mut blocks = vec![copy(&[(1, 8 * LEAF, b"a")])];
    blocks.extend((0..8).map(|i| copy(&[(0, i * LEAF, b"a")])));
    let mut file = File::delta(&[raw], records(&blocks));
    file.redigest(&[raw], raw.len());
    let file = file.to_bytes();
    for threads in [1, 2] {
        for length in [1, 5, 12] {
            assert_eq!(restored(&file, raw, length, threads).expect("a chain is restored"), raw);
        }
        for length in [20, 100, 1000] {
            let e = restored(&file, raw, length, threads).expect_err("the chain is too long");
            assert!(e.kind() == ErrorKind::Limit && e.to_string().contains("more than 128 blocks"), "{e}");
        }
    }
    // Blocks that depend on nothing else of their file.
    let file = File { features: 1, ..File::delta(&[raw], records(&[copy(&[(1, 0, raw)])])) }.to_bytes();
    assert_eq!(restored(&file, raw, 120, 2).expect("a chain is restored"), raw);
    restored(&file, raw, 1000, 2).expect_err("the chain is too long");
}

/// A file of one block of zeros, BF16 predicted from F32: it names all of its base twice.
fn twofold(raw: &[u8]) -> Vec<u8> {
    let column = Predicted {
        raw: raw.to_vec(),
        width_code: 1,
        predictor: 2,
        operands: vec![Operand { conversion: 1, ranges: vec![Range::of_base(1, raw); 2] }],
        boundaries: vec![],
        streams: vec![Stream::of(0, block::Cluster { z: 16, ..Default::default() })],
    };
    let record = Block::of(Column::Predicted(column), 0).record().expect("the block can be coded");
    File { features: 1, ..File::delta(&[raw], vec![record]) }.to_bytes()
}

#[test]
fn work_does_not_multiply_along_a_chain() {
    // Small blocks are decoded once.
    let raw = [0; 64];
    let file = twofold(&raw);
    for length in [3, 20] {
        assert_eq!(restored(&file, &raw, length, 2).expect("a chain is restored"), raw);
    }
    // Larger ones, as wholes, are not kept.
    let raw = [0; 1 << 17];
    let file = twofold(&raw);
    assert_eq!(restored(&file, &raw, 6, 1).expect("64 blocks are not too many"), raw);
    for threads in if exhaustive() { 1..=2 } else { 2..=2 } {
        let e = restored(&file, &raw, 60, threads).expect_err("2^60 blocks would have to be decoded");
        assert!(e.kind() == ErrorKind::Limit && e.to_string().contains("too many other blocks"), "{e}");
        let reader = Reader::open(&file[..], &options(threads)).expect("a valid file opens");
        let reader = reader.with_bases(vec![chain(&file, &raw, 60)]).expect("it has its base");
        let e = reader.read_range(5, &mut [0]).expect_err("2^60 blocks would have to be decoded");
        assert!(e.to_string().contains("too many other blocks"), "{e}");
    }
}

/// A positional sink that cannot be read back.
struct Nowhere;

impl WriteAt for Nowhere {
    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn blocks_that_are_decoded_anew_for_one_are_limited() {
    const LARGE: usize = 1 << 24;
    let cluster = block::Cluster { constant: Some(9), z: 8, ..Default::default() };
    let large = Plain { raw: vec![9; LARGE], width_code: 0, stream: Stream::of(0, cluster) };
    let large = Block::of(Column::Plain(large), 0).encode().expect("the block can be coded");
    // More than a cache holds, so that each range takes decoding a block.
    const BLOCKS: usize = 70;
    let ranges = |n: usize| -> Vec<_> { (0..n).map(|i| (0, (i % BLOCKS * LARGE) as u64, &[9][..])).collect() };
    let file =
        |n| File::delta(&[], records(&[&vec![large.clone(); BLOCKS][..], &[copy(&ranges(n))]].concat())).to_bytes();
    let decoded = |n| {
        let mut decompressor = Decompressor::new(&options(1)).expect("no threads are needed");
        decompressor.decompress(&file(n), &[], &Nowhere)
    };
    decoded(BLOCKS).expect("a gigabyte is little");
    let e = decoded(5 * BLOCKS).expect_err("more than four gigabytes");
    assert!(e.kind() == ErrorKind::Limit && e.to_string().contains("too many other blocks"), "{e}");
}
