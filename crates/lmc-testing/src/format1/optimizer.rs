//! Operands that are computed from the states of optimizers (§3.9): kinds 5, 6 and 7.

use super::containers::feature;
use super::grids::bits_of;
use super::{Feature, redigested};
use crate::handmade::{LEAF, encoded, records, stored};
use crate::input::Random;
use crate::one_grid;
use crate::reference::write::File;
use crate::reference::write::block::{
    Block, Cluster, Column, Mask, Operand, Patch, Predicted, Range, RowTerms, Rows, Stream,
};
use crate::reference::write::entropy::Coder;

pub(super) fn all() -> Vec<Feature> {
    [scaled(), second_moments(), weights(), sources(), vec![special()]].into_iter().flatten().collect()
}

/// A file of this block, with the features that it needs.
pub(super) fn file_of(
    name: &'static str,
    section: &'static str,
    shows: &'static str,
    column: Predicted,
    bases: &[&[u8]],
) -> Feature {
    let is_coded = |stream: &Stream| stream.clusters.iter().any(|cluster| cluster.coder != Coder::None);
    let lane_sets = if column.streams.iter().any(is_coded) { 2 } else { 0 };
    let block = Block::of(Column::Predicted(column), lane_sets);
    let file = redigested(File::delta(bases, records(&[encoded(&block)])), bases);
    feature(name, section, shows, with_exact_features(file), bases, &block.raw())
}

pub(super) fn with_exact_features(file: File) -> File {
    File { features: file.index.exact_features, ..file }
}

/// A column of `n` elements that equal the predictions.
pub(super) fn exact(n: usize, width_code: u8, operand: Operand) -> Predicted {
    let column = Predicted {
        raw: vec![0; n << width_code],
        width_code,
        operand,
        row_terms: None,
        boundaries: Vec::new(),
        streams: vec![Stream::of(0, Cluster { z: 8 << width_code, ..Cluster::default() })],
    };
    with_residuals(column, |_| 0)
}

/// The column with the elements that have these residuals, numbered in each context.
pub(super) fn with_residuals(mut column: Predicted, residual: impl Fn(usize) -> u64) -> Predicted {
    let counts = column.context_counts().expect("the operand has the elements");
    let residuals = counts.into_iter().map(|count| (0..count).map(&residual).collect()).collect();
    column.set_residuals(residuals).expect("the operand has the elements");
    column
}

/// A step of the optimizer that computes predictions from these constants and data.
fn step(kind: u8, constants: &[u32], data: Vec<Vec<Range>>) -> Operand {
    Operand::Step { kind, constants: constants.to_vec(), data }
}

