//! Operands for derived tensors (§3.10): kinds 9 to 12.

use super::containers::feature;
use super::optimizer::{exact, file_of, raw_bits, with_exact_features, with_residuals};
use super::{Feature, redigested};
use crate::handmade::{LEAF, encoded, records, stored};
use crate::input::Random;
use crate::reference::write::File;
use crate::reference::write::block::{
    Block, Cluster, Column, Derivation, Derived, Groups, Mask, Operand, Predicted, Range, RowTerms, Rows, Stream,
};
use crate::reference::write::entropy::Coder;
use std::iter::zip;

pub(super) fn all() -> Vec<Feature> {
    [casts(), scales(), fields(), contexts(), sources(), vec![in_single_precision()]].into_iter().flatten().collect()
}

// Codes of §4.
pub(super) const I8: u8 = 3;
pub(super) const F16: u8 = 8;
pub(super) const BF16: u8 = 9;
pub(super) const F32: u8 = 10;
pub(super) const E4M3: u8 = 13;
pub(super) const E5M2: u8 = 14;
pub(super) const E8M0: u8 = 17;
pub(super) const F4: u8 = 18;

/// What elements are derived from.
pub(super) const SOURCES: [(u8, &str); 3] = [(F16, "f16"), (BF16, "bf16"), (F32, "f32")];

/// log2 of the bytes of an element; F4 stand in bytes.
pub(super) fn width_code(dtype: u8) -> u8 {
    match dtype {
        F16 | BF16 => 1,
        F32 => 2,
        _ => 0,
    }
}

/// A column that equals the predictions, `n` elements of this width.
pub(super) fn column(derivation: Derivation, width_code: u8, n: usize, data: Vec<Vec<Range>>) -> Predicted {
    exact(n, width_code, Operand::Derived(Derived { derivation, data, scales: None }))
}

/// A range of a base.
pub(super) fn part(source: u64, base: &[u8], offset: usize, length: usize) -> Vec<Range> {
    vec![Range { source, offset: offset as u64, bytes: base[offset..offset + length].to_vec() }]
}

/// A file of one block of these columns, one after the other.
pub(super) fn of_columns(
    name: &'static str,
    shows: &'static str,
    columns: Vec<Predicted>,
    extents: Option<Vec<(u8, u64)>>,
    bases: &[&[u8]],
) -> Feature {
    let columns: Vec<Column> = columns.into_iter().map(Column::Predicted).collect();
    let states_repeats = extents.is_some();
    let one_by_one = || (0..).zip(&columns).map(|(column, of)| (column, of.raw().len() as u64)).collect();
    let extents = extents.unwrap_or_else(one_by_one);
    let block = Block { lane_sets: 0, columns, extents, states_repeats, final_state: 1 << 16 };
    let file = redigested(File::delta(bases, records(&[encoded(&block)])), bases);
    feature(name, "3.10", shows, with_exact_features(file), bases, &block.raw())
}

/// The element of a dtype that a number is rounded to.
fn element(dtype: u8, x: u32) -> Vec<u8> {
    Derived::rounded(dtype, x)[..1 << width_code(dtype)].to_vec()
}

pub(super) fn elements(dtype: u8, numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| element(dtype, x)).collect()
}

/// Zeros, subnormal numbers, the smallest normal one, the largest ones, infinities, NaNs, and the numbers where F16,
/// F8_E4M3, F8_E5M2 and I8 end, or nearly.
pub(super) const SPECIAL: [u32; 30] = [
    0,
    0x8000_0000,
    1,
    0x807f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xffc1_2345,
    0x477f_e000,
    0x477f_efff,
    0x477f_f000,
    0xc77f_f000,
    0x3300_0000,
    0x3300_0001,
    0xb380_0000,
    0x3380_1000,
    0x43e0_0000,
    0x43e7_ffff,
    0x43e8_0000,
    0xc3f0_0000,
    0x4760_0000,
    0xc770_0000,
    0x4780_0000,
    0x42fe_ffff,
    0x42ff_0000,
    0xc300_8000,
    0xc301_0000,
];

