//! Valid files whose blocks name ranges of bases and of the file itself: predicted columns and patches of every
//! shape.

use crate::blocks;
use crate::decoders::LIMIT;
use crate::derivations::{derivation, scales_in_a_stream};
use crate::input::Input;
use crate::predictions::{constant, predicted, predicted_by_grid};
use crate::reference::write::File;
use crate::reference::write::block::{Block, Column, Derivation, Derived, Operand, Predicted, Range};
use crate::streams::{element_count, mask, patch, to_bytes};

/// The blocks of a file, and its bases.
#[derive(Clone, Debug)]
pub struct Delta {
    /// The raw bytes of each base.
    pub bases: Vec<Vec<u8>>,
    /// In order.
    pub blocks: Vec<Block>,
}

impl Delta {
    /// The raw bytes of each base.
    pub fn bases(&self) -> Vec<&[u8]> {
        self.bases.iter().map(|base| &base[..]).collect()
    }

    /// The raw bytes of the file.
    pub fn raw(&self) -> Vec<u8> {
        self.blocks.iter().map(Block::raw).collect::<Vec<_>>().concat()
    }

    /// The file, which requires no more features than it needs.
    ///
    /// # Panics
    /// When a block cannot be coded as it is described.
    pub fn file(&self) -> File {
        let records: Vec<_> =
            self.blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
        let needs = records.iter().fold(0, |needs, record| needs | record.needs);
        let features = if self.bases.is_empty() { needs } else { needs | 1 };
        File { features, ..File::delta(&self.bases(), records) }
    }
}

/// A valid delta as the input chooses it, and its file, which may be damaged, with valid checks; also returns whether it is damaged.
pub fn damaged(input: &mut Input<'_>) -> (Delta, Vec<u8>, bool) {
    let mutations = input.below(4);
    let delta = delta(input);
    let mut file = delta.file();
    for _ in 0..mutations {
        let record = input.below(file.records.len());
        blocks::mutate(&mut file.records[record], input);
    }
    if mutations > 0 {
        file.redigest(&delta.bases(), LIMIT);
    }
    (delta, file.to_bytes(), mutations > 0)
}

/// A valid delta as the input chooses it.
pub fn delta(input: &mut Input<'_>) -> Delta {
    let base_count = input.below(4);
    let bases: Vec<Vec<u8>> = (0..base_count).map(|_| base(input, 100)).collect();
    let mut raw = Vec::new();
    let mut blocks = Vec::new();
    // A block before another one has 256 KiB.
    let block_count = 1 + input.below(8).saturating_sub(4);
    for i in 1..=block_count {
        let mut block = block(input, &bases, &raw);
        if i < block_count {
            block.fill();
        }
        raw.extend(block.raw());
        blocks.push(block);
    }
    Delta { bases, blocks }
}

/// Bytes of a base, `least` or more: noise, similar elements, or corner cases of floats.
fn base(input: &mut Input<'_>, least: usize) -> Vec<u8> {
    let length = least + input.below(8000);
    let kind = input.below(4);
    let mut random = input.random();
    let special: [u32; 10] = [
        0,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffff_ffff,
        0x7f80_0001,
        0x0000_0001,
        0x477f_f000,
        0x3380_0000,
    ];
    let mut base = Vec::new();
    while base.len() < length {
        let u = random.u64() as u32;
        let u = match kind {
            0 => u,
            1 => 0x3f80_0000 ^ u >> 9,
            2 => special[random.below(10) as usize] ^ u >> 31,
            _ => 7,
        };
        base.extend(u.to_le_bytes());
    }
    base.truncate(length);
    base
}

/// The sources whose ranges a block may name: the file itself, then the bases, without empty ones. For each its number,
/// an offset, and the bytes from there on that may be named.
struct Sources<'a>(Vec<(u64, usize, &'a [u8])>);

impl Sources<'_> {
    /// Ranges of this many bytes in all.
    fn choose(&self, input: &mut Input<'_>, length: usize) -> Vec<Range> {
        let longest = [length, length / 3 + 1, 500][input.below(3)];
        let mut random = input.random();
        let mut left = length;
        let mut ranges = Vec::new();
        while left > 0 {
            let (source, start, bytes) = self.0[random.below(self.0.len() as u64) as usize];
            let most = left.min(longest).min(bytes.len());
            let length = if random.below(2) == 0 { most } else { 1 + random.below(most as u64) as usize };
            let offset = random.below((bytes.len() - length + 1) as u64) as usize;
            let bytes = bytes[offset..][..length].to_vec();
            ranges.push(Range { source, offset: (start + offset) as u64, bytes });
            left -= length;
        }
        ranges
    }
}

