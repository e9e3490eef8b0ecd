//! Grids with offsets (§3.8): known sums, sums of any numbers, where the offset of each element is, and the streams that break a rule.
//! The reference decoder is tested separately, so that it may judge the others.

use crate::support::Known;
use lmc_testing::decoders::agree;
use lmc_testing::handmade::{judged, records, refused};
use lmc_testing::input::{Input, Random};
use lmc_testing::one_grid::{INDICES, LEVELS, OF_GROUPS, REST, SCALES, START, column_with_offsets, with_head};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{Block, Cluster, Column, Grid, Groups, Operand, Predicted, Stream};
use lmc_testing::{blocks, deltas};

/// The expected predictions of a grid: if they are right, all residuals of the file are 0.
fn known(grid: Grid, predictions: &[u64]) -> Known {
    let width_code = if grid.conversion == 0 { 2 } else { 1 };
    let raw: Vec<u8> = predictions.iter().flat_map(|u| u.to_le_bytes()[..1 << width_code].to_vec()).collect();
    let column = Predicted {
        raw: raw.clone(),
        width_code,
        predictor: 1,
        operands: vec![Operand::Grid(grid)],
        boundaries: Vec::new(),
        streams: vec![Stream::of(0, Cluster { z: 8 << width_code, ..Cluster::default() })],
    };
    let fields = Block::of(Column::Predicted(column), 0).encode().expect("the grid predicts these elements");
    Known { file: File::new(records(&[fields])).to_bytes(), raw }
}

/// Each with a group of one element: scale, level, offset, prediction.
fn sums(conversion: u8, of: &[(u32, u32, u32, u64)]) -> Known {
    let mut levels: Vec<u32> = of.iter().map(|of| of.1).collect();
    levels.sort_unstable();
    levels.dedup();
    let indices = of.iter().map(|of| levels.binary_search(&of.1).expect("it is one of them") as u8).collect();
    let groups = Groups { row: 1, rows: 1, columns: 1, position: 0 };
    let grid = Grid::of(conversion, levels, groups, of.iter().map(|of| of.0).collect(), indices);
    let grid = Grid { offsets: Some(of.iter().map(|of| of.2).collect()), ..grid };
    known(grid, &of.iter().map(|of| of.3).collect::<Vec<_>>())
}

