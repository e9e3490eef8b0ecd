//! Every instruction set of this machine against the portable kernels: the same bytes out, the same elements back, and
//! the same streams refused.
//!
//! `LMC_REQUIRE_ISA=avx2,avx512` makes a set that this machine lacks a failure, so that a test cannot pass by being skipped.

use super::job::{DecodeJob, EncodeJob};
use super::{Isa, decode_chunk};
use crate::block::head::{Coder, Entries};
use crate::entropy::lanes::{LaneReader, LaneWriter, LiteralReader, LiteralWriter};
use crate::entropy::table::{DecodeTable, EncodeTable};
use crate::entropy::{CHUNK, CHUNK_WORDS, LANES, STATE_MIN, huffman, rans};
use crate::error::Result;
use crate::group::RUN;
use crate::group::classes::RunStats;
use crate::group::element::{Element, with_element};
use crate::group::split::Shape;
use crate::map::Map;
use lmc_testing::input::Random;

const MAPS: [Map; 3] = [Map::Identity, Map::Rotate, Map::Zigzag];
/// Numbers of runs: none, pairs, odd ones, more than any kernel takes at once.
const RUNS: [usize; 8] = [0, 1, 2, 3, 4, 7, 16, 33];

/// The instruction sets to try; portable is the measure of the others.
fn others() -> Vec<Isa> {
    if let Ok(names) = std::env::var("LMC_REQUIRE_ISA") {
        for name in names.split(',').filter(|n| !n.is_empty()) {
            Isa::named(name).unwrap_or_else(|e| panic!("LMC_REQUIRE_ISA: {e}"));
        }
    }
    Isa::available().into_iter().filter(|&i| i != Isa::PORTABLE).collect()
}

/// A group, how it is coded, and where its runs stand in the part.
struct Case {
    width: usize,
    shape: Shape,
    symbol_bits: u32,
    coder: Coder,
    sets: usize,
    runs: Vec<u32>,
    /// Elements of the part, in bytes.
    part: usize,
}

impl Case {
    fn new(r: &mut Random, width: usize, shape: Shape, symbol_bits: u32, coder: Coder, runs: usize) -> Self {
        // Runs of other groups stand between those of this one.
        let gaps = [1, 1, 3][r.below(3) as usize];
        let mut next = 0;
        let runs = (0..runs)
            .map(|_| {
                next += 1 + r.below(gaps) as u32;
                next - 1
            })
            .collect();
        let part = (next as usize + r.below(2) as usize) * RUN * width + r.below(RUN as u64) as usize * width;
        Self { width, shape, symbol_bits, coder, sets: 1 + r.below(2) as usize, runs, part }
    }

    /// Any group; encoders can build its table.
    fn random(r: &mut Random) -> Self {
        let width = [1, 2, 2, 4, 4, 8][r.below(6) as usize];
        let shape = any_shape(r, width);
        let room = 8 * width as u32 - shape.symbol_shift();
        let symbol_bits = room.min(8);
        let coder = match r.below(5) {
            _ if symbol_bits == 0 => Coder::None,
            0 if symbol_bits == room => Coder::None,
            1 | 2 => Coder::Huffman(Box::new(built(r, symbol_bits, huffman::build))),
            _ => Coder::Rans(Box::new(built(r, symbol_bits, rans::build))),
        };
        let symbol_bits = if matches!(coder, Coder::None) { 0 } else { symbol_bits };
        let runs = RUNS[r.below(RUNS.len() as u64) as usize];
        Self::new(r, width, shape, symbol_bits, coder, runs)
    }

