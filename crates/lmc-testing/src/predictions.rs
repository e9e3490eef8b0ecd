//! Predicted columns of every valid shape, as the input chooses them.

use crate::input::{Input, Random};
use crate::reference::write::block::{Cluster, Grid, Groups, Operand, Predicted, RowTerms, Rows, Stream, Terms};
use crate::streams::{element_count, low_bits, mask, patch, stream, stream_of_bits};

/// A column of `n` elements with this operand, in some contexts.
pub(crate) fn predicted(input: &mut Input<'_>, width_code: u8, n: usize, operand: Operand, lane_sets: u8) -> Predicted {
    let boundaries = boundaries(input);
    let has_row_terms = !boundaries.is_empty() && input.below(4) == 3;
    let row_terms = if has_row_terms { Some(row_terms(input, n, lane_sets)) } else { None };
    let (raw, streams) = (vec![0; n << width_code], Vec::new());
    let mut predicted = Predicted { raw, width_code, operand, row_terms, boundaries, streams };
    let mut residuals = Vec::new();
    for count in predicted.context_counts().expect("the operand is as long as the column needs") {
        if count == 0 {
            predicted.streams.push(Stream::default());
            residuals.push(Vec::new());
            continue;
        }
        let map = input.below(3) as u8;
        let (mut stream, mut elements) = stream(input, width_code, map, Vec::new(), count, lane_sets);
        patch(input, width_code, &mut stream, &mut elements, |_| true);
        mask(input, 8 << width_code, &mut stream, &mut elements, lane_sets);
        predicted.streams.push(stream);
        residuals.push(elements);
    }
    predicted.set_residuals(residuals).expect("the operand is as long as the column needs");
    predicted
}

fn boundaries(input: &mut Input<'_>) -> Vec<u8> {
    let count = [0, 1, 2, 5, 15][input.below(5)];
    let mut random: Random = input.random();
    let mut boundaries: Vec<u8> = (0..count).map(|_| 1 + random.below(255) as u8).collect();
    boundaries.sort_unstable();
    boundaries.dedup();
    boundaries
}

/// Rows of a matrix that a column of `n` elements is of; they have at most 2^`most` elements.
fn rows(input: &mut Input<'_>, n: usize, most: u32) -> Rows {
    let row = [1 + input.below(64) as u64, 1 + input.below(2 * n) as u64, n as u64, 1 << most][input.below(4)];
    let mut random = input.random();
    let position = [0, row - 1, random.below(row), random.below(row)][input.below(4)];
    Rows { row, position }
}

/// Terms, and their coding.
fn terms(input: &mut Input<'_>, count: usize, lane_sets: u8) -> (Stream, Vec<u8>) {
    let (map, bits) = (input.below(3) as u8, 1 + input.below(8) as u8);
    let (mut stream, mut terms) = stream_of_bits(input, 0, Stream { map, ..Stream::default() }, bits, count, lane_sets);
    patch(input, 0, &mut stream, &mut terms, |_| true);
    mask(input, 8, &mut stream, &mut terms, lane_sets);
    (stream, terms.into_iter().map(|term| term as u8).collect())
}

fn row_terms(input: &mut Input<'_>, n: usize, lane_sets: u8) -> RowTerms {
    let rows = rows(input, n, 48);
    let (stream, terms) = terms(input, RowTerms::count(rows, n), lane_sets);
    RowTerms { rows, terms, stream }
}

/// A column whose operand is terms of rows and columns.
pub(crate) fn predicted_by_terms(input: &mut Input<'_>, lane_sets: u8) -> Predicted {
    let width_code = 1 + input.below(2) as u8;
    let n = element_count(input);
    let rows = rows(input, n, 20);
    let shift = input.below(8 << width_code) as u8;
    let (row_stream, of_rows) = terms(input, RowTerms::count(rows, n), lane_sets);
    let (column_stream, of_columns) = terms(input, n.min(rows.row as usize), lane_sets);
    let operand = Operand::Terms(Terms { shift, rows, of_rows, row_stream, of_columns, column_stream });
    predicted(input, width_code, n, operand, lane_sets)
}

