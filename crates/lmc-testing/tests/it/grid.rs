//! Grids (§3.8): the writer's output for known scales and levels, byte by byte, the place of the scale of each element,
//! and the heads that break a rule. The reference decoder is tested separately, so that it may judge the others.

use crate::support::Known;
use lmc_testing::decoders::{LIMIT, agree};
use lmc_testing::handmade::{judged, records, refused};
use lmc_testing::input::Random;
use lmc_testing::one_grid::{INDICES, LEVELS, OF_GROUPS, REST, SCALES, START, column, fields, head, with_head};
use lmc_testing::reference;
use lmc_testing::reference::write::block::{
    Block, BlockFields, Cluster, Column, Grid, Groups, Mask, Operand, Patch, Predicted, Stream,
};
use lmc_testing::reference::write::entropy::Coder;
use lmc_testing::reference::write::{File, varint};

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
fn predicted(grid: Grid, predictor: u8, boundaries: &[u8]) -> Predicted {
    let width_code = if grid.conversion == 0 { 2 } else { 1 };
    Predicted {
        raw: vec![0; grid.indices.len() << width_code],
        width_code,
        predictor,
        operands: vec![Operand::Grid(grid)],
        boundaries: boundaries.to_vec(),
        streams: vec![plain(1 << width_code); boundaries.len() + 1],
    }
}

fn encoded(column: Predicted, lane_sets: u8) -> BlockFields {
    Block::of(Column::Predicted(column), lane_sets).encode().expect("the block can be coded")
}

/// The products of scales and levels, as bits, each with the prediction that it becomes: one element for each.
fn products(conversion: u8, known: &[(u32, u32, u64)]) -> Known {
    let mut levels: Vec<u32> = known.iter().map(|&(_, level, _)| level).collect();
    levels.sort_unstable();
    levels.dedup();
    let index = |level| levels.iter().position(|&of| of == level).expect("it is one of them") as u8;
    let indices = known.iter().map(|&(_, level, _)| index(level)).collect();
    let scales = known.iter().map(|&(scale, ..)| scale).collect();
    let groups = Groups { row: 1, rows: 1, columns: 1, position: 0 };
    let mut column = predicted(Grid::of(conversion, levels.clone(), groups, scales, indices), 1, &[]);
    let elements: Vec<u64> = known.iter().map(|known| known.2).collect();
    column.raw = to_bytes(&elements, 1 << column.width_code);
    // If these are the predictions, all residuals are 0.
    column.streams = vec![Stream::of(0, Cluster { z: 8 << column.width_code, ..Cluster::default() })];
    let raw = column.raw.clone();
    let fields = encoded(column, 0);
    Known { file: file_of(fields).to_bytes(), raw }
}