/// The special numbers; ties of every float of 8 and 4 bits, and their neighbours: numbers of five bits of both signs,
/// from those that are rounded to 0 to those that are too large; and numbers next to some of these.
fn numbers(from_exponent: u32, to_exponent: u32) -> Vec<u32> {
    let mut numbers = SPECIAL.to_vec();
    for exponent in from_exponent..to_exponent {
        for mantissa in 0..16 {
            numbers.push((exponent + mantissa) << 31 | exponent << 23 | mantissa << 19);
        }
        numbers.extend([exponent << 23 | 0x7_ffff, exponent << 23 | 0x4_0001, (256 + exponent) << 23 | 0x1f_f000]);
    }
    numbers
}

/// Every exponent of F16 of both signs, with few bits set and with many.
fn f16s() -> Vec<u8> {
    let mantissas = [0u16, 1, 0x3f, 0x40, 0x41, 0x80, 0xc0, 0x200, 0x3ff];
    (0..64u16).flat_map(|top| mantissas.map(|m| top << 10 | m)).flat_map(u16::to_le_bytes).collect()
}

fn casts() -> Vec<Feature> {
    let of = |name, shows, from, base: &[u8], to: &[u8]| {
        let n = base.len() >> width_code(from);
        let cast = |&to| column(Derivation::Cast { from, to }, width_code(to), n, vec![vec![Range::of_base(1, base)]]);
        of_columns(name, shows, to.iter().map(cast).collect(), None, &[base])
    };
    let wide = numbers(115, 146);
    let cut: Vec<u32> = wide.iter().map(|x| x & 0xffff_0000).collect();
    let of_bf16: Vec<u8> = cut.iter().flat_map(|x| ((x >> 16) as u16).to_le_bytes()).collect();
    // Also those that only F16 tells apart.
    let small: Vec<u8> =
        (96..115u16).flat_map(|exponent| [0, 1, 0x7f].map(|m| exponent << 7 | m)).flat_map(u16::to_le_bytes).collect();
    vec![
        of(
            "cast-f16",
            "kind 9 of F16 of every exponent to BF16, F32, F8_E4M3, F8_E5M2",
            F16,
            &f16s(),
            &[BF16, F32, E4M3, E5M2],
        ),
        of(
            "cast-bf16",
            "kind 9 of BF16, special ones, ties, and others, to F16, F8_E4M3, F8_E5M2",
            BF16,
            &[of_bf16, small].concat(),
            &[F16, E4M3, E5M2],
        ),
        of(
            "cast-f32",
            "kind 9 of F32, special ones, ties, and others, to F8_E4M3, F8_E5M2",
            F32,
            &wide.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(),
            &[E4M3, E5M2],
        ),
    ]
}

/// f: 1, 1/448, a negative one, zeros, a subnormal one, a large one.
const FACTORS: [u32; 7] = [0x3f80_0000, 0x3b12_4925, 0xbfc0_0000, 0, 0x8000_0000, 0x0000_4321, 0x7f7f_ffff];

/// The operation, the precision and the factor of each of nine columns.
pub(super) fn computations() -> impl Iterator<Item = (u8, u8, u32)> {
    let all = (0..3).flat_map(|operation| [F16, BF16, F32].map(|precision| (operation, precision)));
    // The others are the factors of more columns of 1.
    let factor = |i: usize| if i.is_multiple_of(2) { FACTORS[0] } else { FACTORS[1 + i / 2 % 6] };
    all.enumerate().map(move |(i, (operation, precision))| (operation, precision, factor(i)))
}

/// A matrix of weights of this many elements.
pub(super) fn weights(n: usize) -> Vec<u32> {
    let mut random = Random::new(n as u64);
    (0..n).map(|_| (0.04 * (random.below(2000) as f32 / 1000.0 - 1.0)).to_bits()).collect()
}

