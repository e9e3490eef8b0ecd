//! Valid files that depend on bases and on themselves: dependencies, predicted columns and patches of every shape.

use crate::blocks::{self, element_count, low_bits, stream};
use crate::decoders::LIMIT;
use crate::input::{Input, Random};
use crate::reference::write::File;
use crate::reference::write::block::{
    Block, Column, Dependency, Named, NumberCode, Patch, PatchCodes, Predicted, Stream, UnchangedRuns, mapped, unmapped,
};

/// The blocks of a file and the files that they depend on.
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
        self.blocks.iter().flat_map(|block| block.raw()).collect()
    }

    /// The file, which requires no more features than it needs.
    ///
    /// # Panics
    /// When a block cannot be coded as it is described.
    pub fn file(&self) -> File {
        let records = self.blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
        let depends_on = |own: bool| {
            let dependencies = || self.blocks.iter().flat_map(|block| &block.dependencies);
            dependencies().any(|dependency| (dependency.source == 0) == own)
        };
        let features = match (depends_on(true), depends_on(false) || !self.bases.is_empty()) {
            (true, _) => 3,
            (false, true) => 1,
            (false, false) => 0,
        };
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

/// Bytes to depend on, `least` or more: noise, similar elements, or corner cases of floats.
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

/// The sources of a block's dependencies, and the dependencies.
struct Sources<'a> {
    /// The file itself, then the bases, without empty ones; of each the bytes that the block may depend on, and their
    /// offset in the source.
    available: Vec<(u64, usize, &'a [u8])>,
    chosen: Vec<Dependency>,
}

impl Sources<'_> {
    /// More dependencies, of this many bytes in all.
    fn choose(&mut self, input: &mut Input<'_>, length: usize) -> Named {
        let first = self.chosen.len();
        let longest = [length, length / 3 + 1, 500][input.below(3)];
        let mut random = input.random();
        let mut left = length;
        while left > 0 {
            let (source, start, bytes) = self.available[random.below(self.available.len() as u64) as usize];
            let most = left.min(longest).min(bytes.len());
            let length = if random.below(2) == 0 { most } else { 1 + random.below(most as u64) as usize };
            let offset = random.below((bytes.len() - length + 1) as u64) as usize;
            let bytes = bytes[offset..][..length].to_vec();
            self.chosen.push(Dependency { source, offset: (start + offset) as u64, bytes });
            left -= length;
        }
        Named { first: first as u64, count: (self.chosen.len() - first) as u64 }
    }
}

/// A block after those that hold `raw`.
fn block(input: &mut Input<'_>, bases: &[Vec<u8>], raw: &[u8]) -> Block {
    let mut available = vec![(0, 0, raw)];
    for (source, base) in (1..).zip(bases) {
        available.push((source, 0, &base[..]));
    }
    available.retain(|(.., bytes)| !bytes.is_empty());
    let mut sources = Sources { available, chosen: Vec::new() };
    let lane_sets = 2 * u8::from(input.below(3) > 0);
    let column_count = if input.bool() { 1 } else { 1 + input.below(4) };
    let mut columns = Vec::new();
    for _ in 0..column_count {
        columns.push(match input.below(5) {
            choice if choice == 0 || sources.available.is_empty() => {
                let column = blocks::column(input, lane_sets);
                patched(input, column)
            }
            _ => Column::Predicted(predicted(input, &mut sources, lane_sets)),
        });
    }
    if input.below(8) == 0 && !sources.available.is_empty() {
        // Dependencies that no column uses.
        sources.choose(input, 10);
    }
    let extents = blocks::extents(input, &columns);
    Block { dependencies: sources.chosen, lane_sets, columns, extents, final_state: 1 << 16 }
}

/// The column with patches, if it is plain.
fn patched(input: &mut Input<'_>, column: Column) -> Column {
    let Column::Plain(mut plain_column) = column else { return column };
    let width = 1 << plain_column.width_code;
    let element = |bytes: &[u8]| bytes.iter().rev().fold(0, |u, &byte| u << 8 | u64::from(byte));
    let mut elements: Vec<u64> = plain_column.raw.chunks(width).map(element).collect();
    patch(input, plain_column.width_code, &mut plain_column.stream, &mut elements);
    plain_column.raw = blocks::to_bytes(&elements, plain_column.width_code);
    Column::Plain(plain_column)
}