/// Of every kind of product.
fn known_products() -> [Known; 3] {
    let one = 0x3f80_0000;
    #[rustfmt::skip]
    let f32 = products(0, &[
        (one, one, 0x3f80_0000),
        (0x4040_0000, 0xc000_0000, 0xc0c0_0000), // 3 · −2
        (0, 0x8000_0000, 0x8000_0000),           // 0 · −0
        (0x8000_0000, 0x8000_0000, 0),           // −0 · −0
        (0x8000_0000, one, 0x8000_0000),
        (0x3f80_0001, 0x3f80_0001, 0x3f80_0002), // (1 + 2^−23)^2: 2^−46 is lost
        (0x3f80_0001, 0x3fc0_0000, 0x3fc0_0002), // 1.5 + 1.5 · 2^−23, a tie, to even
        (0x3f80_0003, 0x3fc0_0000, 0x3fc0_0004), // 1.5 + 4.5 · 2^−23, a tie, to even
        (1, one, 1),                             // the smallest
        (1, 0x3f00_0000, 0),                     // half of it, a tie, to even
        (1, 0x3f00_0001, 1),                     // a bit more
        (0x8000_0001, 0x3f00_0000, 0x8000_0000), // to −0
        (3, 0x3f00_0000, 2),                     // 1.5 of it, a tie, to even
        (5, 0xbf00_0000, 0x8000_0002),           // 2.5 of it, a tie, to even
        (0x007f_ffff, 0x4000_0000, 0x00ff_fffe), // the largest subnormal one twice
        (0x0080_0000, 0x3f00_0000, 0x0040_0000), // half of the smallest normal one
        (0x00ff_ffff, 0x3f00_0000, 0x0080_0000), // a tie that becomes normal
        (0x0001_0000, 0x7f00_0000, 0x3c80_0000), // a subnormal scale, a normal product: 2^−133 · 2^127
        (0x7f7f_ffff, one, 0x7f7f_ffff),
        (0x7f7f_ffff, 0x3f80_0001, 0x7f80_0000), // infinite
        (0x7f00_0000, 0xc000_0000, 0xff80_0000), // −2^128
        (0x7f7f_ffff, 0xff7f_ffff, 0xff80_0000),
        (1, 1, 0),                               // 2^−298
        (1, 0x8000_0001, 0x8000_0000),
    ]);
    #[rustfmt::skip]
    let bf16 = products(1, &[
        (one, one, 0x3f80),
        (0x3f80_8000, one, 0x3f80),              // a tie, to even
        (0x3f81_8000, 0xbf80_0000, 0xbf82),
        (0x3fe3_ca82, 0x3f86_047f, 0x3fee),      // above a tie, rounded to it, then down: 1.859375
        (0x3faf_978d, 0x3f94_5809, 0x3fcc),      // below a tie, rounded to it, then up: 1.59375
        (0x7f7f_ffff, one, 0x7f80),              // the largest becomes infinite by the conversion
        (0x7f7f_ffff, 0xc000_0000, 0xff80),      // by the product
        (1, one, 0),
        (0x0000_8001, one, 1),
        (0x8000_0000, one, 0x8000),
    ]);
    #[rustfmt::skip]
    let f16 = products(3, &[
        (one, one, 0x3c00),
        (0x3f9e_f2a4, 0x3fab_add2, 0x3eaa),      // below a tie, rounded to it, then up: 1.666015625
        (0x3fce_fbc8, 0x3f8d_7fcb, 0x3f26),      // above a tie, rounded to it, then down: 1.787109375
        (0x477f_e000, one, 0x7bff),
        (0x477f_f000, one, 0x7c00),              // 65520
        (0x477f_f000, 0xbf80_0000, 0xfc00),
        (0x7f7f_ffff, 0x4000_0000, 0x7c00),
        (0x3380_0000, one, 1),                   // 2^−24
        (0x3380_0000, 0x3f00_0000, 0),
        (0x3380_0000, 0xbfc0_0000, 0x8002),      // −1.5 · 2^−24, a tie
        (1, one, 0),
    ]);
    [f32, bf16, f16]
}

#[test]
fn the_reference_knows_products() {
    known_products().iter().for_each(Known::check_reference);
}

#[test]
fn products_are_rounded_once_then_converted() {
    known_products().iter().for_each(Known::check);
}

#[test]
fn the_head_of_a_grid() {
    let fields = fields();
    assert_eq!(fields.columns, [head()]);
    let scales: [u32; 4] = [0x3f80_0000, 0x4000_0000, 0x3e80_0000, 0x8000_0001];
    // Byte planes of the scales, then the bits of the indices 0, 1, 1, 0, 0, 1.
    let mut bulk: Vec<u8> = (0..4).flat_map(|i| scales.map(|scale| scale.to_le_bytes()[i])).collect();
    bulk.push(0b10_0110);
    assert_eq!(fields.bulk, [bulk]);
    // Rows of four; the first element is the last of the first row: scales 1, then 0, 0, 1, 1 in the second row, then 2.
    let expected = to_bytes(&[0x4000, 0xbf00, 0xbf00, 0x4000, 0x4000, 0xbe00], 2);
    assert_eq!(column().raw, expected);
    assert_eq!(fields.needs, 4);
    assert!(!fields.has_body_check, "the block names no ranges");
    let file = file_of(fields).to_bytes();
    assert_eq!(file[12..16], [4, 0, 0, 0]);
    assert_eq!(reference::decode(&file, LIMIT), Ok(expected));
}