fn scales() -> Vec<Feature> {
    // Groups of four: zeros of both signs; subnormal; infinite; with a NaN; the largest ones; one that is negative; then
    // any, and powers of two.
    let mut random = Random::new(11);
    let mut x = vec![0, 0x8000_0000, 0x8000_0000, 0, 1, 0x8000_0003, 2, 0, 0xff80_0000, 0x7f7f_ffff, 0, 1];
    x.extend([0x7f80_0000, 0x7f80_0001, 0, 0x3f80_0000, 0xff7f_ffff, 0x7f00_0000, 0, 1]);
    x.extend([0x3f80_0000, 0xc000_0000, 0x3f00_0000, 0]);
    let sizes = [0x0080_0000, 0x3300_0000, 0x3c80_0000, 0x3f80_0000, 0x4300_0000, 0x43e8_0000, 0x477f_f000];
    for size in sizes {
        x.extend([size, 0x8000_0000 + size / 2, size - 0x0080_0000, 0]);
        x.extend([0, size + 0x0010_0000, 0x8000_0000 + size + 0x0038_0001, 1]);
    }
    x.resize_with(128, || (0x3b00_0000 + random.below(0x0580_0000) as u32) | random.u64() as u32 & 0x8000_0000);
    let base: Vec<u8> = SOURCES.iter().flat_map(|&(dtype, _)| elements(dtype, &x)).collect();
    let of = |name, to: u8, start: usize| {
        let derived = |(i, (operation, precision, f)): (usize, (u8, u8, u32))| {
            let (offset, from) = [(0, F16), (256, BF16), (512, F32)][(start + i) % 3];
            let k = [4, 4, 4, 1, 4, 128, 4, 16, 4][i];
            let data = vec![part(1, &base, offset, 128 << width_code(from))];
            let derivation = Derivation::Scales { from, to, operation, precision, f, k: k as u64 };
            column(derivation, width_code(to), 128 / k, data)
        };
        let shows = "each operation with each precision, of each dtype, of groups of 1 to 128 elements";
        of_columns(name, shows, computations().enumerate().map(derived).collect(), None, &[&base])
    };
    vec![
        of("scales-f16", F16, 0),
        of("scales-bf16", BF16, 1),
        of("scales-f32", F32, 2),
        of("scales-e4m3", E4M3, 0),
        of("scales-e8m0", E8M0, 1),
    ]
}

/// Blocks of 32 numbers: any; where zeros have signs; with an infinity, with a NaN; in which the largest magnitude is there
/// twice; with ties; subnormal ones; large ones.
fn blocks() -> Vec<u32> {
    let mut random = Random::new(12);
    let mut blocks: Vec<f32> = Vec::new();
    let mut any =
        |size: f32| -> Vec<f32> { (0..32).map(|_| size * (random.below(2001) as f32 / 1000.0 - 1.0)).collect() };
    let mut add = |special: &[f32], others: Vec<f32>| {
        blocks.extend(special);
        blocks.extend(&others[special.len()..]);
    };
    add(&[], any(0.04));
    add(&[], any(7.5));
    add(&[], vec![0.0; 32]);
    add(&[], vec![-0.0; 32]);
    add(&[0.0, -0.0, -0.0], vec![0.0; 32]);
    add(&[0.5, -0.0, 0.0], vec![0.75; 32]);
    add(&[-0.5, 0.0, -0.0, 0.0], vec![-0.75; 32]);
    add(&[f32::INFINITY], any(1.0));
    add(&[1.0, f32::NAN], any(1.0));
    add(&[1.0, -3.0, 3.0, -3.0], any(2.0));
    add(&[3.0, -3.0], any(2.0));
    // Where D is 1, or a half of it.
    add(&[127.0, 0.5, 1.5, -0.5, -1.5, 2.5, -126.5, 126.5, 0.499_999_97, -127.0], any(127.0));
    add(&[-8.0, 0.5, 1.5, -0.5, 6.5, 7.0, 7.5, -7.5, -7.6, 8.0, 0.0, -0.0], any(8.0));
    add(&[-16.0, 0.5, 1.5, -0.5, 14.5, 15.0, 15.5, -15.5, 16.0], any(16.0));
    add(&[-7.0, 8.0, 0.5, 1.5, -0.5, 7.5, -6.5], any(7.0));
    add(&[0.0, 31.0, 0.5, 1.5, 30.5, 30.499_999, 29.5], any(8.0).iter().map(|x| x.abs()).collect());
    // Ties of F4, and what is rounded to 6 or to 0.
    add(&[7.9, 0.25, -0.25, 0.75, 1.25, -1.75, 2.5, 3.5, -5.0, 5.000_001, -0.2, 4.999, 7.0, -0.0], any(7.9));
    add(&[-4.0, 0.25, 0.250_01, -0.75, 3.0], any(4.0));
    add(&[1e5, -7e4], any(6e4));
    add(&[-1e10], any(1e10));
    add(&[1e-7, -1e-8], any(6e-8));
    // Subnormal ones: D is subnormal, its inverse infinite; D is 0.
    add(&[1e-37, 0.0, -0.0], any(1e-37));
    add(&[1e-39, 0.0, -0.0, -1e-39], any(1e-39));
    add(&[1e-45, 0.0, -0.0, -1e-45, 3e-45], any(1e-44));
    add(&[f32::MAX, -f32::MAX, 0.0, 1.0], any(1e38));
    add(&[3e38, 1.0], any(2e38));
    blocks.into_iter().map(f32::to_bits).collect()
}