/// Of every kind of sum.
fn known_sums() -> [Known; 3] {
    let (zero, one, half, two) = (0x8000_0000, 0x3f80_0000, 0x3f00_0000, 0x4000_0000);
    #[rustfmt::skip]
    let f32 = sums(0, &[
        (0x4040_0000, two, 0xc0a0_0000, 0x3f80_0000), // 3 · 2 − 5
        (0, one, 0, 0),
        (0, one, zero, 0),                            // 0 + −0
        (0, zero, 0, 0),                              // −0 + 0
        (0, zero, zero, 0x8000_0000),                 // −0 + −0
        (one, one, 0xbf80_0000, 0),                   // 1 − 1
        (one, 0xbf80_0000, one, 0),                   // −1 + 1
        (one, one, zero, 0x3f80_0000),
        (1, half, zero, 0),                           // a product that is rounded to 0
        (1, 0xbf00_0000, zero, 0x8000_0000),          // to −0
        (1, 0xbf00_0000, 0, 0),
        (1, one, 0x8000_0003, 0x8000_0002),           // subnormal numbers
        (0x007f_ffff, one, 1, 0x0080_0000),           // to the smallest normal one
        (0x0080_0000, one, 0x8000_0001, 0x007f_ffff), // and back
        (0x0100_0001, one, 0x8100_0000, 2),           // normal numbers whose sum is subnormal
        (0x0080_0001, 0xbf80_0000, 0x0080_0000, 0x8000_0001),
        (one, one, 0x3380_0000, 0x3f80_0000),         // 1 + 2^−24, a tie, to even
        (0x3f80_0001, one, 0x3380_0000, 0x3f80_0002), // a tie, to even
        (one, one, 0x3380_0001, 0x3f80_0001),         // a bit more
        (one, one, 0xb300_0000, 0x3f80_0000),         // 1 − 2^−25, a tie, to even
        (one, one, 0xb300_0001, 0x3f7f_ffff),
        (one, one, 0x8000_0001, 0x3f80_0000),         // 1 − 2^−149
        (1, one, 0x7f00_0000, 0x7f00_0000),
        (0x7f7f_ffff, one, 0x7280_0000, 0x7f7f_ffff), // the largest and 2^102
        (0x7f7f_ffff, one, 0x7300_0000, 0x7f80_0000), // and 2^103, a tie, to infinity
        (0x7f7f_ffff, one, 0x72ff_ffff, 0x7f7f_ffff), // and a bit less
        (0x7f7f_ffff, 0xbf80_0000, 0xff7f_ffff, 0xff80_0000),
        (0x7f7f_ffff, two, 0xff7f_ffff, 0x7f80_0000), // an infinite product
        (0x7f7f_ffff, 0xc000_0000, 0x7f7f_ffff, 0xff80_0000),
        (0x3f80_0001, 0x3f80_0001, 0xbf80_0002, 0),   // 2^−46 is lost before the sum
        (0x3f80_0001, 0x3f80_0002, 0xbf80_0003, 0),
        (0x3f80_0001, 0x3fc0_0000, 0xbfc0_0000, 0x3480_0000), // 1.5 · 2^−23, rounded up to 2 · 2^−23
    ]);
    #[rustfmt::skip]
    let bf16 = sums(1, &[
        (one, one, one, 0x4000),
        (one, one, 0x3b80_0000, 0x3f80),              // 1 + 2^−8, a tie, to even
        (one, one, 0x3b80_0002, 0x3f80),              // and 2^−30, which binary32 loses
        (one, one, 0x3b80_0080, 0x3f80),              // and 2^−24, a tie in binary32
        (one, one, 0x3b80_0081, 0x3f81),
        (0x3f81_0000, one, 0x3b7f_fffe, 0x3f82),      // below a tie, rounded to it, then up
        (0x7f7f_ffff, one, 0, 0x7f80),                // the largest becomes infinite by the conversion
        (0x7f7f_ffff, one, 0xfb80_0000, 0x7f7f),
        (0x7f00_0000, one, 0x7f00_0000, 0x7f80),
        (0, zero, zero, 0x8000),
        (0, zero, 0, 0),
        (0x0000_8000, one, 0, 0),
        (0x0000_8000, one, 1, 1),
    ]);
    #[rustfmt::skip]
    let f16 = sums(3, &[
        (one, one, one, 0x4000),
        (one, one, 0x3a00_0002, 0x3c00),              // 1 + 2^−11 + 2^−33
        (0x3f80_2000, one, 0x39ff_fffe, 0x3c02),      // below a tie, rounded to it, then up
        (0x477f_e000, one, 0x417f_0000, 0x7bff),      // 65504 + 15.9375
        (0x477f_e000, one, 0x4180_0000, 0x7c00),      // 65504 + 16
        (0x477f_e000, 0xbf80_0000, 0xc180_0000, 0xfc00),
        (0x3380_0000, one, 0x3300_0000, 2),           // 1.5 · 2^−24, a tie
        (0x3380_0000, one, 0xb300_0000, 0),           // 0.5 · 2^−24, a tie
        (0x3880_0000, one, 0xb380_0000, 0x03ff),      // 2^−14 − 2^−24
        (0x7f7f_ffff, two, 0xff7f_ffff, 0x7c00),
        (1, one, 1, 0),
    ]);
    [f32, bf16, f16]
}

#[test]
fn the_reference_knows_sums() {
    known_sums().iter().for_each(Known::check_reference);
}

#[test]
fn products_and_sums_are_each_rounded_then_converted() {
    known_sums().iter().for_each(Known::check);
}

/// Sums of any numbers, as the processor computes them: scales and levels of all exponents, and offsets near the products.
fn any_sums() -> Known {
    let mut random = Random::new(3);
    let finite = |bits: u32| if f32::from_bits(bits).is_finite() { bits } else { bits & 0xbfff_ffff };
    let mut levels: Vec<u32> = (0..256).map(|_| finite(random.u64() as u32)).collect();
    levels.sort_unstable();
    levels.dedup();
    let mut of = Vec::new();
    let mut kinds = [0; 4];
    for i in 0..50_000 {
        let level = levels[random.below(levels.len() as u64) as usize];
        let any = random.u64();
        // Most products have exponents between those of subnormal and of infinite numbers.
        let exponent = (127 + 127 - (level >> 23 & 0xff) as i32 + [0, -127, 127, -100][i % 4] + (any >> 56) as i32 % 24
            - 12)
            .clamp(0, 254) as u32;
        let scale = exponent << 23 | any as u32 & 0x807f_ffff;
        let product = f32::from_bits(scale) * f32::from_bits(level);
        // Up to 31 binary digits apart.
        let shift = ((any >> 48) as u32 % 32) << 23;
        let near = (product.to_bits() & 0x7f80_0000).saturating_sub(shift) | (any >> 16) as u32 & 0x8000_0000;
        let offset = match any >> 46 & 3 {
            0 => near,
            1 => near | (random.u64() as u32 & 0x7f_ffff),
            2 => (product.to_bits() ^ 0x8000_0000).wrapping_add((any >> 40) as u32 % 9).wrapping_sub(4),
            _ => random.u64() as u32,
        };
        let offset = finite(offset);
        let sum = product + f32::from_bits(offset);
        for (kind, is_one) in
            [sum == 0.0, sum.is_subnormal(), sum.is_infinite(), sum.is_normal()].into_iter().enumerate()
        {
            kinds[kind] += u32::from(is_one);
        }
        of.push((scale, level, offset, sum.to_bits().into()));
    }
    assert!(kinds.iter().all(|&count| count > 1000), "zero, subnormal, infinite, normal: {kinds:?}");
    sums(0, &of)
}