/// A constant of an operand: one near 1, a special one, or any.
pub(crate) fn constant(input: &mut Input<'_>) -> u32 {
    let special = [0x3f80_0000, 0xbf80_0000, 0, 0x8000_0000, 1, 0x7f7f_ffff, 0x0080_0000, 0xff7f_ffff];
    let any = match input.below(3) {
        0 => 0x3f7f_0000 + u32::from(input.u16()),
        1 => special[input.below(8)],
        _ => input.u32(),
    };
    if is_finite(any) { any } else { any & 0xbfff_ffff }
}

/// A column whose operand is a grid.
pub(crate) fn predicted_by_grid(input: &mut Input<'_>, lane_sets: u8) -> Predicted {
    let choice = input.below(6);
    let (conversion, has_offsets) = ([0, 1, 3][choice % 3], choice >= 3);
    let width_code = if conversion == 0 { 2 } else { 1 };
    let n = element_count(input);
    let mut grid = grid(input, conversion, n, lane_sets);
    if has_offsets {
        add_offsets(input, &mut grid, lane_sets);
    }
    predicted(input, width_code, n, Operand::Grid(grid), lane_sets)
}

fn grid(input: &mut Input<'_>, conversion: u8, n: usize, lane_sets: u8) -> Grid {
    let groups = groups(input, n);
    let scale_count = Grid::scale_count(&groups, n) as usize;
    let count = [1, 2, 3, 16, 17, 255, 256, 1 + input.below(256)][input.below(8)];
    let levels = levels(input, count);

    let bits = count.ilog2() as u8;
    let (mut index_stream, mut indices) = stream_of_bits(input, 0, Stream::default(), bits, n, lane_sets);
    patch(input, 0, &mut index_stream, &mut indices, |index| index < count as u64);
    if count > 1 {
        mask(input, 8, &mut index_stream, &mut indices, lane_sets);
    }

    let (scale_stream, scales) = of_groups(input, scale_count, lane_sets);
    let indices = indices.into_iter().map(|index| index as u8).collect();
    Grid { scale_stream, index_stream, ..Grid::of(conversion, levels, groups, scales, indices) }
}

/// Finite numbers, one for each group, and their coding.
fn of_groups(input: &mut Input<'_>, count: usize, lane_sets: u8) -> (Stream, Vec<u32>) {
    // Without the top bit of the exponent: rotated, it is the top bit of all.
    let map = input.below(2) as u8;
    let start = Stream { map, ..Stream::default() };
    let (mut stream, mut numbers) = stream_of_bits(input, 2, start, 30 + map, count, lane_sets);
    patch(input, 2, &mut stream, &mut numbers, |number| is_finite(number as u32));
    mask(input, 32, &mut stream, &mut numbers, lane_sets);
    (stream, numbers.into_iter().map(|number| number as u32).collect())
}