fn fields() -> Vec<Feature> {
    let x = blocks();
    let block_count = x.len() / 32;
    let base: Vec<u8> = SOURCES.iter().flat_map(|&(dtype, _)| elements(dtype, &x)).collect();
    let of = |name, shows, blocks: u8, lengths: &[u64]| {
        let (mut columns, mut extents) = (Vec::new(), Vec::new());
        for (of_source, (offset, from)) in [(0, F16), (2 * x.len(), BF16), (4 * x.len(), F32)].into_iter().enumerate() {
            let first = columns.len() as u8;
            for (field, length) in (0..).zip(lengths) {
                // As bytes, as the integers that they are, and in elements of eight bytes where that goes.
                let length = *length as usize * block_count;
                let width_code = match of_source {
                    0 => 0,
                    1 => length.trailing_zeros().min(1) as u8,
                    _ => length.trailing_zeros().min(3) as u8,
                };
                let data = vec![part(1, &base, offset, x.len() << self::width_code(from))];
                columns.push(column(Derivation::Field { from, blocks, field }, width_code, length >> width_code, data));
            }
            for _ in 0..block_count {
                extents.extend(zip(first.., lengths.iter().copied()));
            }
        }
        of_columns(name, shows, columns, Some(extents), &[&base])
    };
    vec![
        of("field-q4-0", "kind 12, the fields of Q4_0, of each dtype, alternate", 2, &[2, 16]),
        of("field-q4-1", "kind 12, the fields of Q4_1, of each dtype, alternate", 3, &[2, 2, 16]),
        of("field-q5-0", "kind 12, the fields of Q5_0, of each dtype, alternate", 6, &[2, 4, 16]),
        of("field-q5-1", "kind 12, the fields of Q5_1, of each dtype, alternate", 7, &[2, 2, 4, 16]),
        of("field-q8-0", "kind 12, the fields of Q8_0, of each dtype, alternate", 8, &[2, 32]),
        of("field-mxfp4", "kind 12, the fields of MXFP4, of each dtype, alternate", 39, &[1, 16]),
    ]
}

/// Zeros with a residual here and there.
pub(super) fn few(i: usize) -> u64 {
    if i % 9 == 4 { 1 + i as u64 % 3 } else { 0 }
}

/// Residuals, contexts and row terms.
fn contexts() -> Vec<Feature> {
    let weights = weights(96);
    let base = elements(F32, &weights);
    let all = || vec![Range::of_base(1, &base)];
    let cast = |to| column(Derivation::Cast { from: F32, to }, width_code(to), 96, vec![all()]);
    let listed = Stream { mask: Mask::List, ..Stream::default() };
    let symbols = Stream::of(0, Cluster { h: 6, coder: Coder::huffman(&[0, 0, 1, 2, 3], true), ..Cluster::default() });
    let in_contexts = |streams: Vec<Stream>| Predicted { boundaries: vec![0x40, 0x60], streams, ..cast(E4M3) };
    let row_terms = Predicted {
        row_terms: Some(RowTerms::of_rows(Rows { row: 10, position: 3 }, (0..10).collect())),
        ..in_contexts(vec![raw_bits(0), listed.clone(), raw_bits(0)])
    };
    let (k, f) = (8, 0x43e0_0000);
    let of_scales = Derivation::Scales { from: F32, to: F32, operation: 0, precision: F32, f, k };
    let of_scales = Predicted { streams: vec![listed.clone()], ..column(of_scales, 2, 12, vec![all()]) };
    let of_field = Derivation::Field { from: F32, blocks: 8, field: 1 };
    let of_field = Predicted { streams: vec![listed], ..column(of_field, 0, 96, vec![all()]) };
    let of = |name, shows, column| file_of(name, "3.10", shows, with_residuals(column, few), &[&base]);
    vec![
        of("derived-contexts", "kind 9, three contexts, with symbols", in_contexts(vec![symbols; 3])),
        of("derived-row-terms", "kind 9, three contexts that depend on rows", row_terms),
        of("derived-listed", "kind 11, few residuals that are not 0", of_scales),
        of("derived-field-listed", "kind 12, few residuals that are not 0", of_field),
    ]
}

