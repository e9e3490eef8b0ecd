//! Operands for the states of optimizers (§3.9) and row terms (§3.7): what they predict, computed here in another way.
//! The reference decoder is tested separately, so that it may judge the others.

use lmc_testing::decoders::{LIMIT, agree_with_bases};
use lmc_testing::handmade::records;
use lmc_testing::input::Random;
use lmc_testing::reference::decode_with_bases;
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{
    Block, Cluster, Column, Operand, Predicted, Range, RowTerms, Rows, Stream, Terms,
};

/// A file with its bases, and the raw bytes that it must be restored to.
struct Known {
    file: Vec<u8>,
    bases: Vec<Vec<u8>>,
    raw: Vec<u8>,
}

impl Known {
    /// A file of a column, which has these raw bytes.
    fn of(column: Predicted, bases: Vec<Vec<u8>>) -> Self {
        let raw = column.raw.clone();
        let block = Block::of(Column::Predicted(column), 0).encode().expect("the elements have these residuals");
        let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
        let file = File::delta(&slices, records(&[block])).to_bytes();
        Self { file, bases, raw }
    }

    #[track_caller]
    fn check(&self, decode: impl Fn(&[u8], &[&[u8]]) -> Result<Vec<u8>, String>) {
        let bases: Vec<&[u8]> = self.bases.iter().map(|base| &base[..]).collect();
        let decoded = decode(&self.file, &bases);
        assert!(decoded.as_ref() == Ok(&self.raw), "{:?}", decoded.map(|_| "other bytes"));
    }

    #[track_caller]
    fn check_reference(&self) {
        self.check(|file, bases| decode_with_bases(file, bases, LIMIT));
    }

    #[track_caller]
    fn check_all(&self) {
        self.check(agree_with_bases);
    }
}

/// A column with these elements, in one context, whose residuals all are 0.
fn exact(elements: &[u32], width_code: u8, operand: Operand) -> Predicted {
    let raw = elements.iter().flat_map(|u| u.to_le_bytes()[..1 << width_code].to_vec()).collect();
    Predicted {
        raw,
        width_code,
        operand,
        row_terms: None,
        boundaries: Vec::new(),
        streams: vec![Stream::of(0, Cluster { z: 8 << width_code, ..Cluster::default() })],
    }
}

/// A number of any kind: zeros, subnormal and large numbers, infinities and NaNs, any, and many near 1.
fn any(random: &mut Random) -> f32 {
    let (kind, noise) = (random.below(12), random.u64() as u32);
    let sign = noise & 0x8000_0000;
    f32::from_bits(match kind {
        0 => sign,
        1 => sign | noise & 3,
        2 => sign | noise & 0x00ff_ffff,
        3 => sign | 0x7f00_0000 | noise & 0x00ff_ffff,
        4 => sign | 0x7f80_0000,
        5 => noise,
        6 => sign | 0x3f80_0000 | noise & 0x007f_0000,
        _ => sign | (0x3b80_0000 + (noise & 0x07ff_ffff)),
    })
}

fn finite(random: &mut Random) -> f32 {
    std::iter::repeat_with(|| any(random)).find(|x| x.is_finite()).expect("some are finite")
}

fn bits(x: f32) -> u32 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }
}