#[test]
fn the_reference_adds_as_the_processor_does() {
    any_sums().check_reference();
}

#[test]
fn all_add_as_the_processor_does() {
    any_sums().check();
}

/// Offsets that differ from group to group; all scales are 1, and all levels 0.
fn shapes() -> Vec<Known> {
    let mut random = Random::new(4);
    let mut files = Vec::new();
    while files.len() < 100 {
        let (row, rows) = (1 + random.below(40), 1 + random.below(5));
        let (columns, position, n) = (1 + random.below(row), random.below(rows * row), 1 + random.below(400));
        let groups = Groups { row, rows, columns, position };
        let count = Grid::scale_count(&groups, n as usize) as usize;
        if count > n as usize {
            continue;
        }
        // Found by counting groups as they begin, row by row of the matrix.
        let (mut group, mut elements) = (0, Vec::new());
        for y in 0..(position + n).div_ceil(row) {
            for x in 0..row {
                group = if x > 0 { group + u64::from(x % columns == 0) } else { y / rows * row.div_ceil(columns) };
                if (position..position + n).contains(&(y * row + x)) {
                    elements.push(u64::from((group as f32 + 0.5).to_bits()));
                }
            }
        }
        let grid = Grid::of(0, vec![0], groups, vec![0x3f80_0000; count], vec![0; n as usize]);
        let offsets = (0..count).map(|group| (group as f32 + 0.5).to_bits()).collect();
        files.push(known(Grid { offsets: Some(offsets), ..grid }, &elements));
    }
    files
}

#[test]
fn the_reference_knows_groups_of_offsets() {
    shapes().iter().for_each(Known::check_reference);
}

#[test]
fn each_element_has_the_offset_of_its_group() {
    shapes().iter().for_each(Known::check);
}

/// The head of [`column_with_offsets`], with another stream of offsets.
fn head(offsets: &[u8]) -> Vec<u8> {
    [&START[..], &[1, 1], &LEVELS[2..], &OF_GROUPS, &SCALES, offsets, &INDICES, &REST].concat()
}

/// The bulk of [`column_with_offsets`]: byte planes of scales and of offsets, bits of the indices.
fn bulk(offsets: &[u32]) -> Vec<u8> {
    let planes = |numbers: &[u32]| -> Vec<u8> {
        (0..4).flat_map(|i| numbers.iter().map(move |number| number.to_le_bytes()[i])).collect()
    };
    [planes(&[0x3f80_0000, 0x4000_0000, 0x3e80_0000, 0x8000_0001]), planes(offsets), vec![0b10_0110]].concat()
}

const OFFSETS: [u32; 4] = [0xbf00_0000, 0x3f80_0000, 0x8000_0000, 0x3f80_0000];

#[test]
fn the_head_of_a_grid_with_offsets() {
    let fields = Block::of(Column::Predicted(column_with_offsets()), 0).encode().expect("the block can be coded");
    assert_eq!(fields.columns, [head(&SCALES)]);
    assert_eq!(fields.bulk, [bulk(&OFFSETS)]);
    assert_eq!(fields.needs, 4);
    // The products 2, −0.5, −0.5, 2, 2, −0.125 and the offsets 1, −0.5, −0.5, 1, 1, −0.
    let raw: Vec<u8> =
        [0x4040u16, 0xbf80, 0xbf80, 0x4040, 0x4040, 0xbe00].iter().flat_map(|u| u.to_le_bytes()).collect();
    assert_eq!(column_with_offsets().raw, raw);
    assert_eq!(agree(&File::new(records(&[fields])).to_bytes()), Ok(raw));
}

/// Asserts that all decoders refuse the column with this head and this bulk.
#[track_caller]
fn refused_head(head: &[u8], bulk: Vec<u8>, reason: &str) {
    let mut fields = with_head(head);
    fields.bulk = vec![bulk];
    refused(File { features: 4, ..File::new(records(&[fields])) }, &[], reason);
}