/// A part of the first base.
fn part(base: &[u8], offset: usize, length: usize) -> Vec<Range> {
    vec![Range { source: 1, offset: offset as u64, bytes: base[offset..offset + length].to_vec() }]
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// All bits of residuals as they are.
pub(super) fn raw_bits(width_code: u8) -> Stream {
    Stream::of(0, Cluster { k: 8 << width_code, ..Cluster::default() })
}

/// Elements of a state.
const N: usize = 12;

/// The states of an optimizer before and after a step: w0, m0, v0, m1, v1, of [`N`] elements each.
fn states() -> Vec<u8> {
    let mut random = Random::new(7);
    let mut uniform = || random.below(2000) as f32 / 1000.0 - 1.0;
    let w0: Vec<f32> = (0..N).map(|_| 0.05 * uniform()).collect();
    let m0: Vec<f32> = (0..N).map(|_| 1e-4 * uniform()).collect();
    let v0: Vec<f32> = (0..N).map(|i| 1e-8 * (i as f32 + 1.0) * uniform().abs()).collect();
    let gradients: Vec<f32> = (0..N).map(|_| 3e-4 * uniform()).collect();
    let m1: Vec<f32> = m0.iter().zip(&gradients).map(|(m, g)| 0.9 * m + 0.1 * g).collect();
    let v1: Vec<f32> = v0.iter().zip(&gradients).map(|(v, g)| 0.999 * v + 0.001 * g * g).collect();
    bytes_of(&[w0, m0, v0, m1, v1].concat())
}

// Where the states are in their base.
const W0: usize = 0;
const M0: usize = 4 * N;
const V0: usize = 8 * N;
const M1: usize = 12 * N;
const V1: usize = 16 * N;

fn of_states(kind: u8, constants: &[u32], offsets: &[usize]) -> Operand {
    let base = states();
    let mut data: Vec<Vec<Range>> = offsets.iter().map(|&offset| part(&base, offset, 4 * N)).collect();
    if kind == 7 {
        data.resize(4, Vec::new());
    }
    step(kind, constants, data)
}

/// b, h, a, c of β1 = 0.9, β2 = 0.999.
fn of_second_moment() -> Vec<u32> {
    bits_of(&[0.9, 10.0, 0.999, 0.001])
}

/// a, s1, s0, e of step 301.
fn of_weight(s0: f32) -> Vec<u32> {
    bits_of(&[0.999_97, -1.529_18e-4, s0, 5.098_9e-9])
}

/// Zeros with a residual here and there.
fn few(i: usize) -> u64 {
    if i % 5 == 2 { 1 + i as u64 } else { 0 }
}

fn listed() -> Stream {
    Stream { mask: Mask::List, ..Stream::default() }
}

fn scaled() -> Vec<Feature> {
    let base = states();
    let bf16: Vec<u8> = [0x3f80u16, 0xbf80, 0, 0x8000, 1, 0x0080, 0x4049, 0x7f7f, 0x7f80, 0xff80, 0x7f81, 0xffc0]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let of = |a: f32, offset| step(5, &bits_of(&[a]), vec![part(&base, offset, 4 * N)]);
    let of_bf16 = |a: f32| step(5, &bits_of(&[a]), vec![part(&bf16, 0, bf16.len())]);
    let others = bytes_of(&[1.5, -2.5, 3.5]);
    let pieces = [(1, 10, &base[10..13]), (2, 3, &others[3..8]), (2, 0, &others[..9]), (1, 10, &base[10..13])];
    let pieces = pieces.map(|(source, offset, bytes)| Range { source, offset, bytes: bytes.to_vec() });
    let in_pieces = exact(5, 2, step(5, &bits_of(&[0.5]), vec![pieces.into()]));
    let contexts =
        |streams: Vec<Stream>| Predicted { boundaries: vec![0x10, 0x77, 0x78], streams, ..exact(N, 2, of(-0.9, M0)) };
    let symbols = Stream::of(0, Cluster { h: 24, coder: Coder::fine_rans(&[0, 0, 3, 8], true), ..Cluster::default() });
    let patched = Stream { patches: vec![Patch { element: 1, x: 0x4000_0001 }], ..raw_bits(2) };
    vec![
        file_of("scaled-f32", "3.9", "kind 5 of F32; all residuals are 0", exact(N, 2, of(0.991_036, V0)), &[&base]),
        file_of(
            "scaled-bf16",
            "3.9",
            "kind 5 of BF16 of every kind: products are rounded to binary32, then to BF16",
            exact(N, 1, of_bf16(-1.003_906_4)),
            &[&bf16],
        ),
        file_of(
            "scaled-listed",
            "3.9",
            "kind 5, few residuals that are not 0",
            with_residuals(Predicted { streams: vec![listed()], ..exact(N, 2, of(0.999, V0)) }, few),
            &[&base],
        ),
        file_of(
            "scaled-ranges",
            "3.9",
            "kind 5, four ranges of two bases, which end within elements",
            with_residuals(Predicted { streams: vec![raw_bits(2)], ..in_pieces }, |i| 3 * i as u64),
            &[&base, &others],
        ),
        file_of(
            "scaled-contexts",
            "3.9",
            "kind 5 with a negative factor, four contexts, two of them empty",
            with_residuals(contexts(vec![raw_bits(2); 4]), few),
            &[&base],
        ),
        file_of(
            "scaled-coded",
            "3.9",
            "kind 5, streams of contexts, with symbols, and with a patch",
            with_residuals(contexts(vec![symbols.clone(), symbols.clone(), patched, symbols]), few),
            &[&base],
        ),
    ]
}

fn second_moments() -> Vec<Feature> {
    let base = states();
    let operand = || of_states(6, &of_second_moment(), &[V0, M0, M1]);
    let contexts = Predicted { boundaries: vec![0x60], streams: vec![raw_bits(2); 2], ..exact(N, 2, operand()) };
    vec![
        file_of("second-moment", "3.9", "kind 6; all residuals are 0", exact(N, 2, operand()), &[&base]),
        file_of("second-moment-contexts", "3.9", "kind 6, two contexts", with_residuals(contexts, few), &[&base]),
    ]
}

fn weights() -> Vec<Feature> {
    let base = states();
    let operand = || of_states(7, &of_weight(0.0), &[W0, M1, V1]);
    let terms = RowTerms::of_rows(Rows { row: 5, position: 3 }, vec![0, 2, 5]);
    let contexts = Predicted {
        boundaries: vec![0x72, 0x75],
        row_terms: Some(terms),
        streams: vec![listed(), raw_bits(2), listed()],
        ..exact(N, 2, operand())
    };
    // The sign of the sum of both products decides about that of the prediction.
    let zeros = bytes_of(&[-0.0, -0.0, -0.0, 0.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0]);
    let of_zeros = |s0: f32| {
        let mut data = vec![part(&zeros, 0, 12), part(&zeros, 4, 12), part(&zeros, 16, 12), part(&zeros, 24, 12)];
        if s0.to_bits() == 0 {
            data[3].clear();
        }
        exact(3, 2, step(7, &bits_of(&[1.0, 1.0, s0, 0.0]), data))
    };
    vec![
        file_of("weight", "3.9", "kind 7 without m0; all residuals are 0", exact(N, 2, operand()), &[&base]),
        file_of(
            "weight-averages-before",
            "3.9",
            "kind 7 with m0; all residuals are 0",
            exact(N, 2, of_states(7, &of_weight(3.1e-5), &[W0, M1, V1, M0])),
            &[&base],
        ),
        file_of(
            "weight-row-terms",
            "3.9",
            "kind 7 with row terms, three contexts, two of them masked",
            with_residuals(contexts, few),
            &[&base],
        ),
        file_of("weight-s0-0", "3.9", "s0 is 0: there is no m0, and u = −0 stays so", of_zeros(0.0), &[&zeros]),
        file_of(
            "weight-s0-negative-0",
            "3.9",
            "s0 is −0: there is an m0, and u = −0 + 0 is 0",
            of_zeros(-0.0),
            &[&zeros],
        ),
    ]
}

/// Ranges of the file itself and of a base; all features together.
fn sources() -> Vec<Feature> {
    let states = states();
    let (base, moments) = states.split_at(M1);
    let own = |from: usize, to: usize| Range { source: 0, offset: from as u64, bytes: moments[from..to].to_vec() };
    let m1 = vec![own(0, 7), own(7, 40), own(40, 4 * N)];
    let data = vec![part(base, W0, 4 * N), m1, vec![own(4 * N, 8 * N)], part(base, M0, 4 * N)];
    let weights = exact(N, 2, step(7, &of_weight(3.1e-5), data));
    let block = Block {
        lane_sets: 0,
        columns: vec![Column::Predicted(weights), Column::Predicted(one_grid::column())],
        extents: vec![(0, 5), (1, 12), (0, 43)],
        states_repeats: false,
        final_state: 1 << 16,
    };
    let file = redigested(File::delta(&[base], records(&[stored(moments), encoded(&block)])), &[base]);
    let zeros = vec![0; LEAF as usize - moments.len()];
    vec![feature(
        "weight-of-this-file",
        "3.9",
        "kind 7, w0 and m0 of a base, m1 in pieces and v1 of this file; a column beside it has a grid: all features",
        with_exact_features(file),
        &[base],
        &[moments, &zeros, &block.raw()].concat(),
    )]
}

/// Zeros, the smallest subnormal number, the largest, the smallest normal one, numbers near 1, the largest ones,
/// infinities, a signalling NaN and a quiet one, and a small number.
const SPECIAL: [u32; 14] = [
    0,
    0x8000_0000,
    1,
    0x807f_ffff,
    0x0080_0000,
    0x3f80_0000,
    0xbf80_0001,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xffc1_2345,
    0x2b8c_bccc,
];

/// Between 2^−8 and 2^8, of both signs.
fn medium(random: &mut Random) -> u32 {
    (0x3b80_0000 + random.below(0x0800_0000) as u32) | random.u64() as u32 & 0x8000_0000
}

/// Each special number with each, twice beside them any or special ones, and some that are neither large nor small, in
/// columns of every kind with several constants.
fn special() -> Feature {
    let mut random = Random::new(39);
    let any = |random: &mut Random| match random.below(4) {
        0 => SPECIAL[random.below(SPECIAL.len() as u64) as usize],
        1 => random.u64() as u32,
        _ => medium(random),
    };
    let pairs = || SPECIAL.into_iter().flat_map(|first| SPECIAL.map(|second| [first, second]));
    let mut lists: [Vec<u32>; 4] = [
        pairs().map(|[first, _]| first).collect(),
        pairs().map(|[_, second]| second).collect(),
        pairs().map(|_| any(&mut random)).collect(),
        pairs().map(|_| any(&mut random)).collect(),
    ];
    lists.iter_mut().for_each(|list| list.resize_with(256, || medium(&mut random)));
    let n = lists[0].len();
    let base: Vec<u8> = lists.concat().iter().flat_map(|x| x.to_le_bytes()).collect();
    let of = |kind: u8, constants: [u32; 4], order: [usize; 4]| {
        let lists = if kind == 6 { 3 } else { 4 };
        let mut data: Vec<Vec<Range>> = order[..lists].iter().map(|&list| part(&base, 4 * n * list, 4 * n)).collect();
        if kind == 7 && constants[2] == 0 {
            data[3].clear();
        }
        exact(n, 2, step(kind, &constants, data))
    };
    // The special numbers as the second ones of the first pairs, and as many others.
    let scaled = |width_code: u8, a: u32| {
        let (length, others) = (4 * SPECIAL.len(), 8 * n);
        let ranges = [part(&base, 4 * n, length), part(&base, others, length)].concat();
        exact((2 * length) >> width_code, width_code, step(5, &[a], vec![ranges]))
    };
    let of_second_moment: [u32; 4] = of_second_moment().try_into().expect("four constants");
    let of_weight = |s0| of_weight(s0).try_into().expect("four constants");
    let (largest, smallest, one) = (0x7f7f_ffff, 0x8000_0001, 0x3f80_0000);
    let columns = vec![
        scaled(2, 0x3f7f_be77),
        scaled(2, 0x8000_0000),
        scaled(2, 0x0040_0001),
        scaled(2, 0xff7f_ffff),
        scaled(1, 0x3f7f_be77),
        scaled(1, 0x807f_ffff),
        scaled(1, largest),
        of(6, of_second_moment, [0, 1, 2, 3]),
        of(6, [one, smallest, 0xbf00_0000, largest], [2, 0, 1, 3]),
        of(7, of_weight(0.0), [2, 0, 1, 3]),
        of(7, [0x8000_0000, 0xbf80_0000, 0, 0x8000_0000], [0, 2, 3, 1]),
        of(7, [0xbf80_0000, 0x3eaa_aaab, 0, smallest], [3, 2, 1, 0]),
        of(7, of_weight(3.1e-5), [2, 0, 3, 1]),
        of(7, [0x4000_0000, 0x3fc0_0000, 0xbf40_0000, 0x3dcc_cccd], [3, 1, 2, 0]),
    ];
    let columns: Vec<Column> = columns.into_iter().map(Column::Predicted).collect();
    let extents = (0..).zip(&columns).map(|(column, of)| (column, of.raw().len() as u64)).collect();
    let block = Block { lane_sets: 0, columns, extents, states_repeats: false, final_state: 1 << 16 };
    let file = redigested(File::delta(&[&base], records(&[encoded(&block)])), &[&base]);
    feature(
        "optimizer-special",
        "3.9",
        "kinds 5, 6 and 7 of zeros, subnormal and large numbers, infinities and NaNs, each with each, and of others",
        with_exact_features(file),
        &[&base],
        &block.raw(),
    )
}