/// Columns of kinds 5, 6 and 7 that equal what the processor computes.
fn computed() -> Vec<Known> {
    let mut random = Random::new(39);
    let mut files = Vec::new();
    let n = 3000;
    for case in 0..60 {
        let mut constants: [f32; 4] = std::array::from_fn(|_| finite(&mut random));
        // With m0, it must not be 0.
        if constants[2].to_bits() == 0 {
            constants[2] = -0.0;
        }
        let data: [Vec<f32>; 4] = std::array::from_fn(|_| (0..n).map(|_| any(&mut random)).collect());
        let bases: Vec<Vec<u8>> = data.iter().map(|list| list.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        let ranges = |list: usize| vec![Range::of_base(list as u64 + 1, &bases[list])];
        let [a, s1, s0, e] = constants;
        let element = |i: usize| match case % 4 {
            0 => a * data[0][i],
            1 => {
                let [b, h, a, c] = constants;
                let g = (data[2][i] - b * data[1][i]) * h;
                (a * data[0][i]) + (c * g) * g
            }
            2 => (a * data[0][i]) + (s1 * data[1][i]) / (data[2][i].sqrt() + e),
            _ => (a * data[0][i]) + (s1 * data[1][i] + s0 * data[3][i]) / (data[2][i].sqrt() + e),
        };
        let (kind, lists, mut of_constants) = match case % 4 {
            0 => (5, vec![ranges(0)], vec![a]),
            1 => (6, (0..3).map(ranges).collect(), constants.to_vec()),
            2 => (7, vec![ranges(0), ranges(1), ranges(2), Vec::new()], constants.to_vec()),
            _ => (7, (0..4).map(ranges).collect(), constants.to_vec()),
        };
        if case % 4 == 2 {
            of_constants[2] = 0.0;
        }
        let constants = of_constants.into_iter().map(f32::to_bits).collect();
        let elements: Vec<u32> = (0..n).map(|i| bits(element(i))).collect();
        files.push(Known::of(exact(&elements, 2, Operand::Step { kind, constants, data: lists }), bases));
    }
    files
}

/// Columns of every BF16, scaled.
fn scaled_bf16() -> Vec<Known> {
    let base: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let of = |a: f32| {
        let element = |x: u16| {
            let product = bits(a * f32::from_bits(u32::from(x) << 16));
            product.wrapping_add(0x7fff + (product >> 16 & 1)) >> 16
        };
        let elements: Vec<u32> = (0..=u16::MAX).map(element).collect();
        let data = vec![vec![Range::of_base(1, &base)]];
        let operand = Operand::Step { kind: 5, constants: vec![a.to_bits()], data };
        Known::of(exact(&elements, 1, operand), vec![base.clone()])
    };
    [0.991_036, -1.0, 1e-40, f32::MAX, -0.0, 1.003_906_4].map(of).into()
}

/// The numbers of the row and of the column of each element, found by walking through the matrix.
fn places(rows: Rows, n: usize) -> Vec<(usize, usize)> {
    let mut next = (0, rows.position);
    let place = |_| {
        let (row, column) = next;
        next = if column + 1 == rows.row { (row + 1, 0) } else { (row, column + 1) };
        (row, column as usize)
    };
    (0..n).map(place).collect()
}

fn any_rows(random: &mut Random, n: usize) -> Rows {
    let row = [1 + random.below(9), 1 + random.below(2 * n as u64), n as u64, 1 << 20][random.below(4) as usize];
    let position = [0, random.below(row), row - 1][random.below(3) as usize];
    Rows { row, position }
}

/// Columns that equal the sums of terms.
fn sums_of_terms() -> Vec<Known> {
    let mut random = Random::new(8);
    let mut files = Vec::new();
    for _ in 0..200 {
        let n = 1 + random.below(60) as usize;
        let rows = any_rows(&mut random, n);
        let width_code = 1 + random.below(2) as u8;
        let shift = random.below(8 << width_code) as u8;
        let places = places(rows, n);
        let of_rows = random.bytes(places[n - 1].0 + 1);
        // Where rows are longer than the column, those of the elements.
        let is_whole = rows.row <= n as u64;
        let of_columns = random.bytes(if is_whole { rows.row as usize } else { n });
        let element = |(i, &(row, column)): (usize, &(usize, usize))| {
            let sum = u64::from(of_rows[row]) + u64::from(of_columns[if is_whole { column } else { i }]);
            (sum << shift) as u32
        };
        let elements: Vec<u32> = places.iter().enumerate().map(element).collect();
        let operand = Operand::Terms(Terms::of(shift, rows, of_rows.clone(), of_columns.clone()));
        files.push(Known::of(exact(&elements, width_code, operand), Vec::new()));
    }
    files
}

/// Columns in contexts that depend on rows: residuals tell the context and the place in it.
fn contexts_of_rows() -> Vec<Known> {
    let mut random = Random::new(9);
    let mut files = Vec::new();
    for _ in 0..200 {
        let n = 1 + random.below(60) as usize;
        let rows = any_rows(&mut random, n);
        let base = random.bytes(4 * n);
        let places = places(rows, n);
        let terms = random.bytes(places[n - 1].0 + 1);
        let mut boundaries: Vec<u8> = (0..=random.below(15)).map(|_| 1 + random.below(255) as u8).collect();
        boundaries.sort_unstable();
        boundaries.dedup();
        let mut counts = vec![0; boundaries.len() + 1];
        let element = |(i, bytes): (usize, &[u8])| {
            let p = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            // The exponent of the prediction, less the term of its row.
            let key = ((p >> 23) as u8).wrapping_sub(terms[places[i].0]);
            let context = boundaries.iter().take_while(|&&boundary| key >= boundary).count();
            counts[context] += 1;
            // The distance of floats: the bits of a negative one rise as it falls.
            let distance = 1000 * context as u32 + counts[context];
            if p >> 31 == 0 { p.wrapping_add(distance) } else { p.wrapping_sub(distance) }
        };
        let elements: Vec<u32> = base.chunks(4).enumerate().map(element).collect();
        // All bits of the residuals, which rise in every context from one that tells it.
        let streams = (0..counts.len()).map(|_| Stream::of(0, Cluster { k: 32, ..Cluster::default() })).collect();
        let column = Predicted {
            row_terms: Some(RowTerms::of_rows(rows, terms.clone())),
            boundaries,
            streams,
            ..exact(&elements, 2, Operand::of(vec![Range::of_base(1, &base)]))
        };
        let counted: Vec<u32> =
            column.context_counts().expect("the base has the elements").into_iter().map(|count| count as u32).collect();
        assert_eq!(counted, counts);
        let mut of_residuals = column.clone();
        let residual = |context: usize, i: u32| 2 * (1000 * context as u64 + u64::from(i));
        let residuals = counts.iter().enumerate();
        let residuals = residuals.map(|(context, &count)| (1..=count).map(|i| residual(context, i)).collect());
        of_residuals.set_residuals(residuals.collect()).expect("the base has the elements");
        assert_eq!(of_residuals.raw, column.raw);
        files.push(Known::of(column, vec![base]));
    }
    files
}

#[test]
fn the_reference_computes_as_the_processor_does() {
    computed().iter().chain(&scaled_bf16()).for_each(Known::check_reference);
}

#[test]
fn the_reference_knows_rows_and_columns() {
    sums_of_terms().iter().chain(&contexts_of_rows()).for_each(Known::check_reference);
}

#[test]
fn steps_of_optimizers_are_computed_as_the_page_says() {
    computed().iter().chain(&scaled_bf16()).for_each(Known::check_all);
}

#[test]
fn each_element_has_the_terms_of_its_row_and_column() {
    sums_of_terms().iter().chain(&contexts_of_rows()).for_each(Known::check_all);
}