#[test]
fn offsets_are_none_or_one_for_each_scale() {
    let byte = |byte| [&START[..], &[1, byte], &head(&SCALES)[7..]].concat();
    for number in [2, 3, 128, 255] {
        refused_head(&byte(number), bulk(&OFFSETS), "the offsets of a grid are not 0 or 1");
    }
    refused_head(&byte(0), bulk(&OFFSETS), "");
    refused_head(&head(&[]), bulk(&[]), "");
    refused_head(&head(&SCALES), bulk(&OFFSETS[..3]), "too early");
    refused_head(&head(&SCALES), bulk(&[0; 5]), "too long");
    let whole = head(&SCALES);
    for end in 0..whole.len() {
        let mut fields = with_head(&whole[..end]);
        fields.bulk = vec![bulk(&OFFSETS)];
        assert!(judged(File { features: 4, ..File::new(records(&[fields])) }, &[]).is_err());
    }
}

#[test]
fn offsets_are_a_stream_of_finite_numbers() {
    for (number, offset) in [(0, 0x7f80_0000), (3, 0xff80_0000), (3, 0x7fc0_0000), (3, 0x7f80_0001), (1, 0xffff_ffff)] {
        let mut offsets = OFFSETS;
        offsets[number] = offset;
        refused_head(&head(&SCALES), bulk(&offsets), "an offset of a grid is not finite");
    }
    let palette = [3, 0, 0, 0, 0x80, 0x3f, 0, 1, 0, 0, 32, 0, 0, 0];
    refused_head(&head(&palette), bulk(&[]), "a palette");
    refused_head(&head(&[&[4], &SCALES[1..]].concat()), bulk(&OFFSETS), "unknown map");
    // Masks of four offsets, and of more than there are.
    let masked = |count: u8| head(&[0, 3, count, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    refused_head(&masked(5), bulk(&[]), "selects more elements than its stream has");
    let mut fields = with_head(&masked(4));
    fields.bulk = vec![bulk(&[])];
    // Offsets that are the smallest subnormal number do not change these products.
    let raw: Vec<u8> =
        [0x4000u16, 0xbf00, 0xbf00, 0x4000, 0x4000, 0xbe00].iter().flat_map(|u| u.to_le_bytes()).collect();
    assert_eq!(judged(File::new(records(&[fields])), &[]), Ok(raw));
}

/// The grid of a column that has one.
fn grid_of(column: &Column) -> Option<&Grid> {
    match column {
        Column::Predicted(Predicted { operands, .. }) => match &operands[..] {
            [Operand::Grid(grid)] => Some(grid),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn random_files_have_offsets_of_all_kinds() {
    let mut random = Random::new(5);
    let mut blocks = Vec::new();
    for _ in 0..3000 {
        blocks.push(blocks::block(&mut Input::new(&random.bytes(400))));
        blocks.extend(deltas::delta(&mut Input::new(&random.bytes(400))).blocks);
    }
    let of_grids: Vec<&Grid> = blocks.iter().flat_map(|block| &block.columns).filter_map(grid_of).collect();
    let with_offsets: Vec<&Grid> = of_grids.iter().copied().filter(|grid| grid.offsets.is_some()).collect();
    assert!(3 * with_offsets.len() > of_grids.len() && with_offsets.len() < of_grids.len());
    // Grids that have a zero of either sign, a subnormal offset, a sum of 0, a subnormal sum, an infinite one.
    let mut kinds = [0; 6];
    for grid in with_offsets {
        let (offsets, Groups { row, rows, columns, position }) =
            (grid.offsets.as_ref().expect("it has offsets"), grid.groups);
        let mut has = [false; 6];
        has[0] = offsets.contains(&0);
        has[1] = offsets.contains(&0x8000_0000);
        has[2] = offsets.iter().any(|&offset| f32::from_bits(offset).is_subnormal());
        for (element, &index) in (position..).zip(&grid.indices) {
            let group = (element / (rows * row) * row.div_ceil(columns) + element % row / columns) as usize;
            let number = |bits: u32| f32::from_bits(bits);
            let product = number(grid.scales[group]) * number(grid.levels[usize::from(index)]);
            let sum = product + number(offsets[group]);
            has[3] |= sum == 0.0 && product != 0.0;
            has[4] |= sum.is_subnormal();
            has[5] |= sum.is_infinite() && product.is_finite();
        }
        kinds.iter_mut().zip(has).for_each(|(kind, has)| *kind += u32::from(has));
    }
    assert!(kinds.iter().all(|&count| count >= 20), "{kinds:?} of {}", of_grids.len());
}
