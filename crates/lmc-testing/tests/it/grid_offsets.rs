//! Grids with offsets (§3.8): sums of any numbers, and where the offset of each element is.
//! The reference decoder is tested separately, so that it may judge the others.

use crate::support::Known;
use lmc_testing::handmade::records;
use lmc_testing::input::{Input, Random};
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
        operand: Operand::Grid(grid),
        row_terms: None,
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

/// The grid of a column that has one.
fn grid_of(column: &Column) -> Option<&Grid> {
    match column {
        Column::Predicted(Predicted { operand: Operand::Grid(grid), .. }) => Some(grid),
        _ => None,
    }
}

#[test]
fn random_files_have_offsets_of_all_kinds() {
    let mut random = Random::new(5);
    let mut blocks = Vec::new();
    for _ in 0..4000 {
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