/// Ranges that end within elements, of this file and of bases.
fn sources() -> Vec<Feature> {
    let weights = weights(64);
    let x = elements(F32, &weights);
    let (first, second) = x.split_at(151);
    let scales: Vec<u8> = (0..8u32).flat_map(|i| element(BF16, 0x3a00_0000 + 0x0012_3456 * i)).collect();
    let range = |source, offset: usize, bytes: &[u8]| Range { source, offset: offset as u64, bytes: bytes.to_vec() };
    let own = |offset: usize, length: usize| range(0, offset, &first[offset..offset + length]);
    let of_x = || vec![own(0, 3), own(3, 70), own(73, 78), range(1, 0, &second[..50]), range(1, 50, &second[50..])];
    let of_scales = vec![range(2, 0, &scales[..5]), range(2, 5, &scales[5..])];
    let groups = Groups { row: 16, rows: 2, columns: 4, position: 0 };
    let codes =
        Derivation::Codes { from: F32, to: E4M3, operation: 1, precision: BF16, scales: BF16, f: 0x3f80_0000, groups };
    let to_scales = Derivation::Scales { from: F32, to: BF16, operation: 0, precision: F32, f: 0x43e0_0000, k: 32 };
    let columns = vec![
        column(codes, 0, 64, vec![of_x(), of_scales]),
        column(to_scales, 1, 2, vec![of_x()]),
        column(Derivation::Cast { from: F32, to: E5M2 }, 0, 64, vec![of_x()]),
        column(Derivation::Field { from: F32, blocks: 39, field: 1 }, 1, 16, vec![of_x()]),
    ];
    let columns: Vec<Column> = columns.into_iter().map(Column::Predicted).collect();
    let extents = (0..).zip(&columns).map(|(column, of)| (column, of.raw().len() as u64)).collect();
    let block = Block { lane_sets: 0, columns, extents, states_repeats: false, final_state: 1 << 16 };
    let bases: [&[u8]; 2] = [second, &scales];
    let file = redigested(File::delta(&bases, records(&[stored(first), encoded(&block)])), &bases);
    let zeros = vec![0; LEAF as usize - first.len()];
    vec![feature(
        "derived-of-this-file",
        "3.10",
        "kinds 9 to 12 of ranges of this file and of a base, which end within elements; scales of another base",
        with_exact_features(file),
        &bases,
        &[first, &zeros, &block.raw()].concat(),
    )]
}

/// Numbers near these; where there is one, such that both results are different.
fn apart(middles: &[f32], results: impl Fn(usize, f32) -> [f64; 2]) -> Vec<f32> {
    let differ = |i, x: f32| {
        let [single, double] = results(i, x);
        single != double
    };
    let near = |(i, middle): (usize, &f32)| {
        let mut near = (0..80).map(|ulps| f32::from_bits(middle.to_bits() - 40 + ulps));
        near.find(|&x| differ(i, x)).unwrap_or(*middle)
    };
    let numbers: Vec<f32> = middles.iter().enumerate().map(near).collect();
    let differing = numbers.iter().enumerate().filter(|&(i, x)| differ(i, *x)).count();
    assert!(4 * differing >= numbers.len(), "of {} numbers only {differing} show it", numbers.len());
    numbers
}

/// The BF16 that is nearest to a positive number, as its value.
fn bf16(y: f64) -> f64 {
    let bits = y.to_bits();
    f64::from_bits((bits + (1 << 44) - 1 + (bits >> 45 & 1)) >> 45 << 45)
}

