//! Valid blocks of every shape that the format allows, and small changes to their bytes.

use crate::decoders::LIMIT;
use crate::input::{Input, Random};
use crate::reference::write::block::{Block, Cluster, Column, Plain, Stream, Zstd};
use crate::reference::write::entropy::{Coder, Pad};
use crate::reference::write::{File, Record};

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

/// That many elements, no two the same.
pub(crate) fn palette(random: &mut Random, size: usize, width_code: u8) -> Vec<u64> {
    let mut palette = Vec::new();
    while palette.len() < size {
        let u = random.u64() & low_bits(8 << width_code);
        if !palette.contains(&u) {
            palette.push(u);
        }
    }
    palette
}

/// A number of elements that fills up its last run, or nearly, or not.
pub(crate) fn element_count(input: &mut Input<'_>) -> usize {
    match input.below(4) {
        0 => 128 * (1 + input.below(4)),
        1 => 127 + input.below(3),
        _ => 1 + input.below(700),
    }
}

/// Elements and their coding, without patches. The palette is for map 3.
pub(crate) fn stream(
    input: &mut Input<'_>,
    width_code: u8,
    map: u8,
    palette: Vec<u64>,
    elements: usize,
    lane_sets: u8,
) -> (Stream, Vec<u64>) {
    let w = 8 << width_code;
    // Bits that mapped values may have: of a palette, fewer than all indices may need.
    let bits = if map == 3 { palette.len().ilog2() as u8 } else { w };
    let cluster_count = [1, 1, 2, 3, 16][input.below(5)];
    let shapes: Vec<Shape> = (0..cluster_count).map(|_| Shape::choose(input, w, bits, lane_sets)).collect();
    let sparse = input.bool();
    let mut random = input.random();

    let runs = elements.div_ceil(128);
    let used = if sparse { 1 + random.below(cluster_count) } else { cluster_count };
    let cluster_of: Vec<u8> = (0..runs).map(|_| random.below(used) as u8).collect();
    let mut symbols = vec![Vec::new(); cluster_count as usize];
    let mut chosen = Vec::new();
    let mut stream = Stream { map, palette, ..Stream::default() };
    for e in 0..elements {
        let number = usize::from(cluster_of[e / 128]);
        let shape = &shapes[number];
        let symbol = shape.symbol(&mut random);
        symbols[number].push(symbol);
        let bits = random.u64() & low_bits(shape.cluster.k);
        let v = u128::from(symbol) << (shape.cluster.k + shape.cluster.z) | u128::from(bits) << shape.cluster.z;
        let v = v | u128::from(random.u64() & low_bits(shape.cluster.sign_plane.into()));
        let v = v as u64 ^ shape.cluster.constant.unwrap_or(0);
        chosen.push(stream.unmapped(v & low_bits(w), w.into()));
    }
    stream.clusters = shapes.iter().zip(&symbols).map(|(shape, symbols)| shape.cluster_with_table(symbols)).collect();
    stream.cluster_map = cluster_map(input, &cluster_of, lane_sets);
    stream.cluster_of = cluster_of;
    (stream, chosen)
}

pub(crate) fn to_bytes(elements: &[u64], width_code: u8) -> Vec<u8> {
    let width = 1 << width_code;
    let mut bytes = Vec::with_capacity(elements.len() * width);
    elements.iter().for_each(|u| bytes.extend(&u.to_le_bytes()[..width]));
    bytes
}

/// The cluster of a cluster map: all bits raw, or as symbols.
pub(crate) fn cluster_map(input: &mut Input<'_>, cluster_of: &[u8], lane_sets: u8) -> Cluster {
    let raw = Cluster { k: 8, ..Cluster::default() };
    if lane_sets == 0 {
        return raw;
    }
    match input.below(4) {
        0 => raw,
        1 => Cluster { h: 1, coder: Coder::huffman(cluster_of, input.bool()), ..Cluster::default() },
        2 => Cluster { h: 2, coder: Coder::rans(cluster_of, input.bool()), ..Cluster::default() },
        _ => Cluster { h: 2, coder: Coder::fine_rans(cluster_of, input.bool()), ..Cluster::default() },
    }
}

pub(crate) fn low_bits(n: u8) -> u64 {
    ((1u128 << n) - 1) as u64
}

/// A cluster without its table, and the distribution of its symbols.
struct Shape {
    cluster: Cluster,
    /// Makes the table from symbols, with an escape if requested.
    coder: fn(&[u8], bool) -> Coder,
    symbol_bits: u8,
    distribution: usize,
    escape: bool,
}

impl Shape {
    /// For values of `bits` of the `w` bits of an element.
    fn choose(input: &mut Input<'_>, w: u8, bits: u8, lane_sets: u8) -> Self {
        let coder = if lane_sets == 0 || bits == 0 { 0 } else { input.below(4) };
        let symbol_bits = if coder == 0 { 0 } else { 1 + input.below(usize::from(bits.min(8))) as u8 };
        let z = input.below(usize::from(bits - symbol_bits) + 1) as u8;
        let z = if input.bool() { 0 } else { z };
        let k = input.below(usize::from(bits - symbol_bits - z) + 1) as u8;
        let h = w - symbol_bits - z - k;
        let constant = input.bool().then(|| input.random().u64() & low_bits(bits));
        let (distribution, escape) = (input.below(5), input.bool());
        let sign_plane = z > 0 && input.bool();
        let cluster = Cluster { constant, z, h, k, sign_plane, ..Cluster::default() };
        // Without symbols the coder is not used.
        let coder = [Coder::huffman, Coder::rans, Coder::fine_rans][usize::max(coder, 1) - 1];
        Self { cluster, coder, symbol_bits, distribution, escape }
    }

    fn symbol(&self, random: &mut Random) -> u8 {
        if self.symbol_bits == 0 {
            return 0;
        }
        let below = 1 << self.symbol_bits;
        let symbol = match self.distribution {
            0 => 0,
            1 => random.below(below),
            2 => below - 1 - random.u64().trailing_zeros() as u64 % below,
            3 => random.below(8).pow(3) % below,
            _ => random.below(below),
        };
        symbol as u8
    }

    fn cluster_with_table(&self, symbols: &[u8]) -> Cluster {
        if self.symbol_bits == 0 {
            return self.cluster.clone();
        }
        // Of one distribution only the lower half is known: there are literals as wide as symbols may be.
        let unknown_bits = u8::from(self.distribution == 4);
        let is_known = |&&symbol: &&u8| u64::from(symbol) <= low_bits(self.symbol_bits - unknown_bits);
        let known: Vec<u8> = symbols.iter().filter(is_known).copied().collect();
        let escape = self.escape || known.len() < symbols.len();
        let coder = (self.coder)(&known, escape);
        let pad = if escape && self.escape { Pad::PadSymbolAsLiteral } else { Pad::PadSymbol };
        Cluster { coder, pad, ..self.cluster.clone() }
    }
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
