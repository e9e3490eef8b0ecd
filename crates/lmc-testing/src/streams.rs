//! Streams of every valid shape, as the input chooses them.

use crate::input::{Input, Random};
use crate::reference::write::block::{Cluster, Mask, NumberCode, Patch, PatchCodes, Stream};
use crate::reference::write::entropy::{Coder, Pad};

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
    // Of a palette, fewer than all indices may need.
    let bits = if map == 3 { palette.len().ilog2() as u8 } else { 8 << width_code };
    stream_of_bits(input, width_code, Stream { map, palette, ..Stream::default() }, bits, elements, lane_sets)
}

/// [`stream`] with a map, whose mapped values have at most `bits` bits.
pub(crate) fn stream_of_bits(
    input: &mut Input<'_>,
    width_code: u8,
    mut stream: Stream,
    bits: u8,
    elements: usize,
    lane_sets: u8,
) -> (Stream, Vec<u64>) {
    let w = 8 << width_code;
    let cluster_count = [1, 1, 2, 3, 16][input.below(5)];
    let shapes: Vec<Shape> = (0..cluster_count).map(|_| Shape::choose(input, w, bits, lane_sets)).collect();
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

/// Gives a stream without patches some, or none, perhaps instead of its clusters, and changes its elements accordingly, to
/// those that they may be.
pub(crate) fn patch(
    input: &mut Input<'_>,
    width_code: u8,
    stream: &mut Stream,
    elements: &mut [u64],
    may_be: impl Fn(u64) -> bool,
) {
    let w: u8 = 8 << width_code;
    // One element in this many, and the last.
    let one_in = [0, 0, 1, 3, 50, 400][input.below(6)];
    let also_last = input.bool();
    if input.below(6) == 0 {
        (stream.clusters, stream.cluster_of) = (Vec::new(), Vec::new());
        elements.fill(stream.unmapped(0, w.into()));
    }
    let low = if input.bool() { 0 } else { input.below(w.into()) as u8 };
    let (raw_of_gaps, raw_of_changes) = (input.below(64) as u8, input.below(64) as u8);
    let mut random = input.random();
    let last = elements.len().saturating_sub(1);
    for (i, u) in elements.iter_mut().enumerate() {
        let chosen = one_in > 0 && (random.below(one_in) == 0 || also_last && i == last);
        let x = (random.u64() & low_bits(1 + random.below((w - low).into()) as u8)) << low;
        if chosen && x > 0 {
            let v = stream.mapped(*u, w.into()).expect("the element is one of the stream") ^ x;
            if stream.map == 3 && v >= stream.palette.len() as u64 || !may_be(stream.unmapped(v, w.into())) {
                continue;
            }
            *u = stream.unmapped(v, w.into());
            stream.patches.push(Patch { element: i as u64, x });
        }
    }
    if stream.clusters.is_empty() {
        // Listed, not patched.
        let values = elements.iter().map(|&u| stream.mapped(u, w.into()).expect("the element is one of the stream"));
        let listed = (0..).zip(values).filter(|(_, v)| *v != 0);
        stream.patches = listed.map(|(element, x)| Patch { element, x }).collect();
    }
    let low = if stream.clusters.is_empty() { 0 } else { low };
    let after = [0].into_iter().chain(stream.patches.iter().map(|patch| patch.element + 1));
    let gaps: Vec<u64> = stream.patches.iter().zip(after).map(|(patch, after)| patch.element - after).collect();
    let changes: Vec<u64> = stream.patches.iter().map(|patch| (patch.x >> low) - 1).collect();
    stream.patch_codes = PatchCodes {
        low,
        gaps: Some(NumberCode::of(&gaps, raw_of_gaps)),
        changes: Some(NumberCode::of(&changes, raw_of_changes)),
    };
    if stream.clusters.is_empty() {
        stream.patches.clear();
    }
}

/// Gives a stream of one cluster and without patches a mask, or makes it a list, and makes some elements 0.
pub(crate) fn mask(input: &mut Input<'_>, w: u8, stream: &mut Stream, elements: &mut [u64], lane_sets: u8) {
    let kind = input.below(5);
    if stream.clusters.len() != 1 || !stream.patches.is_empty() || stream.map == 3 || kind > 2 {
        return;
    }
    // Bit 0 is cleared: it must not belong to a symbol.
    let Cluster { z, k, constant, .. } = &stream.clusters[0];
    if kind == 1 && (*z > 0 || *k == 0 || constant.is_some()) {
        return;
    }
    // One element in this many is coded, or one in this many hundreds of them.
    let coded_one_in = 1 + input.below(20) as u64;
    let (together, mut random) = (input.bool(), input.random());
    let mut coded = true;
    for (i, u) in elements.iter_mut().enumerate() {
        if !together || i % 100 == 0 {
            coded = random.below(coded_one_in) == 0;
        }
        if !coded {
            // With signs apart, of either sign.
            let zero = if kind == 1 { random.below(2) } else { 0 };
            *u = stream.unmapped(zero, w.into());
        }
    }
    let values: Vec<u64> = elements.iter().map(|&u| stream.mapped(u, w.into()).expect("there is no palette")).collect();
    let selected: Vec<bool> = values.iter().map(|v| v >> u32::from(kind == 1) != 0).collect();
    stream.patch_codes = PatchCodes::default();
    if kind == 2 || !selected.contains(&true) {
        // A list of those that are not 0, if there are any.
        (stream.clusters, stream.cluster_of) = (Vec::new(), Vec::new());
        stream.mask = if selected.contains(&true) { Mask::List } else { Mask::None };
        return;
    }
    let bytes: Vec<u8> =
        selected.chunks(8).map(|b| b.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))).collect();
    let cluster = if lane_sets > 0 && input.bool() {
        Cluster { coder: Coder::fine_rans(&bytes, input.bool()), ..Cluster::default() }
    } else {
        Cluster { k: 8, ..Cluster::default() }
    };
    stream.mask = if kind == 1 { Mask::BitsAndSigns(cluster) } else { Mask::Bits(cluster) };
}