/// Gives a grid offsets: any, or some that make special sums.
fn add_offsets(input: &mut Input<'_>, grid: &mut Grid, lane_sets: u8) {
    if input.bool() {
        let (stream, offsets) = of_groups(input, grid.scales.len(), lane_sets);
        (grid.offset_stream, grid.offsets) = (stream, Some(offsets));
        return;
    }
    // From 8 on, each group has any of the others.
    let kind = input.below(16);
    let has_large_scales = input.bool();
    let mut random = input.random();
    if has_large_scales {
        // From 2^100 up.
        let magnitude = |random: &mut Random| 0x7180_0000 + random.below(0x0e00_0000) as u32;
        grid.scales.fill_with(|| magnitude(&mut random) | random.u64() as u32 & 0x8000_0000);
        grid.scale_stream = all_bits(0);
    }
    // The product of the last element of each group.
    let mut products = vec![0; grid.scales.len()];
    for (element, &index) in grid.indices.iter().enumerate() {
        let (group, level) = (grid.groups.scale_of(element), grid.levels[usize::from(index)]);
        products[group] = (f32::from_bits(grid.scales[group]) * f32::from_bits(level)).to_bits();
    }
    let mut offset_of = |&product: &u32| {
        let (any, sign) = (random.u64() as u32, 0x8000_0000);
        let kind = if kind < 8 { kind } else { random.below(8) as usize };
        let offset = match kind {
            // A zero of either sign.
            0 => any & sign,
            // Added, they are 0, or next to it.
            1 => product ^ sign,
            2 => (product ^ sign).wrapping_add(any % 9).wrapping_sub(4),
            // Infinite, if the product is large; an infinite product stays so.
            3 => 0x7f7f_ffff | product & sign,
            4 => 0x7f7f_ffff | any & sign,
            // Subnormal.
            5 => any & 0x807f_ffff,
            // Half of the last bit of the product, or nearly: a tie.
            6 => (product & 0x7f80_0000).saturating_sub(24 << 23) | any & sign | any >> 30 & 1,
            _ => any,
        };
        if is_finite(offset) { offset } else { offset & 0xbfff_ffff }
    };
    let mut offsets: Vec<u64> = products.iter().map(|product| offset_of(product).into()).collect();
    let mut stream = all_bits(input.below(2) as u8);
    mask(input, 32, &mut stream, &mut offsets, lane_sets);
    grid.offsets = Some(offsets.into_iter().map(|offset| offset as u32).collect());
    grid.offset_stream = stream;
}

/// 32 bits of each element as they are.
fn all_bits(map: u8) -> Stream {
    Stream::of(map, Cluster { k: 32, ..Cluster::default() })
}

/// Groups for a column of `n` elements, which has at most `n` of them.
pub(crate) fn groups(input: &mut Input<'_>, n: usize) -> Groups {
    let longest = [8, 2 * n, 1 << 16][input.below(3)];
    let row = 1 + input.below(longest) as u64;
    let (row, rows) = match input.below(8) {
        // As large as they may be.
        0 => ((1 << 48) / row, 1 + input.below(256) as u64 % row),
        _ => (row, [1, 1, 2, 3, 1 + input.below(300) as u64][input.below(5)]),
    };
    let mut random = input.random();
    let position = if input.bool() { 0 } else { random.below((rows * row).min((1 << 48) - n as u64)) };
    let most = [4, 128, row][input.below(3)];
    let mut groups = Groups { row, rows, columns: 1 + random.below(row.min(most)), position };
    // One in each row of groups is never too many.
    while Grid::scale_count(&groups, n) > n as u128 {
        groups.columns = row.min(2 * groups.columns);
    }
    groups
}

/// `count` distinct levels.
fn levels(input: &mut Input<'_>, count: usize) -> Vec<u32> {
    let kind = input.below(4);
    let mut random = input.random();
    let special = [0, 0x8000_0000, 0x3f80_0000, 0xbf80_0000, 1, 0x8000_0001, 0x7f7f_ffff, 0xff7f_ffff, 0x0080_0000];
    let mut levels = Vec::new();
    while levels.len() < count {
        let any = random.u64() as u32;
        let level = match kind {
            0 => any,
            // Small integers.
            1 => ((any >> 24) as f32 - 128.0).to_bits(),
            2 if levels.len() < special.len() => special[levels.len()],
            // Subnormal.
            3 => any & 0x8000_0000 | any & low_bits(23) as u32,
            _ => any & 0xbfff_ffff,
        };
        if is_finite(level) && !levels.contains(&level) {
            levels.push(level);
        }
    }
    levels
}

/// Whether the bits of a binary32 are those of a finite number.
fn is_finite(bits: u32) -> bool {
    f32::from_bits(bits).is_finite()
}
