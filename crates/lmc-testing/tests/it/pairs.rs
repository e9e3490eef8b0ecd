//! Round trips of pairs: every dtype, at lengths around runs and blocks, of many distributions, against bases of many kinds.

use crate::support::restore;
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Dtype, Level};
use lmc_kernels::isa::Isa;
use lmc_testing::decoders::{agree_with_bases, isas};
use lmc_testing::input::Random;
use lmc_testing::snapshots::special;

/// How elements are distributed.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Constant,
    OneSymbol,
    OneOutlier,
    /// More values than tables have room for.
    AllEscapes,
    Periodic,
    /// Zeros of both signs, infinities, denormals, and not a number with any payload.
    Special,
    Noise,
}

const KINDS: [Kind; 7] =
    [Kind::Constant, Kind::OneSymbol, Kind::OneOutlier, Kind::AllEscapes, Kind::Periodic, Kind::Special, Kind::Noise];

/// The relation of the base to the file.
#[derive(Clone, Copy, Debug)]
enum Relation {
    Same,
    /// A distance of the kind, from a base of noise.
    Moved,
    /// The distance is the kind's of a base of special values.
    MovedFromSpecial,
    Unrelated,
    /// Elements of the same kind that end early.
    Shorter,
}

const RELATIONS: [Relation; 5] =
    [Relation::Same, Relation::Moved, Relation::MovedFromSpecial, Relation::Unrelated, Relation::Shorter];

fn elements(kind: Kind, width: usize, n: usize, random: &mut Random) -> Vec<u64> {
    let constant = random.u64();
    let top = 8 * width as u32 - 8;
    (0..n)
        .map(|i| match kind {
            Kind::Constant => constant,
            // The bits below are noise.
            Kind::OneSymbol => constant >> top << top | random.u64() & ((1 << top) - 1),
            Kind::OneOutlier if i == n / 2 => random.u64(),
            Kind::OneOutlier => constant,
            Kind::AllEscapes => (i as u64).wrapping_mul(0x0101_0101_0101_0101) << (i % 8),
            Kind::Periodic => (i % 67) as u64,
            Kind::Special => special(random, width),
            Kind::Noise => random.u64(),
        })
        .collect()
}

fn bytes(elements: &[u64], width: usize) -> Vec<u8> {
    elements.iter().flat_map(|e| e.to_le_bytes()[..width].to_vec()).collect()
}

/// A base, and a file of `n` elements.
fn pair(kind: Kind, relation: Relation, width: usize, n: usize, seed: u64) -> [Vec<u8>; 2] {
    let mut random = Random::new(seed);
    let new = elements(kind, width, n, &mut random);
    let moved = |old: Vec<u64>| {
        let new: Vec<u64> = old.iter().zip(&new).map(|(o, d)| o.wrapping_add(*d)).collect();
        [bytes(&old, width), bytes(&new, width)]
    };
    match relation {
        Relation::Same => [bytes(&new, width), bytes(&new, width)],
        Relation::Moved => moved(elements(Kind::Noise, width, n, &mut random)),
        Relation::MovedFromSpecial => moved(elements(Kind::Special, width, n, &mut random)),
        Relation::Unrelated => [bytes(&elements(Kind::Noise, width, n, &mut random), width), bytes(&new, width)],
        Relation::Shorter => [bytes(&new[..n - n / 3], width), bytes(&new, width)],
    }
}

/// The delta, for which every instruction set writes the same bytes.
fn compressed(new: &[u8], old: &[u8], compressors: &mut [(Isa, Compressor)]) -> Vec<u8> {
    let base = [Base::new(old).expect("memory can be read")];
    let mut first: Option<Vec<u8>> = None;
    for (isa, compressor) in compressors {
        let mut file = Vec::new();
        compressor.compress(new, &base, &mut file).expect("anything can be compressed");
        let first = first.get_or_insert_with(|| file.clone());
        assert!(*first == file, "{} writes other bytes", isa.name());
    }
    first.expect("there is a portable instruction set")
}

fn compressors(dtype: Dtype, level: Level) -> Vec<(Isa, Compressor)> {
    let o = CompressOptions::default().with_dtype(dtype).with_level(level).with_threads(1);
    let make = |&isa: &Isa| (isa, Compressor::new(&o.with_isa(isa)).expect("the options are valid"));
    isas().iter().map(make).collect()
}

#[test]
fn lengths_around_a_run() {
    for (seed, &dtype) in Dtype::ALL.iter().enumerate() {
        let mut compressors = compressors(dtype, Level::ALL[seed % 3]);
        for n in [0, 1, 63, 64, 65, 127, 128, 129, 1000] {
            for kind in KINDS {
                for relation in RELATIONS {
                    let [old, new] = pair(kind, relation, dtype.coding_width(), n, seed as u64);
                    let file = compressed(&new, &old, &mut compressors);
                    let named = file[12] & 1 == 1;
                    let bases: &[&[u8]] = if named { &[&old] } else { &[] };
                    let decoded = agree_with_bases(&file, bases);
                    assert!(decoded.is_ok_and(|d| d == new), "{dtype}, {n} elements, {kind:?}, {relation:?}");
                }
            }
        }
    }
}

#[test]
fn lengths_around_a_block() {
    for (seed, dtype) in [Dtype::Bf16, Dtype::F32, Dtype::F64, Dtype::I8].into_iter().enumerate() {
        let mut compressors = compressors(dtype, Level::Default);
        let width = dtype.coding_width();
        // The last block takes a quarter more, before there is another one.
        for (n, kind, relation) in [
            ((1 << 20) / width - 1, Kind::Special, Relation::MovedFromSpecial),
            ((1 << 20) / width, Kind::OneOutlier, Relation::Moved),
            ((1 << 20) / width + 1, Kind::Periodic, Relation::Moved),
            ((5 << 18) / width, Kind::Constant, Relation::Shorter),
            ((5 << 18) / width + 1, Kind::OneOutlier, Relation::MovedFromSpecial),
        ] {
            let [old, new] = pair(kind, relation, width, n, seed as u64);
            let file = compressed(&new, &old, &mut compressors);
            let base = [Base::new(&old[..]).expect("memory can be read")];
            for &isa in isas() {
                let o = DecompressOptions::default().with_isa(isa).with_threads(1);
                let decoded = restore(&file, &base, &o);
                assert!(decoded.is_ok_and(|d| d == new), "{dtype}, {n} elements, {kind:?}, {relation:?}");
            }
        }
    }
}
