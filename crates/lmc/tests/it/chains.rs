//! Deltas of deltas, and files whose blocks depend on each other: the cost of reading any file is bounded.

use crate::support::safetensors;
use lmc::{Base, CompressOptions, DecompressOptions, Decompressor, Dtype, ErrorKind, Reader, Sink, WriteAt};
use lmc_testing::exhaustive;
use lmc_testing::handmade::{LEAF, copy, filled, records};
use lmc_testing::input::Random;
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

/// BF16 as a safetensors file: each snapshot differs from the one before it in one element of 16.
fn snapshots(count: usize) -> Vec<Vec<u8>> {
    const ELEMENTS: usize = 20_000;
    let mut random = Random::new(7);
    let mut elements: Vec<u16> = (0..ELEMENTS).map(|_| 0x3c00 | random.below(1 << 9) as u16).collect();
    let snapshot = |elements: &[u16]| {
        let data: Vec<u8> = elements.iter().flat_map(|u| u.to_le_bytes()).collect();
        safetensors(&[("w", "BF16", vec![ELEMENTS as u64], &data)])
    };
    let mut snapshots = vec![snapshot(&elements)];
    while snapshots.len() < count {
        elements.iter_mut().for_each(|u| *u += u16::from(random.below(16) == 0));
        snapshots.push(snapshot(&elements));
    }
    snapshots
}

/// How a snapshot is compressed: with its layout, as elements of a dtype, or as bytes.
const LAYOUTS: [Option<Dtype>; 4] = [None, Some(Dtype::Bf16), Some(Dtype::U8), Some(Dtype::F32)];

/// A chain of deltas, each made from the one before it, whose bases are raw, compressed alone, or the delta before.
#[test]
fn twenty_deltas_with_bases_of_every_kind() {
    const STEPS: usize = 20;
    let raws = snapshots(STEPS + 1);
    let compressed = |raw: &[u8], base: Option<Base<'_>>, dtype| {
        let options = CompressOptions::default().with_threads(1).with_dtype(dtype);
        let mut compressor = lmc::Compressor::new(&options).expect("no threads are needed");
        let mut file = Vec::new();
        let bases: Vec<Base<'_>> = base.into_iter().collect();
        compressor.compress(raw, &bases, Sink::writer(&mut file)).expect("anything can be compressed");
        file
    };
    let alone: Vec<Vec<u8>> =
        (0..).zip(&raws).map(|(i, raw)| compressed(raw, None, LAYOUTS[i % LAYOUTS.len()])).collect();

    // Made from raw bases, and from compressed ones of other layouts.
    let mut deltas: Vec<Vec<u8>> = Vec::new();
    for step in 1..=STEPS {
        let dtype = LAYOUTS[step / 2 % LAYOUTS.len()];
        let raw = &raws[step];
        let base = if step % 3 == 0 {
            Base::new(&raws[step - 1][..]).expect("memory can be read")
        } else {
            Base::lmc(Reader::open(&alone[step - 1][..], &options(1)).expect("a valid file opens"))
        };
        let delta = compressed(raw, Some(base), dtype);
        assert!(delta.len() < alone[0].len() / 2, "step {step} takes {} bytes", delta.len());
        deltas.push(delta);
    }

    let restored = |step: usize, base: Base<'_>, threads| {
        let mut out = vec![0; raws[step].len()];
        let mut decompressor = Decompressor::new(&options(threads)).expect("threads start");
        decompressor.decompress(&deltas[step - 1], &[base], &mut out[..]).map(|_| out)
    };
    for step in 1..=STEPS {
        let raw_base = Base::new(&raws[step - 1][..]).expect("memory can be read");
        assert!(restored(step, raw_base, 1).is_ok_and(|out| out == raws[step]), "step {step} of raw bytes");
        let reader = Reader::open(&alone[step - 1][..], &options(1)).expect("a valid file opens");
        assert!(restored(step, Base::lmc(reader), 1).is_ok_and(|out| out == raws[step]), "step {step} of a file");
    }

    // The whole chain: the first base is raw, or compressed in any layout.
    for first in 0..=LAYOUTS.len() {
        let first_file = LAYOUTS.get(first).map(|&dtype| compressed(&raws[0], None, dtype));
        let first_base = || match &first_file {
            Some(file) => Base::lmc(Reader::open(&file[..], &options(1)).expect("a valid file opens")),
            None => Base::new(&raws[0][..]).expect("memory can be read"),
        };
        for threads in [1, 2] {
            let chain = deltas[..STEPS - 1].iter().fold(first_base(), |base, file| {
                let reader = Reader::open(&file[..], &options(1)).expect("a valid file opens");
                Base::lmc(reader.with_bases(vec![base]).expect("it has its base"))
            });
            assert!(restored(STEPS, chain, threads).is_ok_and(|out| out == raws[STEPS]), "{first}, {threads} threads");
        }
    }
}
