//! Deltas: files that are predicted from others, in every way to make and to restore them.

mod support;

use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, ErrorKind, Reader, Summary};
use support::{Memory, Trickle, decompress_options, noise, safetensors, weights};

/// A tensor's bytes after a few steps of training: every weight moves a little.
fn trained(old: &[f32], seed: u64, step: f32) -> Vec<f32> {
    old.iter().zip(weights(old.len(), seed)).map(|(w, d)| w + step * d).collect()
}

fn bf16(w: &[f32]) -> Vec<u8> {
    w.iter().flat_map(|x| (((x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16) as u16).to_le_bytes()).collect()
}

fn f32s(w: &[f32]) -> Vec<u8> {
    w.iter().flat_map(|x| x.to_le_bytes()).collect()
}

type Tensor<'a> = (&'a str, &'a str, Vec<u64>, &'a [u8]);

/// Compresses `raw` against `bases` in every way, with the same bytes, and restores it in every way; the file.
fn check(raw: &[u8], bases: &[&[u8]], o: &CompressOptions) -> Vec<u8> {
    let compressed: Vec<Vec<u8>> =
        bases.iter().map(|b| lmc::compress(b, &CompressOptions::default()).unwrap()).collect();
    let plain = || bases.iter().map(|b| Base::new(*b).unwrap().with_name("old").optional()).collect::<Vec<_>>();
    let lmc = || {
        let open = |c| Base::lmc(Reader::open(c, &decompress_options(1)).unwrap()).with_name("old").optional();
        compressed.iter().map(open).collect::<Vec<_>>()
    };
    let mut o = *o;
    let mut first: Option<(Vec<u8>, Summary)> = None;
    for threads in [1, 2, 5] {
        o.threads = threads;
        let mut c = Compressor::new(&o).unwrap();
        for bases in [plain(), lmc()] {
            let mut out = vec![];
            let s = c.compress_delta_into(raw, &bases, &mut out).unwrap();
            let (file, summary) = first.get_or_insert((out.clone(), s));
            assert_eq!((s, s.compressed_size), (*summary, out.len() as u64));
            assert!(out == *file, "slice, {threads} threads");
            out.clear();
            c.compress_delta_stream(&mut Trickle(raw, 65537), &bases, &mut out, &mut |_| ()).unwrap();
            assert!(out == *file, "stream, {threads} threads");
            out.clear();
            c.compress_delta_from(&raw, &bases, &mut out, &mut |_| ()).unwrap();
            assert!(out == *file, "file, {threads} threads");
        }
    }
    let (file, summary) = first.unwrap();
    assert_eq!(
        summary.content_hash,
        Base::new(raw).unwrap().content_hash(2).unwrap(),
        "the same hash as without bases"
    );
    for threads in [1, 2, 5] {
        let o = decompress_options(threads);
        let mut d = Decompressor::new(&o).unwrap();
        for bases in [plain(), lmc()] {
            let mut back = vec![0xee; raw.len()];
            assert_eq!(d.decompress_delta_into(&file, &bases, &mut back).unwrap(), summary);
            assert!(back == raw, "to a slice, {threads} threads");
            back.clear();
            let s = d.decompress_delta_stream(&mut Trickle(&file[..], 65537), &bases, &mut back, &mut |_| ()).unwrap();
            assert!(back == raw && s == summary, "to a stream, {threads} threads");
            let to = Memory::default();
            d.decompress_delta_to(&file, &bases, &to, &mut |_| ()).unwrap();
            assert!(to.0.into_inner().unwrap() == raw, "to a file, {threads} threads");
            let reader = Reader::open(&file, &o).unwrap().with_bases(bases).unwrap();
            back.resize(raw.len(), 0xdd);
            reader.read_range(0, &mut back).unwrap();
            assert!(back == raw, "by a reader, {threads} threads");
            let (from, to) = (raw.len() / 3, raw.len() - raw.len() / 5);
            let mut part = vec![0; to - from];
            lmc::ReadAt::read_exact_at(&reader, &mut part, from as u64).unwrap();
            assert!(part == raw[from..to]);
        }
    }
    file
}

fn named_bases(file: &[u8]) -> usize {
    Reader::open(file, &decompress_options(1)).unwrap().bases().len()
}

#[test]
fn every_way_gives_the_same_bytes() {
    let (a, b, c) = (weights(700_000, 1), weights(3000, 2), noise(3000, 3));
    let (a2, b2) = (trained(&a, 4, 0.001), trained(&b, 5, 0.001));
    let file = |a: &[f32], b: &[f32]| {
        let (a, b, half) = (f32s(a), f32s(b), bf16(a));
        let tensors: &[Tensor<'_>] = &[
            ("a", "F32", vec![700, 1000], &a),
            ("b", "F32", vec![3000], &b),
            ("half", "BF16", vec![700_000], &half),
            ("c", "U8", vec![30, 100], &c),
        ];
        safetensors(tensors)
    };
    let (old, new) = (file(&a, &b), file(&a2, &b2));
    let o = CompressOptions::default();
    let delta = check(&new, &[&old], &o);
    let plain = lmc::compress(&new, &o).unwrap();
    assert!(delta.len() * 10 < plain.len() * 8, "{} is not much less than {}", delta.len(), plain.len());
    assert_eq!(named_bases(&delta), 1);
    // What is not there again costs next to nothing.
    assert!(check(&old, &[&old], &o).len() * 200 < old.len());
    // Without a base, and with one that has nothing to do with it, the file is what it always was.
    assert!(check(&new, &[], &o) == plain);
    assert!(check(&new, &[&noise(50_000, 9)], &o) == plain);
    check(&[], &[&old], &o);
    check(&new, &[&[]], &o);
}
