//! Valid blocks of every shape that the format allows, and small changes to their bytes.

use crate::input::{Input, Random};
use crate::reference::write::Record;
use crate::reference::write::block::{Block, Cluster, Column, Plain, Stream, unmapped};
use crate::reference::write::entropy::{Coder, Pad};
use crate::reference::write::tensor_list::{LIST_DTYPES, ListedTensor, TensorList, told_by};

/// A valid block as the input chooses it: columns, extents, clusters, cluster maps, tables, lane sets.
pub fn block(input: &mut Input<'_>) -> Block {
    let (lane_sets, columns) = columns(input);
    block_of(input, lane_sets, columns)
}

/// Fills all blocks but the last, so that others may follow them; returns the raw bytes.
pub fn fill(blocks: &mut [Block]) -> Vec<u8> {
    if let Some((_, others)) = blocks.split_last_mut() {
        others.iter_mut().for_each(Block::fill);
    }
    blocks.iter().flat_map(Block::raw).collect()
}

/// A block whose tensor lists may be damaged before they are packed; returns whether one is.
pub fn block_of_damaged_lists(input: &mut Input<'_>) -> (Block, bool) {
    let (lane_sets, mut columns) = columns(input);
    let mut damaged = false;
    for column in &mut columns {
        if let Column::TensorList { raw, list } = column
            && input.bool()
        {
            damage_list(raw, list, input);
            damaged = true;
        }
    }
    (block_of(input, lane_sets, columns), damaged)
}

/// The number of lane sets, and columns that use them.
fn columns(input: &mut Input<'_>) -> (u8, Vec<Column>) {
    let lane_sets = 2 * u8::from(input.below(3) > 0);
    let column_count = if input.bool() { 1 } else { 1 + input.below(4) };
    (lane_sets, (0..column_count).map(|_| column(input, lane_sets)).collect())
}

fn block_of(input: &mut Input<'_>, lane_sets: u8, columns: Vec<Column>) -> Block {
    let extents = extents(input, &columns);
    Block { dependencies: Vec::new(), lane_sets, columns, extents, final_state: 1 << 16 }
}

pub(crate) fn column(input: &mut Input<'_>, lane_sets: u8) -> Column {
    let choice = input.u8();
    match choice % 8 {
        0 => Column::Stored(bytes(input)),
        1 => Column::Zstd(bytes(input)),
        _ if choice >= 0xe8 => tensor_list(input).column(),
        _ => Column::Plain(plain_column(input, lane_sets)),
    }
}

pub(crate) fn bytes(input: &mut Input<'_>) -> Vec<u8> {
    let length = 1 + input.below(300);
    let random = input.bool();
    let mut source = input.random();
    if random { source.bytes(length) } else { vec![source.u64() as u8; length] }
}

/// The columns' bytes in an order that alternates between them.
pub(crate) fn extents(input: &mut Input<'_>, columns: &[Column]) -> Vec<(u8, u64)> {
    let mut left: Vec<u64> = columns.iter().map(|column| column.raw().len() as u64).collect();
    let longest = u64::from(input.u16());
    // Thousands of extents, which take long, only where the input asks for them.
    let many = longest >= 0xf000;
    let longest = if many { 1 + longest % 256 } else { 1 + longest.max(left.iter().sum::<u64>() / 128) };
    let mut random = input.random();
    let mut extents = Vec::new();
    while left.iter().any(|&left| left > 0) {
        let column = random.below(columns.len() as u64) as usize;
        let length = (1 + random.below(longest)).min(left[column]);
        if length > 0 {
            extents.push((column as u8, length));
            left[column] -= length;
        }
    }
    extents
}

/// Tensors of any names, dtypes and shapes, between any text.
fn tensor_list(input: &mut Input<'_>) -> TensorList {
    let count = match input.below(4) {
        0 => 1,
        1 | 2 => 1 + input.below(12),
        _ => 1 + input.below(300),
    };
    let (names, shapes) = (input.below(4), input.below(4));
    let (share_all, refer_always) = (input.bool(), input.bool());
    let (front, back) = (input.below(4), input.below(4));
    let mut random = input.random();
    let mut list = TensorList::new("", &[], "");
    list.front = match front {
        0 => b"{".to_vec(),
        1 => br#"{"__metadata__":{"format":"pt"},"#.to_vec(),
        2 => Vec::new(),
        _ => text(&mut random, 60).into(),
    };
    list.back = match back {
        0 => b"}".to_vec(),
        1 => b"}       ".to_vec(),
        2 => Vec::new(),
        _ => text(&mut random, 60).into(),
    };

    let (mut name, mut shape) = (String::new(), Vec::new());
    let mut length = 0u64;
    for i in 0..count {
        name = match names {
            0 => format!("model.layers.{}.mlp.{}.weight", i / 3, ["down", "gate", "up"][i % 3]),
            1 => text(&mut random, 20),
            2 if random.below(2) == 0 => name,
            _ => {
                let kept = name.chars().count().min(40) as u64;
                let kept = random.below(kept + 1) as usize;
                name.chars().take(kept).collect::<String>() + &text(&mut random, 5)
            }
        };
        let dtype = 1 + random.below(LIST_DTYPES.len() as u64 - 1) as u8;
        if i == 0 || random.below(2) == 0 {
            shape = tensor_shape(&mut random, shapes);
        }
        // Only shapes that give lengths, which add up to 64 bits at most.
        let end = |shape: &[u64]| {
            let (name, shape) = (Vec::new(), shape.to_vec());
            let length_of = ListedTensor { name, dtype, shape, shared: 0, same_shape: false }.length();
            length_of.and_then(|of| length.checked_add(of))
        };
        if end(&shape).is_none() {
            shape = vec![8 * random.below(1000)];
        }
        if end(&shape).is_none() {
            shape = vec![3, 0];
        }
        length = end(&shape).expect("a tensor without elements has a length");
        let most_shared = if share_all { usize::MAX } else { random.below(20) as usize };
        list.push(&name, dtype, &shape, most_shared, refer_always || random.below(2) == 0);
    }
    list
}

