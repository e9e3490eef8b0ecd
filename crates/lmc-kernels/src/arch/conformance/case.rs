//! Clusters to try kernels on: shapes, tables, elements.

use crate::cluster::RUN;
use crate::cluster::element::{Element, with_element};
use crate::cluster::split::Shape;
use crate::entropy::coder::Coder;
use crate::entropy::entries::Entries;
use crate::entropy::histogram::Histogram;
use crate::entropy::huffman::{self, Huffman};
use crate::entropy::rans::{self, COARSE_BITS, FINE_BITS, Rans};
use crate::map::Map;
use lmc_test_inputs::Random;

pub(super) const MAPS: [Map; 3] = [Map::Identity, Map::Rotate, Map::Zigzag];
/// Numbers of runs: none, pairs, odd ones, more than any kernel processes at once.
const RUNS: [usize; 8] = [0, 1, 2, 3, 4, 7, 16, 33];

/// A cluster, its coding, and the places of its runs in the stream.
pub(super) struct Case {
    pub(super) width: usize,
    pub(super) shape: Shape,
    pub(super) symbol_bits: u32,
    pub(super) coder: Coder,
    pub(super) runs: Vec<u32>,
    /// Elements of the column, in bytes.
    pub(super) column: usize,
}

impl Case {
    pub(super) fn new(r: &mut Random, width: usize, shape: Shape, symbol_bits: u32, coder: Coder, runs: usize) -> Self {
        // Runs of other clusters stand between those of this one.
        let gaps = [1, 1, 3][r.below(3) as usize];
        let mut next = 0;
        let runs = (0..runs)
            .map(|_| {
                next += 1 + r.below(gaps) as u32;
                next - 1
            })
            .collect();
        let column = (next as usize + r.below(2) as usize) * RUN * width + r.below(RUN as u64) as usize * width;
        Self { width, shape, symbol_bits, coder, runs, column }
    }

    /// Any cluster; encoders can build its table.
    pub(super) fn random(r: &mut Random) -> Self {
        let width = [1, 2, 2, 4, 4, 8][r.below(6) as usize];
        let shape = any_shape(r, width);
        let room = 8 * width as u32 - shape.symbol_shift();
        let symbol_bits = room.min(8);
        let coder = match r.below(7) {
            _ if symbol_bits == 0 => Coder::None,
            0 if symbol_bits == room => Coder::None,
            n => built(r, n.saturating_sub(1) as usize % CODERS.len(), symbol_bits),
        };
        let symbol_bits = if matches!(coder, Coder::None) { 0 } else { symbol_bits };
        let runs = RUNS[r.below(RUNS.len() as u64) as usize];
        Self::new(r, width, shape, symbol_bits, coder, runs)
    }

    /// Elements whose symbols are drawn in one of several ways, and whose dropped bits are the constant's.
    pub(super) fn elements(&self, r: &mut Random) -> Vec<u8> {
        let entries = self.coder.entries();
        let known: Vec<u8> = match entries {
            None => vec![0],
            Some(e) => (0..=255u8).filter(|&s| e.of[usize::from(s)] > 0).collect(),
        };
        let escapes = if entries.is_some_and(|e| e.escape > 0) { [0, 1, 10, 50, 100][r.below(5) as usize] } else { 0 };
        let few = 1 + r.below(known.len() as u64);
        let mut column = r.bytes(self.column);
        for &run in &self.runs {
            let run = &mut column[run as usize * RUN * self.width..][..RUN * self.width];
            for e in run.chunks_exact_mut(self.width) {
                let symbol = match self.symbol_bits {
                    0 => 0,
                    b if r.below(100) < escapes => r.below(1 << b),
                    _ => u64::from(known[r.below(few) as usize]),
                };
                with_element!(self.width, E => {
                    let s = &self.shape;
                    let raw = if s.raw_bits == 0 { 0 } else { r.u64() >> (64 - s.raw_bits) };
                    let v = E::cut(symbol).shl(s.symbol_shift()).or(E::cut(raw).shl(s.low));
                    let v = if s.sign_plane { v.or(E::cut(r.below(2))) } else { v };
                    v.xor(E::cut(s.constant)).unmap(s.map).store(e);
                });
            }
        }
        column
    }
}