#[test]
fn the_smallest_file_with_a_grid() {
    assert_eq!(agree(&file_of(fields()).to_bytes()), Ok(column().raw));
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
        let mut column = predicted(grid, 2, &[]);
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
fn every_conversion_predictor_and_coding() {
    let mut random = Random::new(2);
    let mut cases = 0;
    for conversion in [0, 1, 3] {
        for predictor in 1..3 {
            for boundaries in [vec![], vec![1, 2, 100, 128, 250, 255]] {
                for n in [1, 127, 128, 129, 1000] {
                    for coding in 0..4 {
                        let grid = coded_grid(conversion, n, coding, &mut random);
                        let mut column = predicted(grid, predictor, &boundaries);
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
    }
    assert_eq!(cases, 3 * 2 * 2 * 5 * 4);
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
            scale_stream = Stream { mask: Mask::Gaps, ..Stream::default() };
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

/// Asserts that all decoders refuse the column with this head, and these bytes in the bulk.
#[track_caller]
fn refused_head(head: &[&[u8]], bulk: Option<&[u8]>, reason: &str) {
    let mut fields = with_head(&head.concat());
    if let Some(bulk) = bulk {
        fields.bulk = vec![bulk.to_vec()];
    }
    refused(File { features: 4, ..file_of(fields) }, &[], reason);
}

#[test]
fn conversions_and_levels() {
    let refused_levels = |levels: &[u8], reason: &str| {
        refused_head(&[&START, levels, &OF_GROUPS, &SCALES, &INDICES, &REST], None, reason)
    };
    for conversion in [2, 4, 255] {
        refused_levels(&[&[conversion], &LEVELS[1..]].concat(), "unknown conversion");
    }
    for (width_code, conversion) in [(0, 0), (1, 0), (3, 0), (0, 1), (2, 1), (3, 1), (0, 3), (2, 3), (3, 3)] {
        let (start, levels) = ([3, width_code, 1, 1, 4], [&[conversion], &LEVELS[1..]].concat());
        let why = if width_code == 3 { "" } else { "does not give elements of its column's width" };
        refused_head(&[&start, &levels, &OF_GROUPS, &SCALES, &INDICES, &REST], None, why);
    }
    for level in [0x7f80_0000u32, 0xff80_0000, 0x7fc0_0000, 0x7f80_0001, 0xffff_ffff] {
        refused_levels(&[&LEVELS[..7], &level.to_le_bytes()].concat(), "a level of a grid is not finite");
    }
    refused_levels(&[&LEVELS[..7], &LEVELS[3..7]].concat(), "a level twice");
    // A level more, or one less, with other fields in its place.
    refused_levels(&[&[1, 0, 2], &LEVELS[3..]].concat(), "");
    refused_levels(&[&[1, 0, 0], &LEVELS[3..]].concat(), "");
}

/// A stream of scales that all are 1, whatever their number.
const ONES: [u8; 13] = [0, 0, 1, 0, 1, 32, 0, 0, 0, 0, 0, 0x80, 0x3f];

#[test]
fn groups_within_their_limits() {
    let head = |groups: [u64; 4]| {
        let mut numbers = Vec::new();
        groups.into_iter().for_each(|number| varint(&mut numbers, number));
        [&START[..], &LEVELS, &numbers, &ONES, &INDICES, &REST].concat()
    };
    let refused_groups = |groups, reason: &str| refused_head(&[&head(groups)], Some(&[0b10_0110]), reason);
    refused_groups([0, 2, 2, 3], "no elements");
    refused_groups([4, 0, 2, 3], "no rows");
    refused_groups([4, 2, 0, 3], "no columns");
    let most = 1 << 48;
    for columns in [5, 6, u64::MAX] {
        refused_groups([4, 2, columns, 3], "more columns than its rows have elements");
    }
    for position in [8, 9, 1 << 32] {
        refused_groups([4, 2, 2, position], "");
    }
    refused_groups([4, 2, 2, 8], "is not in its first row of groups");
    for (row, rows) in
        [(most + 1, 1), (1, most + 1), (1 << 24, (1 << 24) + 1), (1 << 32, 1 << 32), (u64::MAX, u64::MAX)]
    {
        refused_groups([row, rows, row, 3], "a row of groups has more than 2^48 elements");
    }
    refused_groups([most, 1, most, most - 5], "ends beyond 2^48");
    refused_groups([most / 2, 2, most / 2, most - 5], "ends beyond 2^48");
    for groups in [[8, 1, 2, 3], [most, 1, 1, 3], [7, 1, 1, 0], [3, 1, 1, 1]] {
        refused_groups(groups, "more scales than its column has elements");
    }
    for groups in
        [[most, 1, most, most - 6], [1, most, 1, 0], [6, 1, 1, 0], [8, 2, 2, 3], [1 << 24, 1 << 24, 1 << 22, 3]]
    {
        let mut fields = with_head(&head(groups));
        fields.bulk = vec![vec![0b10_0110]];
        let expected = to_bytes(&[0x3f80, 0xbf00, 0xbf00, 0x3f80, 0x3f80, 0xbf00], 2);
        assert_eq!(judged(file_of(fields), &[]), Ok(expected), "{groups:?}");
    }
}

#[test]
fn scales_and_indices() {
    for (number, scale) in [(0, 0x7f80_0000u32), (3, 0xff80_0000), (3, 0x7fc0_0000), (3, 0x7f80_0001)] {
        let mut fields = fields();
        (0..4).for_each(|i| fields.bulk[0][4 * i + number] = scale.to_le_bytes()[i]);
        refused(file_of(fields), &[], "a scale of a grid is not finite");
    }
    let refused_streams = |scales: &[u8], indices: &[u8], bulk: &[u8], reason: &str| {
        refused_head(&[&START, &LEVELS, &OF_GROUPS, scales, indices, &REST], Some(bulk), reason);
    };
    let two_bits = [0, 0, 1, 0, 0, 0, 6, 2, 0];
    refused_streams(&ONES, &two_bits, &[0, 0b10_0000], "an index is not of a level");
    refused_streams(&[3, 0, 0, 0, 0x80, 0x3f, 0, 1, 0, 0, 32, 0, 0, 0], &INDICES, &[0b10_0110], "a palette");
    refused_streams(&ONES, &[3, 1, 1, 0, 0, 1, 0, 0, 0, 7, 1, 0], &[0b10_0110], "a palette");
    refused_streams(&ONES, &[&[4], &INDICES[1..]].concat(), &[0b10_0110], "unknown map");
    refused_streams(&ONES, &INDICES, &[], "too early");
    refused_streams(&ONES, &INDICES, &[0b10_0110, 0], "too long");
    refused_streams(&ONES, &INDICES, &[0b1010_0110], "unused bits");
    // Masks of more elements than there are: of four scales and six indices.
    for (count, reason) in [(4, None), (5, Some("selects more elements than its stream has"))] {
        let masked = [0, 3, count, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        match reason {
            Some(reason) => refused_streams(&masked, &INDICES, &[0b10_0110], reason),
            None => {
                let mut fields = with_head(&[&START[..], &LEVELS, &OF_GROUPS, &masked, &INDICES, &REST].concat());
                fields.bulk = vec![vec![0b10_0110]];
                let expected = to_bytes(&[0, 0x8000, 0x8000, 0, 0, 0x8000], 2);
                assert_eq!(judged(file_of(fields), &[]), Ok(expected));
            }
        }
    }
    let head = head();
    for end in 0..head.len() {
        assert!(judged(File { features: 4, ..file_of(with_head(&head[..end])) }, &[]).is_err());
    }
}

#[test]
fn contexts_of_predictions() {
    let with_rest = |rest: &[u8]| [&START[..], &LEVELS, &OF_GROUPS, &SCALES, &INDICES, rest].concat();
    // Keys 0x80, 0x7e, 0x7e, 0x80, 0x80, 0x7c.
    let contexts = |counts: [u8; 2]| with_rest(&[&[1, 0x7f, counts[0]], &REST[2..], &[counts[1]], &REST[2..]].concat());
    assert_eq!(judged(file_of(with_head(&contexts([3, 3]))), &[]), Ok(column().raw));
    for counts in [[4, 2], [2, 4], [1, 5]] {
        refused_head(&[&contexts(counts)], None, "another number of elements");
    }
    refused_head(&[&contexts([3, 2])], None, "do not add up");
}

#[test]
fn features_of_grids() {
    let with_features = |features| judged(File { features, ..file_of(fields()) }, &[]);
    for features in [4, 5, 7] {
        assert_eq!(with_features(features), Ok(column().raw));
    }
    for features in [0, 1, 3] {
        let why = with_features(features).expect_err("bit 2 is missing");
        assert!(why.contains("grids need bit 2"), "{why}");
    }
    for exact in [0, 1, 5, 6] {
        let mut file = File { features: 7, ..file_of(fields()) };
        file.index.exact_features = exact;
        let decoded = reference::decode(&file.to_bytes(), LIMIT);
        assert!(decoded.is_err_and(|why| why.contains("are not those that the blocks need")), "{exact}");
    }
}