/// A block after those that hold `raw`.
fn block(input: &mut Input<'_>, bases: &[Vec<u8>], raw: &[u8]) -> Block {
    let mut available = vec![(0, 0, raw)];
    for (source, base) in (1..).zip(bases) {
        available.push((source, 0, &base[..]));
    }
    available.retain(|(.., bytes)| !bytes.is_empty());
    let sources = Sources(available);
    let lane_sets = 2 * u8::from(input.below(3) > 0);
    let column_count = if input.bool() { 1 } else { 1 + input.below(4) };
    let mut columns = Vec::new();
    for _ in 0..column_count {
        columns.push(match input.below(8) {
            choice if choice == 0 || sources.0.is_empty() => {
                let column = blocks::column(input, lane_sets);
                patched(input, column, lane_sets)
            }
            5 => Column::Predicted(predicted_by_grid(input, lane_sets)),
            6 => Column::Predicted(predicted_by_step(input, &sources, lane_sets)),
            7 => Column::Predicted(predicted_by_derivation(input, &sources, lane_sets)),
            _ => Column::Predicted(predicted_by_ranges(input, &sources, lane_sets)),
        });
    }
    let (extents, states_repeats) = blocks::extents(input, &columns);
    Block { lane_sets, columns, extents, states_repeats, final_state: 1 << 16 }
}

/// The column with patches or a mask, if it is plain.
fn patched(input: &mut Input<'_>, column: Column, lane_sets: u8) -> Column {
    let Column::Plain(mut plain_column) = column else { return column };
    let width = 1 << plain_column.width_code;
    let element = |bytes: &[u8]| bytes.iter().rev().fold(0, |u, &byte| u << 8 | u64::from(byte));
    let mut elements: Vec<u64> = plain_column.raw.chunks(width).map(element).collect();
    patch(input, plain_column.width_code, &mut plain_column.stream, &mut elements, |_| true);
    mask(input, 8 << plain_column.width_code, &mut plain_column.stream, &mut elements, lane_sets);
    plain_column.raw = to_bytes(&elements, plain_column.width_code);
    Column::Plain(plain_column)
}

/// A column whose operand is ranges.
fn predicted_by_ranges(input: &mut Input<'_>, sources: &Sources<'_>, lane_sets: u8) -> Predicted {
    let width_code = input.below(4) as u8;
    let width = 1 << width_code;
    let n = element_count(input);
    let conversions: &[(u8, usize)] = match width {
        2 => &[(0, 2), (1, 4), (3, 4)],
        4 => &[(0, 4), (2, 2)],
        _ => &[(0, width)],
    };
    let (conversion, takes) = conversions[input.below(conversions.len())];
    let operand = Operand::Ranges { conversion, ranges: sources.choose(input, takes * n) };
    predicted(input, width_code, n, operand, lane_sets)
}

/// A column whose operand is computed from other data.
fn predicted_by_step(input: &mut Input<'_>, sources: &Sources<'_>, lane_sets: u8) -> Predicted {
    let choice = input.below(5);
    let (kind, width_code) = [(5, 1), (5, 2), (6, 2), (7, 2), (7, 2)][choice];
    let has_m0 = choice == 4;
    let n = element_count(input);
    let mut constants: Vec<u32> = (0..if kind == 5 { 1 } else { 4 }).map(|_| constant(input)).collect();
    if kind == 7 && (constants[2] != 0) != has_m0 {
        constants[2] ^= if has_m0 { 0x8000_0000 } else { constants[2] };
    }
    let lists = [1, 1, 3, 3, 4][choice];
    let mut data: Vec<Vec<Range>> = (0..lists).map(|_| sources.choose(input, n << width_code)).collect();
    data.resize(if kind == 7 { 4 } else { lists }, Vec::new());
    predicted(input, width_code, n, Operand::Step { kind, constants, data }, lane_sets)
}

/// A column that is derived from other data.
fn predicted_by_derivation(input: &mut Input<'_>, sources: &Sources<'_>, lane_sets: u8) -> Predicted {
    let (derivation, width_code, n) = derivation(input);
    let lengths = Derived::lengths(&derivation, 1 << width_code, n);
    let mut lengths: Vec<usize> = lengths.into_iter().map(|length| length as usize).collect();
    let scales = match derivation {
        Derivation::Codes { scales, .. } if input.below(3) == 2 => {
            lengths.pop().map(|length| scales_in_a_stream(input, scales, length, lane_sets))
        }
        _ => None,
    };
    let data = lengths.into_iter().map(|length| sources.choose(input, length)).collect();
    predicted(input, width_code, n, Operand::Derived(Derived { derivation, data, scales }), lane_sets)
}
