//! Deltas of deltas, and files whose blocks depend on each other: the cost of reading any file is bounded.

use crate::support::{safetensors, weights};
use lmc::layout::Shape;
use lmc::{
    Base, CompressOptions, Compressor, DecompressOptions, Decompressor, Dtype, ErrorKind, Reader, Segment, Source,
    compress,
};
use lmc_testing::decoders::agree_with_bases;
use lmc_testing::exhaustive;
use lmc_testing::format1::most_costly;
use lmc_testing::handmade::{LEAF, copy, filled, records};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{Block, Column, Operand, Plain, Predicted, Range, Stream};
use lmc_testing::reference::write::{File, block};

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
        operand: Operand::Ranges { conversion: 1, ranges: vec![Range::of_base(1, raw); 2] },
        row_terms: None,
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

#[test]
fn a_block_is_decoded_once_for_another() {
    const LARGE: usize = 1 << 24;
    let cluster = block::Cluster { constant: Some(9), z: 8, ..Default::default() };
    let large = Plain { raw: vec![9; LARGE], width_code: 0, stream: Stream::of(0, cluster) };
    let large = Block::of(Column::Plain(large), 0).encode().expect("the block can be coded");
    // More than a cache holds, each of them several times.
    const BLOCKS: usize = 20;
    let ranges = |n: usize| -> Vec<_> { (0..n).map(|i| (0, (i % BLOCKS * LARGE) as u64, &[9][..])).collect() };
    const TIMES: usize = 6;
    let last = copy(&ranges(TIMES * BLOCKS));
    let file = File::delta(&[], records(&[&vec![large; BLOCKS][..], &[last]].concat())).to_bytes();
    let reader = Reader::open(&file[..], &options(1)).expect("a valid file opens");
    let mut end = [0; TIMES * BLOCKS];
    // To decode each as often as it is named would exceed a limit.
    reader.read_range((BLOCKS * LARGE) as u64, &mut end).expect("it is well within the limits");
    assert_eq!(end, [9; TIMES * BLOCKS]);
}

#[test]
fn a_block_may_cost_a_gibibyte() {
    let file = most_costly().to_bytes();
    let raw = filled(&[&[&b"the first"[..]], &[&[0; 3][..]; 15][..], &[&b"end"[..]]].concat());
    assert_eq!(agree_with_bases(&file, &[]).as_deref(), Ok(&raw[..]));
    let reader = Reader::open(&file[..], &options(1)).expect("a valid file opens");
    let mut start = [9; 3];
    reader.read_range(15 * LEAF, &mut start).expect("it costs as much as is allowed");
    assert_eq!(start, [0; 3]);
}

/// A training run: weights in 32 bits and their roundings to 16 bits; few of these change in a step. The header grows
/// now and then, so that everything moves.
fn run(steps: usize) -> Vec<Vec<u8>> {
    let mut w = weights(200_000, 7);
    let mut random = Random::new(8);
    let mut raws = Vec::new();
    for step in 0..=steps {
        let bytes: Vec<u8> = w.iter().flat_map(|v| v.to_le_bytes()).collect();
        let half: Vec<u8> = bytes.as_chunks::<4>().0.iter().flat_map(|e| [e[2], e[3]]).collect();
        let name = "x".repeat(1 + step / 5 * 3);
        raws.push(safetensors(&[
            (&name, "U8", vec![2], &[step as u8, 7]),
            ("w", "F32", vec![400, 500], &bytes),
            ("h", "BF16", vec![400, 500], &half),
        ]));
        for v in &mut w {
            if random.below(3) == 0 {
                *v += *v * 1e-4 * (random.below(5) as f32 - 2.0);
            }
        }
    }
    raws
}

#[test]
fn twenty_deltas_in_a_chain() {
    const STEPS: usize = 20;
    let raws = run(STEPS);
    let o = CompressOptions::default().with_threads(2);
    // Each base in other ways: compressed by its layout, as one tensor of integers, as bytes.
    let compressed = |raw: &[u8], dtype: Option<Dtype>| {
        let len = raw.len() as u64;
        let shape = dtype.map_or(Shape::default(), |d| [8 * len / u64::from(d.bits())].into());
        let whole = Segment::new(dtype.map(|_| "all".into()), dtype, shape, 0, len).expect("it has whole elements");
        let mut file = Vec::new();
        let mut c = Compressor::new(&o).expect("there is memory");
        c.compress(Source::segments(raw, &[whole]), &[], &mut file).expect("anything can be compressed");
        file
    };
    let plain: Vec<[Vec<u8>; 3]> = raws
        .iter()
        .map(|raw| {
            [compress(raw, &o).expect("anything can be"), compressed(raw, Some(Dtype::I8)), compressed(raw, None)]
        })
        .collect();
    let open = |file| Reader::open(file, &options(1)).expect("it is valid");
    let base_of = |step: usize, kind: usize| match kind {
        0 => Base::new(&raws[step][..]).expect("memory can be read"),
        kind => Base::lmc(open(&plain[step][kind - 1][..])),
    };
    let deltas: Vec<Vec<u8>> = (1..=STEPS)
        .map(|step| {
            let mut file = Vec::new();
            let base = [base_of(step - 1, step % 2)];
            Compressor::new(&o)
                .and_then(|mut c| c.compress(&raws[step], &base, &mut file))
                .expect("it can be compressed");
            assert!(file.len() < plain[step][0].len() * 3 / 4, "{step}: {}", file.len());
            file
        })
        .collect();
    let restored = |step: usize, base: Base<'_>, threads| {
        let mut out = vec![0; raws[step].len()];
        let mut d = Decompressor::new(&options(threads)).expect("there is memory");
        d.decompress(&deltas[step - 1], &[base], &mut out[..]).expect("it has its base");
        out
    };
    // Any form of a base serves, whichever form the delta was made against.
    for (step, raw) in raws.iter().enumerate().skip(1) {
        for kind in 0..4 {
            assert!(restored(step, base_of(step - 1, kind), 1) == *raw, "{step}, {kind}");
        }
    }
    // The whole chain, from every form of the first step.
    for kind in 0..4 {
        let chain = (1..STEPS).fold(base_of(0, kind), |base, step| {
            Base::lmc(open(&deltas[step - 1]).with_bases(vec![base]).expect("it is its base"))
        });
        if kind < 2 {
            assert!(restored(STEPS, chain, 1 + kind) == raws[STEPS], "{kind}");
            continue;
        }
        let last = open(&deltas[STEPS - 1]).with_bases(vec![chain]).expect("it is its base");
        let rows = last.read_rows("h", 123..150).expect("rows of a chain");
        let h = last.tensor("h").expect("it is there").offset as usize;
        assert!(rows == raws[STEPS][h + 123 * 1000..][..27 * 1000], "{kind}");
    }
}
