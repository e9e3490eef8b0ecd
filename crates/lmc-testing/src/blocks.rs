//! Valid blocks of every shape that the format allows, and small changes to their bytes.

use crate::decoders::LIMIT;
use crate::input::Input;
use crate::predictions::{predicted_by_grid, predicted_by_terms};
use crate::reference::write::block::{Block, Column, Plain, Zstd};
use crate::reference::write::{File, Record};
use crate::streams::{element_count, palette, stream, to_bytes};

/// A valid block as the input chooses it: columns, extents, clusters, cluster maps, tables, lane sets.
pub fn block(input: &mut Input<'_>) -> Block {
    let lane_sets = 2 * u8::from(input.below(3) > 0);
    let column_count = if input.bool() { 1 } else { 1 + input.below(4) };
    let columns: Vec<Column> = (0..column_count).map(|_| column(input, lane_sets)).collect();
    let (extents, states_repeats) = extents(input, &columns);
    Block { lane_sets, columns, extents, states_repeats, final_state: 1 << 16 }
}

/// Fills all blocks but the last, so that others may follow them; returns the raw bytes.
pub fn fill(blocks: &mut [Block]) -> Vec<u8> {
    if let Some((_, others)) = blocks.split_last_mut() {
        others.iter_mut().for_each(Block::fill);
    }
    blocks.iter().map(Block::raw).collect::<Vec<_>>().concat()
}

/// A valid file as the input chooses it, which may be damaged, with valid checks: the raw bytes of the valid one, the file, and
/// whether it is damaged.
///
/// # Panics
/// When a block cannot be coded as it is described.
pub fn damaged(input: &mut Input<'_>) -> (Vec<u8>, Vec<u8>, bool) {
    let mutations = input.below(4);
    // A block that another one follows has 256 KiB.
    let mut blocks: Vec<_> = (0..1 + input.below(8) / 7).map(|_| block(input)).collect();
    let raw = fill(&mut blocks);
    let mut records: Vec<_> = blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
    let mut mutated = vec![false; records.len()];
    for _ in 0..mutations {
        let record = input.below(records.len());
        mutate(&mut records[record], input);
        mutated[record] = true;
    }
    for (record, _) in records.iter_mut().zip(&mutated).filter(|(_, mutated)| **mutated) {
        record.redigest(LIMIT);
    }
    (raw, File::new(records).to_bytes(), mutations > 0)
}

pub(crate) fn column(input: &mut Input<'_>, lane_sets: u8) -> Column {
    match input.below(8) {
        0 => Column::Stored(bytes(input)),
        1 => {
            let width_code = input.below(4) as u8;
            let mut raw = bytes(input);
            raw.resize(raw.len().next_multiple_of(1 << width_code), 0);
            Column::Zstd(Zstd { width_code, ..Zstd::of(raw) })
        }
        7 => Column::Predicted(match input.below(3) {
            0 => predicted_by_terms(input, lane_sets),
            _ => predicted_by_grid(input, lane_sets),
        }),
        _ => Column::Plain(plain_column(input, lane_sets)),
    }
}

pub(crate) fn bytes(input: &mut Input<'_>) -> Vec<u8> {
    let length = 1 + input.below(300);
    let random = input.bool();
    let mut source = input.random();
    if random { source.bytes(length) } else { vec![source.u64() as u8; length] }
}

/// The columns' bytes in an order that alternates between them, and whether repeats are to be stated.
pub(crate) fn extents(input: &mut Input<'_>, columns: &[Column]) -> (Vec<(u8, u64)>, bool) {
    let mut left: Vec<u64> = columns.iter().map(|column| column.raw().len() as u64).collect();
    let asked = u64::from(input.u16());
    // Thousands of extents, which take long, only where the input asks for them.
    let many = asked >= 0xf000;
    let longest = if many { 1 + asked % 256 } else { 1 + asked.max(left.iter().sum::<u64>() / 128) };
    let periodic = (0xd000..0xf000).contains(&asked);
    let mut random = input.random();
    let mut extents = Vec::new();
    while periodic && extents.len() < 20_000 && left.iter().any(|&left| left > 7) {
        let column = || random.below(columns.len() as u64) as usize;
        let order: Vec<usize> = std::iter::repeat_with(column).take(1 + asked as usize % 4).collect();
        let period: Vec<(usize, u64)> = order.into_iter().map(|column| (column, 1 + random.below(4))).collect();
        for _ in 0..1 + random.below(40) {
            for &(column, length) in &period {
                if length <= left[column] {
                    extents.push((column as u8, length));
                    left[column] -= length;
                }
            }
        }
    }
    while left.iter().any(|&left| left > 0) {
        let column = random.below(columns.len() as u64) as usize;
        let length = (1 + random.below(longest)).min(left[column]);
        if length > 0 {
            extents.push((column as u8, length));
            left[column] -= length;
        }
    }
    (extents, periodic && asked % 8 > 0)
}

fn plain_column(input: &mut Input<'_>, lane_sets: u8) -> Plain {
    let width_code = input.below(4) as u8;
    let palette_size = [1, 2, 3, 16, 17, 255, 256, 1 + input.below(256)][input.below(8)];
    let palette_size = if input.below(4) == 0 { palette_size } else { 0 };
    let palette = palette(&mut input.random(), palette_size, width_code);
    let map = if palette.is_empty() { input.below(3) as u8 } else { 3 };
    let elements = element_count(input);
    let (stream, elements) = stream(input, width_code, map, palette, elements, lane_sets);
    Plain { raw: to_bytes(&elements, width_code), width_code, stream }
}

/// Changes a few bytes of a record, or its lengths.
pub fn mutate(record: &mut Record, input: &mut Input<'_>) {
    for _ in 0..1 + input.below(3) {
        mutate_bytes(if input.bool() { &mut record.head } else { &mut record.body }, input);
    }
}

fn mutate_bytes(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    let at = if bytes.is_empty() { 0 } else { input.below(bytes.len().min(1 << 16)) };
    let at = if input.bool() { at } else { bytes.len().saturating_sub(1 + at) };
    match input.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, input.u8()),
        2 => drop(bytes.splice(at..at, input.random().bytes(16))),
        3 if at < bytes.len() => drop(bytes.remove(at)),
        4 => bytes.get_mut(at).into_iter().for_each(|byte| *byte = input.u8()),
        _ => bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << input.below(8)),
    }
}