/// Up to this many characters, of one to four bytes.
fn text(random: &mut Random, most: u64) -> String {
    const CHARACTERS: [char; 16] =
        ['a', 'b', '.', '_', '7', '"', '\\', '{', '}', ',', '\n', '\0', 'ä', '漢', '🦀', '\u{7ff}'];
    (0..random.below(most + 1)).map(|_| CHARACTERS[random.below(16) as usize]).collect()
}

fn tensor_shape(random: &mut Random, kind: usize) -> Vec<u64> {
    let rank = if random.below(50) == 0 { 64 } else { random.below(5) };
    let dimension = |_| match kind {
        0 => 128 * random.below(100),
        1 => random.below(4),
        2 => random.u64() >> random.below(64),
        _ => [0, 1, 8, 1 << 31, (u64::MAX / 64) & !7, u64::MAX][random.below(6) as usize],
    };
    (0..rank).map(dimension).collect()
}

/// Changes a few bytes of a list. The column's bytes become those of the changed list, if it can be read and this is requested.
fn damage_list(raw: &mut Vec<u8>, list: &mut Vec<u8>, input: &mut Input<'_>) {
    let fit = input.below(8) > 0;
    for _ in 0..1 + input.below(8).saturating_sub(5) {
        if input.below(4) == 0 || list.is_empty() {
            mutate_bytes(list, input);
            continue;
        }
        // Meaningful values: dtypes, with the shape before or without, small numbers, parts of a character.
        let at = if input.bool() { input.below(list.len()) } else { input.below(list.len().min(40)) };
        list[at] = match input.below(5) {
            0 => list[at] ^ 0x80,
            1 => list[at] ^ 1,
            2 => [18, 19, 20, 0x92, 0x93][input.below(5)],
            3 => [0, 1, 2, 23, 65, 0xc3, 0xa4][input.below(7)],
            _ => input.u8(),
        };
    }
    if let (true, Some(told)) = (fit, told_by(list, 1 << 17)) {
        *raw = told;
    }
}

fn plain_column(input: &mut Input<'_>, lane_sets: u8) -> Plain {
    let width_code = input.below(4) as u8;
    let map = input.below(3) as u8;
    let elements = element_count(input);
    let (stream, elements) = stream(input, width_code, map, elements, lane_sets);
    Plain { raw: to_bytes(&elements, width_code), width_code, stream }
}

/// A number of elements that fills up its last run, or nearly, or not.
pub(crate) fn element_count(input: &mut Input<'_>) -> usize {
    match input.below(4) {
        0 => 128 * (1 + input.below(4)),
        1 => 127 + input.below(3),
        _ => 1 + input.below(700),
    }
}

/// Elements and their coding, without patches.
pub(crate) fn stream(
    input: &mut Input<'_>,
    width_code: u8,
    map: u8,
    elements: usize,
    lane_sets: u8,
) -> (Stream, Vec<u64>) {
    let w = 8 << width_code;
    let cluster_count = [1, 1, 2, 3, 16][input.below(5)];
    let shapes: Vec<Shape> = (0..cluster_count).map(|_| Shape::choose(input, w, lane_sets)).collect();
    let sparse = input.bool();
    let mut random = input.random();

    let runs = elements.div_ceil(128);
    let used = if sparse { 1 + random.below(cluster_count) } else { cluster_count };
    let cluster_of: Vec<u8> = (0..runs).map(|_| random.below(used) as u8).collect();
    let mut symbols = vec![Vec::new(); cluster_count as usize];
    let mut chosen = Vec::new();
    for e in 0..elements {
        let number = usize::from(cluster_of[e / 128]);
        let shape = &shapes[number];
        let symbol = shape.symbol(&mut random);
        symbols[number].push(symbol);
        let bits = random.u64() & low_bits(shape.cluster.k);
        let v = u128::from(symbol) << (shape.cluster.k + shape.cluster.z) | u128::from(bits) << shape.cluster.z;
        let v = v | u128::from(random.u64() & low_bits(shape.cluster.sign_plane.into()));
        let v = v as u64 ^ shape.cluster.constant.unwrap_or(0);
        chosen.push(unmapped(v & low_bits(w), u32::from(w), map));
    }
    let clusters = shapes.iter().zip(&symbols).map(|(shape, symbols)| shape.cluster_with_table(symbols)).collect();
    let cluster_map = cluster_map(input, &cluster_of, lane_sets);
    (Stream { map, cluster_of, cluster_map, clusters, ..Stream::default() }, chosen)
}

pub(crate) fn to_bytes(elements: &[u64], width_code: u8) -> Vec<u8> {
    elements.iter().flat_map(|u| u.to_le_bytes().into_iter().take(1 << width_code)).collect()
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
    fn choose(input: &mut Input<'_>, w: u8, lane_sets: u8) -> Self {
        let coder = if lane_sets == 0 { 0 } else { input.below(4) };
        let symbol_bits = if coder == 0 { 0 } else { 1 + input.below(usize::from(w.min(8))) as u8 };
        let z = input.below(usize::from(w - symbol_bits) + 1) as u8;
        let z = if input.bool() { 0 } else { z };
        let k = input.below(usize::from(w - symbol_bits - z) + 1) as u8;
        let h = w - symbol_bits - z - k;
        let constant = input.bool().then(|| input.random().u64() & low_bits(w));
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