    /// Elements whose symbols are drawn in one of several ways, and whose dropped bits are the constant's.
    fn elements(&self, r: &mut Random) -> Vec<u8> {
        let known: Vec<u8> = match &self.coder {
            Coder::None => vec![0],
            Coder::Huffman(e) | Coder::Rans(e) => (0..=255u8).filter(|&s| e.of[usize::from(s)] > 0).collect(),
        };
        let escapes = match &self.coder {
            Coder::Huffman(e) | Coder::Rans(e) if e.escape > 0 => [0, 1, 10, 50, 100][r.below(5) as usize],
            _ => 0,
        };
        let few = 1 + r.below(known.len() as u64);
        let mut part = r.bytes(self.part);
        for &run in &self.runs {
            let run = &mut part[run as usize * RUN * self.width..][..RUN * self.width];
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
        part
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

fn plain(map: Map, raw_bits: u32) -> Shape {
    Shape { map, low: 0, raw_bits, sign_plane: false, constant: 0 }
}

/// A table as encoders build them, for symbols of so many bits.
fn built(r: &mut Random, symbol_bits: u32, build: fn(&[u32; 256], bool) -> (Entries, u64)) -> Entries {
    let mut histogram = [0; 256];
    let complete = r.below(4) == 0;
    let n = if complete { 1 << symbol_bits } else { 1 + r.below(1 << symbol_bits) };
    let skew = r.below(12);
    for i in 0..n {
        let s = if complete { i } else { r.below(1 << symbol_bits) };
        histogram[s as usize] = 1 + (r.below(1 << 20) >> (skew * i / 8).min(20)) as u32;
    }
    build(&histogram, complete).0
}

/// Any valid table, such as a decoder may meet: up to 128 entries, the escape perhaps among them.
fn any_table(r: &mut Random, symbol_bits: u32) -> Coder {
    let mut symbols: Vec<usize> = (0..1 << symbol_bits).collect();
    for i in (1..symbols.len()).rev() {
        symbols.swap(i, r.below(i as u64 + 1) as usize);
    }
    let escape = symbols.len() < 2 || r.below(2) == 1;
    let most = (symbols.len() + usize::from(escape)).min(128);
    let n = [2, 2 + r.below(most as u64 - 1) as usize, most.min(20), most][r.below(4) as usize];
    let huffman = r.below(2) == 1;
    let parts = if huffman {
        let mut lens = vec![1u8, 1];
        while lens.len() < n {
            let i = r.below(lens.len() as u64) as usize;
            if lens[i] < 7 {
                lens[i] += 1;
                lens.push(lens[i]);
            }
        }
        lens
    } else {
        let mut freqs = vec![1u8; n];
        let favourite = r.below(n as u64) as usize;
        for _ in n..128 {
            let i = if r.below(3) > 0 { favourite } else { r.below(n as u64) as usize };
            freqs[i] += 1;
        }
        freqs
    };
    let mut e = Entries { of: [0; 256], escape: 0 };
    for (i, &p) in parts.iter().enumerate() {
        if escape && i == 0 { e.escape = p } else { e.of[symbols[i - usize::from(escape)]] = p }
    }
    if huffman { Coder::Huffman(Box::new(e)) } else { Coder::Rans(Box::new(e)) }
}

/// What an encoder made of a group.
#[derive(PartialEq, Eq)]
struct Encoded {
    raw: Vec<u8>,
    words: Vec<Vec<u16>>,
    states: Vec<[u32; LANES]>,
    literals: Vec<u8>,
}

fn encode(isa: Isa, c: &Case, elements: &[u8], start: &[[u32; LANES]]) -> Encoded {
    let mut lanes: Vec<LaneWriter> = start
        .iter()
        .map(|x| {
            let mut l = LaneWriter::new();
            l.reset(c.runs.len().div_ceil(c.sets));
            l.x = *x;
            l
        })
        .collect();
    let mut literals = LiteralWriter::new();
    literals.reset(c.runs.len() * RUN);
    let mut raw = vec![0xaa; c.runs.len() * c.shape.raw_len(RUN)];
    isa.encode_group(EncodeJob {
        table: EncodeTable::new(&c.coder).as_ref(),
        shape: c.shape,
        width: c.width,
        lanes: &mut lanes,
        literals: &mut literals,
        runs: &c.runs,
        raw: &mut raw,
        elements,
    });
    Encoded {
        raw,
        words: lanes.iter().map(|l| l.written().to_vec()).collect(),
        states: lanes.iter().map(|l| l.x).collect(),
        literals: literals.written().to_vec(),
    }
}

/// A stream as a decoder finds it: what follows the words and the literals is part of the body, too.
struct Stream {
    words: Vec<Vec<u8>>,
    word_counts: Vec<usize>,
    states: Vec<[u32; LANES]>,
    literals: Vec<u8>,
    literal_count: usize,
    raw: Vec<u8>,
}

impl Stream {
    fn of(e: &Encoded, slack: &[u8]) -> Self {
        let bytes = |w: &Vec<u16>| w.iter().flat_map(|w| w.to_le_bytes()).chain(slack.iter().copied()).collect();
        Self {
            words: e.words.iter().map(bytes).collect(),
            word_counts: e.words.iter().map(Vec::len).collect(),
            states: e.states.clone(),
            literals: [&e.literals[..], slack].concat(),
            literal_count: e.literals.len(),
            raw: e.raw.clone(),
        }
    }

    /// Noise, and less of it than needed as often as not.
    fn noise(r: &mut Random, c: &Case) -> Self {
        let chunks = c.runs.len().div_ceil(c.sets) as u64;
        let states = (0..c.sets).map(|_| std::array::from_fn(|_| (r.u64() as u32).max(STATE_MIN))).collect();
        let words: Vec<Vec<u8>> = (0..c.sets)
            .map(|_| {
                let n = r.below(chunks * 2 * CHUNK_WORDS as u64 + 2);
                r.bytes(n as usize)
            })
            .collect();
        let enough = c.runs.len() * RUN;
        let literals = if r.below(2) == 0 { r.below(enough as u64 + 1) as usize } else { enough };
        let literals = r.bytes(literals);
        Self {
            word_counts: words.iter().map(|w| w.len() / 2).collect(),
            words,
            states,
            literal_count: literals.len(),
            literals,
            raw: r.bytes(c.runs.len() * c.shape.raw_len(RUN)),
        }
    }
}

/// What a decoder leaves behind.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    part: Vec<u8>,
    states: Vec<[u32; LANES]>,
    words_taken: Vec<usize>,
    literals_taken: usize,
    finished: bool,
}

fn decode(isa: Isa, c: &Case, s: &Stream) -> Result<Decoded> {
    let mut lanes: Vec<LaneReader<'_>> = (0..c.sets)
        .map(|i| {
            let states: Vec<u8> = s.states[i].iter().flat_map(|x| x.to_le_bytes()).collect();
            LaneReader::new(&states, &s.words[i], s.word_counts[i]).unwrap()
        })
        .collect();
    let mut literals = LiteralReader::new(&s.literals, s.literal_count);
    let mut part = vec![0x55; c.part];
    isa.decode_group(DecodeJob {
        table: DecodeTable::new(&c.coder).unwrap().as_ref(),
        shape: c.shape,
        width: c.width,
        lanes: &mut lanes,
        literals: &mut literals,
        runs: &c.runs,
        raw: &s.raw,
        out: &mut part,
    })?;
    Ok(Decoded {
        part,
        states: lanes.iter().map(|l| l.x).collect(),
        words_taken: lanes.iter().map(|l| l.pos).collect(),
        literals_taken: literals.pos,
        finished: lanes.iter().all(|l| l.finish().is_ok()) && literals.finish().is_ok(),
    })
}

/// Encodes on all instruction sets, compares, decodes on all, compares with what went in.
fn round_trip(r: &mut Random, c: &Case) {
    let what = format!("width {} {:?} {} sets {} runs {:?}", c.width, c.shape, c.sets, c.runs.len(), c.coder);
    let elements = c.elements(r);
    let start = vec![[STATE_MIN; LANES]; c.sets];
    let want = encode(Isa::PORTABLE, c, &elements, &start);
    for isa in others() {
        assert!(encode(isa, c, &elements, &start) == want, "{} encodes other bytes: {what}", isa.name());
    }
    let slack = [0, 1, 15, 63, 127, 128, 256, 400][r.below(8) as usize];
    let stream = Stream::of(&want, &r.bytes(slack));
    for isa in [Isa::PORTABLE].into_iter().chain(others()) {
        let got = decode(isa, c, &stream).unwrap_or_else(|e| panic!("{}: {e}: {what}", isa.name()));
        for &run in &c.runs {
            let run = run as usize * RUN * c.width..(run as usize + 1) * RUN * c.width;
            assert!(got.part[run.clone()] == elements[run], "{} restores other elements: {what}", isa.name());
        }
        assert!(got.finished, "{} does not end where it must: {what}", isa.name());
    }
}

#[test]
fn every_split_of_every_width() {
    let mut r = Random::new(1);
    for width in [1usize, 2, 4, 8] {
        let bits = 8 * width as u32;
        for map in MAPS {
            for raw_bits in 0..=bits {
                let symbol_bits = (bits - raw_bits).min(8);
                for coder in [
                    Coder::None,
                    Coder::Huffman(Box::new(built(&mut r, symbol_bits.max(1), huffman::build))),
                    Coder::Rans(Box::new(built(&mut r, symbol_bits.max(1), rans::build))),
                ] {
                    let symbol_bits = if matches!(coder, Coder::None) { 0 } else { symbol_bits };
                    let n = 1 + r.below(5) as usize;
                    let c = Case::new(&mut r, width, plain(map, raw_bits), symbol_bits, coder, n);
                    if symbol_bits > 0 || matches!(c.coder, Coder::None) {
                        round_trip(&mut r, &c);
                    }
                }
            }
        }
    }
}

#[test]
fn any_group_out_and_back() {
    let mut r = Random::new(2);
    for _ in 0..4000 {
        let c = Case::random(&mut r);
        round_trip(&mut r, &c);
    }
}

#[test]
fn the_shapes_of_weights_at_length() {
    let mut r = Random::new(3);
    for (width, raw_bits) in [(2, 8), (4, 24), (1, 3), (2, 7), (4, 23)] {
        for build in [false, true] {
            for n in [255, 256, 1001] {
                let table = built(&mut r, 8, if build { huffman::build } else { rans::build });
                let coder = if build { Coder::Huffman(Box::new(table)) } else { Coder::Rans(Box::new(table)) };
                let c = Case::new(&mut r, width, plain(Map::Rotate, raw_bits), 8, coder, n);
                round_trip(&mut r, &c);
            }
        }
    }
}

/// Every frequency that an encoder may use, alone and as a pair with itself and with others, from any state.
#[test]
fn every_frequency_from_any_state() {
    let mut r = Random::new(4);
    for f in (1..=127u8).filter(|&f| rans::divides_exactly(u32::from(f))) {
        for escaped in [false, true] {
            let mut e = Entries { of: [0; 256], escape: 0 };
            e.of[77] = f;
            let rest = 128 - f;
            let other = if rans::divides_exactly(u32::from(rest)) { rest } else { rest / 2 };
            let n = rest - other;
            if escaped {
                e.escape = other
            } else {
                e.of[78] = other
            }
            if n > 0 {
                e.of[79] = n;
            }
            let c = Case::new(&mut r, 2, plain(Map::Rotate, 8), 8, Coder::Rans(Box::new(e)), 8);
            for _ in 0..20 {
                let elements = c.elements(&mut r);
                // The upper ends of the intervals, where a quotient is most easily one too high.
                let start: Vec<[u32; LANES]> = (0..c.sets)
                    .map(|_| {
                        std::array::from_fn(|_| match r.below(3) {
                            0 => u32::MAX - r.below(300) as u32,
                            1 => (u32::from(f).pow(2) << 18).wrapping_sub(1 + r.below(300) as u32).max(STATE_MIN),
                            _ => (r.u64() as u32).max(STATE_MIN),
                        })
                    })
                    .collect();
                let want = encode(Isa::PORTABLE, &c, &elements, &start);
                for isa in others() {
                    assert!(encode(isa, &c, &elements, &start) == want, "{}: frequency {f}", isa.name());
                }
            }
        }
    }
}

#[test]
fn noise_is_decoded_or_refused_alike() {
    let mut r = Random::new(5);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..6000 {
        let mut c = Case::random(&mut r);
        c.symbol_bits = (8 * c.width as u32 - c.shape.symbol_shift()).min(8);
        if c.symbol_bits > 0 && r.below(8) > 0 {
            c.coder = any_table(&mut r, c.symbol_bits);
        }
        let s = Stream::noise(&mut r, &c);
        let want = decode(Isa::PORTABLE, &c, &s);
        for isa in others() {
            match (&want, decode(isa, &c, &s)) {
                (Ok(want), Ok(got)) => {
                    assert!(*want == got, "{} decodes otherwise: {:?} {:?}", isa.name(), c.shape, c.coder);
                    accepted += 1;
                }
                (Err(_), Err(_)) => refused += 1,
                (Ok(_), Err(e)) => panic!("{} refuses what portable takes: {e}", isa.name()),
                (Err(e), Ok(_)) => panic!("{} takes what portable refuses: {e}", isa.name()),
            }
        }
    }
    assert!(others().is_empty() || accepted > 500 && refused > 500, "{accepted} accepted, {refused} refused");
}

/// A stream cut short at every place, with every amount of slack behind it.
#[test]
fn streams_that_run_out() {
    let mut r = Random::new(6);
    for huffman in [false, true] {
        let coder = if huffman {
            Coder::Huffman(Box::new(built(&mut r, 8, huffman::build)))
        } else {
            Coder::Rans(Box::new(built(&mut r, 8, rans::build)))
        };
        let mut c = Case::new(&mut r, 2, plain(Map::Rotate, 8), 8, coder, 5);
        for sets in [1, 2] {
            c.sets = sets;
            let elements = c.elements(&mut r);
            let e = encode(Isa::PORTABLE, &c, &elements, &vec![[STATE_MIN; LANES]; sets]);
            for cut in 0..=e.words[sets - 1].len().max(e.literals.len()) {
                let mut s = Stream::of(&e, &[]);
                let words = &mut s.words[sets - 1];
                words.truncate(words.len().saturating_sub(2 * cut));
                s.word_counts[sets - 1] = words.len() / 2;
                if cut % 3 == 0 {
                    s.literals.truncate(s.literals.len().saturating_sub(cut));
                    s.literal_count = s.literals.len();
                }
                let want = decode(Isa::PORTABLE, &c, &s).ok();
                for isa in others() {
                    assert!(decode(isa, &c, &s).ok() == want, "{}: {cut} cut off", isa.name());
                }
            }
        }
    }
}

/// The chunk of a partial run is always coded by the portable kernel, wherever the whole runs before it were.
#[test]
fn a_chunk_follows_on_from_any_kernel() {
    let mut r = Random::new(7);
    let coder = Coder::Rans(Box::new(built(&mut r, 8, rans::build)));
    let c = Case::new(&mut r, 1, plain(Map::Identity, 0), 8, coder, 6);
    let elements = c.elements(&mut r);
    let e = encode(Isa::PORTABLE, &c, &elements, &vec![[STATE_MIN; LANES]; c.sets]);
    let table = DecodeTable::new(&c.coder).unwrap().unwrap();
    for isa in others() {
        let s = Stream::of(&e, &r.bytes(300));
        let first = Case { runs: c.runs[..4].to_vec(), coder: c.coder.clone(), ..c };
        let got = decode(isa, &first, &s).unwrap();
        let mut lanes: Vec<LaneReader<'_>> = (0..c.sets)
            .map(|i| {
                let states: Vec<u8> = got.states[i].iter().flat_map(|x| x.to_le_bytes()).collect();
                let mut l = LaneReader::new(&states, &s.words[i], s.word_counts[i]).unwrap();
                l.pos = got.words_taken[i];
                l
            })
            .collect();
        let mut literals = LiteralReader::new(&s.literals, s.literal_count);
        literals.pos = got.literals_taken;
        for i in 4..6 {
            let mut symbols = [0; CHUNK];
            decode_chunk(&table, &mut lanes[i % c.sets], &mut literals, &mut symbols).unwrap();
            assert_eq!(symbols, elements[c.runs[i] as usize * RUN..][..RUN], "{}", isa.name());
        }
        assert!(lanes.iter().all(|l| l.finish().is_ok()) && literals.finish().is_ok());
    }
}

#[test]
fn statistics_agree() {
    let mut r = Random::new(8);
    for width in [1usize, 2, 4, 8] {
        for map in MAPS {
            for n in [1, 7, 127, 128, 129, 255, 256, 1000, 5000] {
                let mask = r.bytes(8);
                let elements: Vec<u8> =
                    r.bytes(n * width).iter().zip(mask.iter().cycle()).map(|(e, m)| e & m).collect();
                let of = |isa: Isa| {
                    let mut stats = RunStats::default();
                    isa.run_stats(width, map, &elements, &mut stats);
                    (stats.sum, stats.or, stats.and)
                };
                let want = of(Isa::PORTABLE);
                for isa in others() {
                    assert!(of(isa) == want, "{}: {n} elements of {width} bytes, {map:?}", isa.name());
                }
            }
        }
    }
}
