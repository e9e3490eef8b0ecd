//! The limit of bytes that one call decodes: enough for honest files, and an end for forged ones.

use crate::support::snapshots::{bf16, trained};
use crate::support::{delta_of, noise, restore, safetensors, weights};
use lmc::{Base, CompressOptions, DecodeLimits, DecompressOptions, Decompressor, ErrorKind, Reader, Result, WriteAt};
use lmc_testing::handmade::{copy, records};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{self, Block, Column, Plain, Stream};

fn options(threads: usize, max_work: Option<u64>) -> DecompressOptions {
    DecompressOptions::default().with_threads(threads).with_limits(DecodeLimits::default().with_max_work(max_work))
}

/// A positional sink that cannot be read back.
struct Nowhere;

impl WriteAt for Nowhere {
    fn write_all_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// A chain of snapshots of `n` weights, each a delta of the one before; and the last one's raw bytes.
fn run(length: usize, n: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut w = weights(n, 1);
    let file = |w: &[f32]| safetensors(&[("w", "BF16", vec![w.len() as u64], &bf16(w))]);
    let o = CompressOptions::default();
    let mut raw = file(&w);
    let mut files = vec![lmc::compress(&raw, &o).unwrap()];
    for i in 0..length {
        w = trained(&w, 10 + i as u64, 0.01);
        let next = file(&w);
        files.push(delta_of(&next, &[Base::new(&raw[..]).unwrap()], &o).unwrap());
        raw = next;
    }
    (files, raw)
}

/// The last delta of a run, opened with all of its bases.
fn opened<'a>(files: &'a [Vec<u8>], o: &DecompressOptions) -> Reader<'a, &'a [u8]> {
    let (last, before) = files.split_last().unwrap();
    let reader = Reader::open(&last[..], o).unwrap();
    let bases = if before.is_empty() { vec![] } else { vec![Base::lmc(opened(before, o))] };
    reader.with_bases(bases).unwrap()
}

#[test]
fn a_chain_of_64_takes_as_many_times_its_size() {
    let (files, raw) = run(64, 300_000);
    let size = raw.len() as u64;
    let (last, before) = files.split_last().unwrap();
    let restored = |max_work| {
        let o = options(2, max_work);
        let mut out = vec![0; raw.len()];
        let base = [Base::lmc(opened(before, &o))];
        Decompressor::new(&o)?.decompress(last, &base, &mut out[..])?;
        Ok::<_, lmc::Error>(out)
    };
    assert!(restored(None).unwrap() == raw);
    // One for each of the files: nothing is decoded twice.
    assert!(restored(Some(66 * size)).unwrap() == raw);
    let e = restored(Some(32 * size)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    assert!(e.to_string().contains(&format!("max_work is {} bytes", 32 * size)), "{e}");
}

#[test]
fn each_call_has_its_own_limit() {
    let (files, raw) = run(3, 3_000_000);
    let size = raw.len() as u64;
    let reader = opened(&files, &options(1, Some(5 * size)));
    let mut out = vec![0; raw.len()];
    // A reader lives for days.
    for _ in 0..20 {
        reader.read_range(0, &mut out).unwrap();
        assert!(out == raw);
        lmc::ReadAt::read_exact_at(&reader, &mut out[..1000], 100_000).unwrap();
    }
    let reader = opened(&files, &options(1, Some(size)));
    assert_eq!(reader.read_range(0, &mut out).unwrap_err().kind(), ErrorKind::Limit);
    // A read from one block of each file is within the limit.
    reader.read_range(5, &mut out[..10]).unwrap();
}

/// A file of a few kilobytes whose blocks depend on a byte of each of many blocks of zeros: gigabytes are decoded again and again.
fn forged(copies: usize) -> Vec<u8> {
    const LARGE: usize = 1 << 24;
    const BLOCKS: usize = 6;
    let cluster = block::Cluster { constant: Some(9), z: 8, ..Default::default() };
    let large = Plain { raw: vec![9; LARGE], width_code: 0, stream: Stream::of(0, cluster) };
    let large = Block::of(Column::Plain(large), 0).encode().expect("the block can be coded");
    let ranges: Vec<_> = (0..200).map(|i| (0, (i % BLOCKS * LARGE) as u64, &[9][..])).collect();
    let blocks = [vec![large; BLOCKS], vec![copy(&ranges); copies]].concat();
    File::delta(&[], records(&blocks)).to_bytes()
}

#[test]
fn a_forged_file_ends_whatever_it_asks_for() {
    // A cache that holds fewer blocks than are requested in rotation; each block stays below the limit of a block.
    let file = forged(40);
    assert!(file.len() < 80_000);
    // Six blocks of 16 MiB, and the same again for the next one.
    let limit = 150 << 20;
    for threads in [1, 2] {
        let done: Result<_> =
            Decompressor::new(&options(threads, Some(limit))).and_then(|mut d| d.decompress(&file, &[], &Nowhere));
        let e = done.expect_err("more would be decoded");
        assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
        assert!(e.to_string().contains("max_work"), "{e}");
    }
}

#[test]
fn compressing_from_a_compressed_base_is_limited_too() {
    let (files, raw) = run(4, 300_000);
    let new = [&raw[..], &noise(100_000, 5)].concat();
    let compressed = |max_work| {
        let o = CompressOptions::default().with_max_work(max_work);
        let base = [Base::lmc(opened(&files, &options(1, None))).with_name("old")];
        delta_of(&new, &base, &o)
    };
    let file = compressed(None).unwrap();
    let base = [Base::new(&raw[..]).unwrap()];
    assert!(restore(&file, &base, &options(1, None)).unwrap() == new);
    let e = compressed(Some(raw.len() as u64)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    assert!(e.to_string().contains("base \"old\""), "{e}");
}