fn any_shape(r: &mut Random, width: usize) -> Shape {
    let bits = 8 * width as u64;
    let low = [0, 0, 0, r.below(bits + 1)][r.below(4) as usize];
    let left = bits - low;
    let raw_bits = [left.saturating_sub(8), left.saturating_sub(r.below(9)), r.below(left + 1)][r.below(3) as usize];
    let mut shape = plain(MAPS[r.below(3) as usize], raw_bits as u32);
    shape.low = low as u32;
    shape.sign_plane = low > 0 && r.below(2) == 1;
    if r.below(3) == 0 {
        shape.constant = r.u64() >> (64 - bits);
    }
    shape
}

pub(super) fn plain(map: Map, raw_bits: u32) -> Shape {
    Shape { map, low: 0, raw_bits, sign_plane: false, constant: 0 }
}

/// Builds the tables of all coders that have some.
pub(super) const CODERS: [fn(&Histogram, bool) -> Coder; 3] = [
    |h, complete| Coder::Huffman(Box::new(huffman::build(h, complete).0)),
    |h, complete| Coder::Rans(Box::new(rans::build(h, complete, COARSE_BITS).0)),
    |h, complete| Coder::Rans(Box::new(rans::build(h, complete, FINE_BITS).0)),
];

/// A table as an encoder builds it, of one of `CODERS`, for symbols of `symbol_bits` bits.
pub(super) fn built(r: &mut Random, coder: usize, symbol_bits: u32) -> Coder {
    let mut histogram = [0; 256];
    let complete = r.below(4) == 0;
    let n = if complete { 1 << symbol_bits } else { 1 + r.below(1 << symbol_bits) };
    let skew = r.below(12);
    for i in 0..n {
        let s = if complete { i } else { r.below(1 << symbol_bits) };
        histogram[s as usize] = 1 + (r.below(1 << 20) >> (skew * i / 8).min(20)) as u32;
    }
    CODERS[coder](&histogram, complete)
}

/// Any valid table: up to 128 entries, or 256, with or without the escape.
pub(super) fn any_table(r: &mut Random, symbol_bits: u32) -> Coder {
    let mut symbols: Vec<usize> = (0..1 << symbol_bits).collect();
    for i in (1..symbols.len()).rev() {
        symbols.swap(i, r.below(i as u64 + 1) as usize);
    }
    let escape = symbols.len() < 2 || r.below(2) == 1;
    let log_slots = [None, Some(COARSE_BITS), Some(FINE_BITS)][r.below(3) as usize];
    let slots = 1 << log_slots.unwrap_or(COARSE_BITS);
    let most = (symbols.len() + usize::from(escape)).min(slots.min(256));
    let n = [2, 2 + r.below(most as u64 - 1) as usize, most.min(20), most][r.below(4) as usize];
    let columns = if log_slots.is_none() {
        let mut lens = vec![1u16, 1];
        while lens.len() < n {
            let i = r.below(lens.len() as u64) as usize;
            if lens[i] < 7 {
                lens[i] += 1;
                lens.push(lens[i]);
            }
        }
        lens
    } else {
        let mut freqs = vec![1u16; n];
        let favourite = r.below(n as u64) as usize;
        let faithful = [0, 3, 4096][r.below(3) as usize];
        for _ in n..slots {
            let i = if r.below(faithful + 1) > 0 { favourite } else { r.below(n as u64) as usize };
            freqs[i] += 1;
        }
        freqs
    };
    let mut e = Entries::none();
    for (i, &p) in columns.iter().enumerate() {
        if escape && i == 0 { e.escape = p } else { e.of[symbols[i - usize::from(escape)]] = p }
    }
    match log_slots {
        None => Coder::Huffman(Box::new(Huffman::new(e).unwrap())),
        Some(log_slots) => Coder::Rans(Box::new(Rans::new(log_slots, e).unwrap())),
    }
}