/// Gives a stream without patches some, or none, perhaps instead of its clusters, and changes its elements accordingly.
fn patch(input: &mut Input<'_>, width_code: u8, stream: &mut Stream, elements: &mut [u64]) {
    let w: u8 = 8 << width_code;
    // One element in this many, and the last.
    let one_in = [0, 0, 1, 3, 50, 400][input.below(6)];
    let also_last = input.bool();
    if input.below(6) == 0 {
        (stream.clusters, stream.cluster_of) = (Vec::new(), Vec::new());
        elements.fill(0);
    }
    let low = if input.bool() { 0 } else { input.below(w.into()) as u8 };
    let (raw_of_gaps, raw_of_changes) = (input.below(64) as u8, input.below(64) as u8);
    let mut random = input.random();
    let last = elements.len().saturating_sub(1);
    for (i, u) in elements.iter_mut().enumerate() {
        let chosen = one_in > 0 && (random.below(one_in) == 0 || also_last && i == last);
        let x = (random.u64() & low_bits(1 + random.below((w - low).into()) as u8)) << low;
        if chosen && x > 0 {
            *u = unmapped(mapped(*u, w.into(), stream.map) ^ x, w.into(), stream.map);
            stream.patches.push(Patch { element: i as u64, x });
        }
    }
    let after = [0].into_iter().chain(stream.patches.iter().map(|patch| patch.element + 1));
    let gaps: Vec<u64> = stream.patches.iter().zip(after).map(|(patch, after)| patch.element - after).collect();
    let changes: Vec<u64> = stream.patches.iter().map(|patch| (patch.x >> low) - 1).collect();
    stream.patch_codes = PatchCodes {
        low,
        gaps: Some(NumberCode::of(&gaps, raw_of_gaps)),
        changes: Some(NumberCode::of(&changes, raw_of_changes)),
    };
}

fn predicted(input: &mut Input<'_>, sources: &mut Sources<'_>, lane_sets: u8) -> Predicted {
    let width_code = input.below(4) as u8;
    let width = 1 << width_code;
    let elements = element_count(input);
    let predictor = 1 + input.below(2) as u8;
    let conversions: &[(u8, usize)] = match width {
        2 => &[(0, 2), (1, 4), (3, 4)],
        4 => &[(0, 4), (2, 2)],
        _ => &[(0, width)],
    };
    let (conversion, takes) = conversions[input.below(conversions.len())];
    let prediction = sources.choose(input, takes * elements);
    let boundaries = boundaries(input);
    let raw = vec![0; elements * width];
    let unchanged = unchanged(input, elements, lane_sets);
    let streams = Vec::new();
    let mut predicted =
        Predicted { raw, width_code, predictor, conversion, prediction, boundaries, unchanged, streams };
    let mut residuals = Vec::new();
    for count in predicted.context_counts(&sources.chosen).expect("the dependencies are as long as the column needs") {
        if count == 0 {
            predicted.streams.push(Stream::default());
            residuals.push(Vec::new());
            continue;
        }
        let map = input.below(3) as u8;
        let (mut stream, mut elements) = stream(input, width_code, map, count, lane_sets);
        patch(input, width_code, &mut stream, &mut elements);
        predicted.streams.push(stream);
        residuals.push(elements);
    }
    predicted.set_residuals(&sources.chosen, residuals).expect("the dependencies are as long as the column needs");
    predicted
}

/// A map of unchanged runs, or none.
fn unchanged(input: &mut Input<'_>, elements: usize, lane_sets: u8) -> Option<UnchangedRuns> {
    // One run in this many is coded.
    let coded_one_in = match input.below(6) {
        kind @ 0..4 => [1, 2, 20, u64::MAX][kind],
        _ => return None,
    };
    let mut random = input.random();
    let runs: Vec<u8> = (0..elements.div_ceil(128)).map(|_| u8::from(random.below(coded_one_in) != 0)).collect();
    Some(UnchangedRuns { map: blocks::cluster_map(input, &runs, lane_sets), runs })
}

fn boundaries(input: &mut Input<'_>) -> Vec<u8> {
    let count = [0, 1, 2, 5, 15][input.below(5)];
    let mut random: Random = input.random();
    let mut boundaries: Vec<u8> = (0..count).map(|_| 1 + random.below(255) as u8).collect();
    boundaries.sort_unstable();
    boundaries.dedup();
    boundaries
}
