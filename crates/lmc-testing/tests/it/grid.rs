//! Grids (§3.8): the place of the scale of each element, and every conversion and coding. The reference
//! decoder is tested separately, so that it may judge the others.

use crate::support::Known;
use lmc_testing::decoders::agree;
use lmc_testing::handmade::records;
use lmc_testing::input::Random;
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{
    Block, BlockFields, Cluster, Column, Grid, Groups, Mask, Operand, Patch, Predicted, Stream,
};
use lmc_testing::reference::write::entropy::Coder;

fn file_of(fields: BlockFields) -> File {
    File::new(records(&[fields]))
}

fn to_bytes(elements: &[u64], width: usize) -> Vec<u8> {
    elements.iter().flat_map(|u| u.to_le_bytes()[..width].to_vec()).collect()
}

/// All bits of an element of `width` bytes as they are.
fn plain(width: usize) -> Stream {
    Stream::of(0, Cluster { k: 8 * width as u8, ..Cluster::default() })
}

/// A column with this grid and other contents: of `raw` only the length matters until residuals are set.
fn predicted(grid: Grid, boundaries: &[u8]) -> Predicted {
    let width_code = if grid.conversion == 0 { 2 } else { 1 };
    Predicted {
        raw: vec![0; grid.indices.len() << width_code],
        width_code,
        operand: Operand::Grid(grid),
        row_terms: None,
        boundaries: boundaries.to_vec(),
        streams: vec![plain(1 << width_code); boundaries.len() + 1],
    }
}

fn encoded(column: Predicted, lane_sets: u8) -> BlockFields {
    Block::of(Column::Predicted(column), lane_sets).encode().expect("the block can be coded")
}

/// Files of columns in which each group has a scale of its own, found by walking through the matrix.
fn shapes() -> Vec<Known> {
    let mut random = Random::new(1);
    let mut files = Vec::new();
    while files.len() < 300 {
        let row = 1 + random.below(40);
        let rows = 1 + random.below(5);
        let columns = 1 + random.below(row);
        let position = random.below(rows * row);
        let n = 1 + random.below(400);
        // Which group each element of the matrix is of, and which number this group's scale has.
        let last_row = (position + n).div_ceil(row).next_multiple_of(rows);
        let mut group_of = vec![u64::MAX; (last_row * row) as usize];
        let mut number = 0;
        for top in (0..last_row).step_by(rows as usize) {
            for left in (0..row).step_by(columns as usize) {
                for y in top..top + rows {
                    for x in left..row.min(left + columns) {
                        group_of[(y * row + x) as usize] = number;
                    }
                }
                number += 1;
            }
        }
        assert!(!group_of.contains(&u64::MAX), "every element is of a group");
        if number > n {
            continue;
        }
        let scales: Vec<u32> = (0..number).map(|number| (number as f32 + 1.0).to_bits()).collect();
        let groups = Groups { row, rows, columns, position };
        let grid = Grid::of(0, vec![0x3f80_0000], groups, scales, vec![0; n as usize]);
        let mut column = predicted(grid, &[]);
        let of_column = &group_of[position as usize..][..n as usize];
        let elements: Vec<u64> = of_column.iter().map(|&group| (group as f32 + 1.0).to_bits().into()).collect();
        column.raw = to_bytes(&elements, 4);
        column.streams = vec![Stream::of(0, Cluster { z: 32, ..Cluster::default() })];
        let raw = column.raw.clone();
        files.push(Known { file: file_of(encoded(column, 0)).to_bytes(), raw });
    }
    files
}

#[test]
fn the_reference_knows_groups() {
    shapes().iter().for_each(Known::check_reference);
}

#[test]
fn each_element_has_the_scale_of_its_group() {
    shapes().iter().for_each(Known::check);
}

#[test]
fn every_conversion_and_coding() {
    let mut random = Random::new(2);
    let mut cases = 0;
    for conversion in [0, 1, 3] {
        for boundaries in [vec![], vec![1, 2, 100, 128, 250, 255]] {
            for n in [1, 127, 128, 129, 1000] {
                for coding in 0..4 {
                    let grid = coded_grid(conversion, n, coding, &mut random);
                    let mut column = predicted(grid, &boundaries);
                    let width = column.raw.len() / n;
                    let top = Coder::rans(&[0, 0, 1], true);
                    let symbols = Cluster { k: 8 * width as u8 - 8, coder: top, ..Cluster::default() };
                    let stream = |context: usize| match context % 3 {
                        0 => plain(width),
                        1 => Stream::of(1, symbols.clone()),
                        _ => Stream { patches: vec![Patch { element: 0, x: 0x81 }], ..plain(width) },
                    };
                    column.streams = (0..7).map(stream).collect();
                    column.raw = random.bytes(column.raw.len());
                    let raw = column.raw.clone();
                    let file = file_of(encoded(column, 2)).to_bytes();
                    assert!(agree(&file) == Ok(raw));
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 3 * 2 * 5 * 4);
}

/// A grid of n elements in groups of two rows and three columns, whose streams are coded in one of four ways.
fn coded_grid(conversion: u8, n: usize, coding: usize, random: &mut Random) -> Grid {
    let row = if n < 10 { 1 } else { 10 };
    let groups = Groups { row, rows: 2, columns: 3.min(row), position: random.below(2 * row) };
    let count = Grid::scale_count(&groups, n) as usize;
    let finite = |random: &mut Random| random.u64() as u32 & 0xbfff_ffff;
    let mut levels: Vec<u32> = (0..8).map(|_| finite(random)).collect();
    levels.sort_unstable();
    levels.dedup();
    let mut scales: Vec<u32> = (0..count).map(|_| finite(random)).collect();
    let mut indices: Vec<u8> = (0..n).map(|_| random.below(levels.len() as u64) as u8).collect();
    let (mut scale_stream, mut index_stream) = (plain(4), plain(1));
    match coding {
        0 => (),
        1 => {
            let coder = |known: &[u8]| Coder::fine_rans(known, true);
            let top = scales.iter().map(|scale| (scale >> 23) as u8).collect::<Vec<_>>();
            scale_stream = Stream::of(1, Cluster { k: 24, coder: coder(&top), ..Cluster::default() });
            index_stream = Stream::of(0, Cluster { coder: coder(&indices), ..Cluster::default() });
        }
        2 => {
            scales.iter_mut().skip(1).step_by(2).for_each(|scale| *scale = 0);
            indices.iter_mut().enumerate().filter(|(i, _)| i % 5 != 0).for_each(|(_, index)| *index = 0);
            scale_stream = Stream { mask: Mask::List, ..Stream::default() };
            index_stream.mask = Mask::Bits(Cluster { k: 8, ..Cluster::default() });
            indices[0] = indices[0].max(1);
        }
        _ => {
            scale_stream.patches = vec![Patch { element: 0, x: 0x8000_0000 }];
            index_stream.patches = vec![Patch { element: n as u64 - 1, x: 1 << 7 }];
        }
    }
    Grid { scale_stream, index_stream, ..Grid::of(conversion, levels, groups, scales, indices) }
}