/// Operands whose results are others if any operation is not rounded to binary32.
fn in_single_precision() -> Feature {
    let mut random = Random::new(13);
    let mut any = |n: usize| -> Vec<f32> { (0..n).map(|_| 1.0 + random.below(1 << 23) as f32 / 8_388_608.0).collect() };
    let f = 0.1f32;
    let (mut base, mut columns) = (Vec::<u8>::new(), Vec::<Predicted>::new());
    let mut add = |derivation: fn(u8) -> Derivation, case: u8, width_code: u8, n: usize, data: Vec<Vec<f32>>| {
        let mut ranges = Vec::new();
        for numbers in data {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            ranges.push(vec![Range { source: 1, offset: base.len() as u64, bytes: bytes.clone() }]);
            base.extend(bytes);
        }
        columns.push(column(derivation(case), width_code, n, ranges));
    };
    // Codes: halves of integers; in every other one, only the last operation is of binary64.
    for operation in 0..3 {
        let z = any(16);
        let wide = |i: usize| if i.is_multiple_of(2) { f64::from(f) * f64::from(z[i]) } else { f64::from(f * z[i]) };
        let halves: Vec<f32> =
            (0..16).map(|i| (i as f32 - 7.5) * if operation < 2 { f * z[i] } else { 1.0 / (f * z[i]) }).collect();
        let x = apart(&halves, |i, x| {
            let (single, double) = match operation {
                0 => (x / (f * z[i]), f64::from(x) / wide(i)),
                1 => (x * (1.0 / (f * z[i])), f64::from(x) * (1.0 / wide(i))),
                _ => (x * (f * z[i]), f64::from(x) * wide(i)),
            };
            [f64::from(single).round_ties_even(), double.round_ties_even()]
        });
        let groups = |operation| Derivation::Codes {
            from: F32,
            to: I8,
            operation,
            precision: F32,
            scales: F32,
            f: 0.1f32.to_bits(),
            groups: Groups { row: 16, rows: 1, columns: 1, position: 0 },
        };
        add(groups, operation, 0, 16, vec![x, z]);
    }
    // Scales, each of one element: in BF16 between two of these, and in F32.
    for operation in 0..2 {
        let middles: Vec<f32> = (0..16).map(|i| f32::from_bits(0x3f80_8000 + (i << 19))).collect();
        let middles: Vec<f32> = middles.iter().map(|m| if operation == 0 { m * f } else { m / f }).collect();
        let a = apart(&middles, |_, a| {
            let single = if operation == 0 { a / f } else { a * f };
            let double = if operation == 0 { f64::from(a) / f64::from(f) } else { f64::from(a) * f64::from(f) };
            [bf16(single.into()), bf16(double)]
        });
        let of = |operation| Derivation::Scales {
            from: F32,
            to: BF16,
            operation,
            precision: F32,
            f: 0.1f32.to_bits(),
            k: 1,
        };
        add(of, operation, 1, 16, vec![a]);
    }
    let a = apart(&any(16), |_, a| [f64::from(1.0 / (f / a)), f64::from((1.0 / (f64::from(f) / f64::from(a))) as f32)]);
    let of =
        |operation| Derivation::Scales { from: F32, to: F32, operation, precision: F32, f: 0.1f32.to_bits(), k: 1 };
    add(of, 2, 2, 16, vec![a]);
    // Fields: the integers of Q8_0, Q4_0 and Q4_1, whose largest element is the first.
    let of = |blocks| Derivation::Field { from: F32, blocks, field: if blocks == 3 { 2 } else { 1 } };
    let first = 3.7f32;
    let d = first / 127.0;
    let mut x = apart(&(1..32).map(|j| (j as f32 * 3.0 + 0.5) * d).collect::<Vec<_>>(), |_, x| {
        [f64::from((x * (1.0 / d)).round()), (f64::from(x) * (1.0 / (f64::from(first) / 127.0))).round()]
    });
    x.insert(0, first);
    add(of, 8, 0, 32, vec![x]);
    let d = first / -8.0;
    let mut x = apart(&(1..32).map(|j| ((j % 13) as f32 - 6.5) * d).collect::<Vec<_>>(), |_, x| {
        let wide = f64::from(x) * (1.0 / (f64::from(first) / -8.0)) + 8.5;
        [f64::from((x * (1.0 / d) + 8.5).trunc()), wide.trunc()]
    });
    x.insert(0, first);
    add(of, 2, 0, 16, vec![x]);
    let (least, greatest) = (0.3f32, first);
    let d = (greatest - least) / 15.0;
    let mut x = apart(&(0..30).map(|j| least + ((j % 14) as f32 + 0.5) * d).collect::<Vec<_>>(), |_, x| {
        let wide = (f64::from(greatest) - f64::from(least)) / 15.0;
        let wide = (f64::from(x) - f64::from(least)) * (1.0 / wide) + 0.5;
        [f64::from(((x - least) * (1.0 / d) + 0.5).trunc()), wide.trunc()]
    });
    x.extend([least, greatest]);
    add(of, 3, 0, 16, vec![x]);
    of_columns(
        "derived-single-precision",
        "kinds 10 to 12: results that differ if operations are of binary64",
        columns,
        None,
        &[&base],
    )
}
