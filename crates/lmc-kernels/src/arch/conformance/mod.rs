//! Every instruction set of this machine against the portable kernels: the same bytes out, the same elements back, and
//! the same streams refused.
//!
//! `LMC_REQUIRE_ISA=avx2,avx512` makes a set that this machine lacks a failure, so that a test cannot pass by being skipped.

mod case;
mod predict;
mod stream;

use super::decode_chunk;
use crate::cluster::RUN;
use crate::cluster::runs::RunStats;
use crate::entropy::coder::Coder;
use crate::entropy::entries::Entries;
use crate::entropy::lanes::{LaneReader, LiteralReader};
use crate::entropy::rans::{COARSE_BITS, FINE_BITS, Rans};
use crate::entropy::table::DecodeTable;
use crate::entropy::{CHUNK, LANES, SETS, STATE_MIN};
use crate::isa::Isa;
use crate::map::Map;
use case::{CODERS, Case, MAPS, any_table, built, plain};
use lmc_test_inputs::{Random, cases, thorough};
use stream::{Stream, decode, encode};

/// The instruction sets to compare with portable.
fn others() -> Vec<Isa> {
    if let Ok(names) = std::env::var("LMC_REQUIRE_ISA") {
        for name in names.split(',').filter(|n| !n.is_empty()) {
            name.parse::<Isa>().unwrap_or_else(|e| panic!("LMC_REQUIRE_ISA: {e}"));
        }
    }
    Isa::available().into_iter().filter(|&i| i != Isa::PORTABLE).collect()
}

/// Encodes on all instruction sets, compares, decodes on all, compares with the input.
fn round_trip(r: &mut Random, c: &Case) {
    let what = format!("width {} {:?} {} runs {:?}", c.width, c.shape, c.runs.len(), c.coder);
    let elements = c.elements(r);
    let start = [[STATE_MIN; LANES]; SETS];
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
            assert!(got.column[run.clone()] == elements[run], "{} restores other elements: {what}", isa.name());
        }
        assert!(got.finished, "{} does not end in the final state: {what}", isa.name());
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
                let tables = (0..CODERS.len()).map(|i| built(&mut r, i, symbol_bits.max(1)));
                let coders: Vec<Coder> = tables.chain([Coder::None]).collect();
                for coder in coders {
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
fn any_cluster_out_and_back() {
    let mut r = Random::new(2);
    for _ in 0..cases(4000) {
        let c = Case::random(&mut r);
        round_trip(&mut r, &c);
    }
}

#[test]
fn the_shapes_of_weights_at_length() {
    let mut r = Random::new(3);
    for (width, raw_bits) in [(2, 8), (4, 24), (1, 3), (2, 7), (4, 23)] {
        for coder in 0..CODERS.len() {
            for n in [255, 256, 1001] {
                let coder = built(&mut r, coder, 8);
                let c = Case::new(&mut r, width, plain(Map::Rotate, raw_bits), 8, coder, n);
                round_trip(&mut r, &c);
            }
        }
    }
}

fn rans(log_slots: u32, freqs: Entries) -> Coder {
    Coder::Rans(Box::new(Rans::new(log_slots, freqs).unwrap()))
}

/// Encodes from states near `bound`, where errors are most likely; all kernels must agree.
fn from_any_state(r: &mut Random, coder: Coder, bound: u32, runs: usize) {
    let c = Case::new(r, 2, plain(Map::Rotate, 8), 8, coder, runs);
    let elements = c.elements(r);
    // The upper ends of the intervals, where a quotient is most easily one too high.
    let start: [[u32; LANES]; SETS] = std::array::from_fn(|_| {
        std::array::from_fn(|_| match r.below(3) {
            0 => u32::MAX - r.below(300) as u32,
            1 => bound.wrapping_sub(1 + r.below(300) as u32).max(STATE_MIN),
            _ => (r.u64() as u32).max(STATE_MIN),
        })
    });
    let want = encode(Isa::PORTABLE, &c, &elements, &start);
    for isa in others() {
        assert!(encode(isa, &c, &elements, &start) == want, "{}: {:?}", isa.name(), c.coder);
    }
}

/// Every frequency, alone and as a pair with itself and with another, from any state.
#[test]
fn every_coarse_frequency_from_any_state() {
    let mut r = Random::new(4);
    for f in 1..128u16 {
        for escaped in [false, true] {
            let mut e = Entries::none();
            e.of[77] = f;
            if escaped {
                e.escape = 128 - f
            } else {
                e.of[78] = 128 - f
            }
            for _ in 0..cases(20) {
                from_any_state(&mut r, rans(COARSE_BITS, e.clone()), (u32::from(f).pow(2)) << 18, 8);
            }
        }
    }
}

#[test]
fn every_fine_frequency_from_any_state() {
    let mut r = Random::new(9);
    for f in (1..4096u16).step_by(if thorough() { 1 } else { 7 }) {
        let mut e = Entries::none();
        let other = r.below(u64::from(4096 - f)) as u16;
        (e.of[77], e.of[78]) = (f, other);
        if f % 2 == 0 {
            e.of[0] = 4096 - f - other
        } else {
            e.escape = 4096 - f - other
        }
        from_any_state(&mut r, rans(FINE_BITS, e), u32::from(f) << 20, 5);
    }
}

/// Edge cases of fine tables: only literals, one dominant symbol, all 256 symbols without escape.
#[test]
fn fine_tables_at_their_limits() {
    let mut r = Random::new(10);
    let table =
        |entry: &dyn Fn(usize) -> u16, escape| rans(FINE_BITS, Entries { of: std::array::from_fn(entry), escape });
    let coders = [
        table(&|s| u16::from(s == 9), 4095),
        table(&|s| if s == 9 { 4095 } else { 0 }, 1),
        table(&|s| [4095, 1][s.min(1)] * u16::from(s < 2), 0),
        table(&|_| 16, 0),
        table(&|s| if s == 0 { 4096 - 255 } else { 1 }, 0),
        table(&|s| if s == 255 { 4096 - 255 } else { 1 }, 0),
        table(&|s| if s == 7 { 0 } else { 1 }, 4096 - 255),
        table(&|s| if s == 255 { 0 } else { 16 }, 16),
    ];
    for coder in coders {
        for (width, shape) in [(2, plain(Map::Rotate, 8)), (2, plain(Map::Rotate, 7)), (4, plain(Map::Rotate, 24))] {
            for n in [1, 2, 5, 16, 33] {
                let c = Case::new(&mut r, width, shape, 8, coder.clone(), n);
                round_trip(&mut r, &c);
            }
        }
    }
}

#[test]
fn noise_is_decoded_or_refused_alike() {
    let mut r = Random::new(5);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..cases(6000) {
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
    assert!(
        others().is_empty() || accepted > cases(500) && refused > cases(500),
        "{accepted} accepted, {refused} refused"
    );
}

/// A stream cut short at every place, with every amount of slack behind it.
#[test]
fn streams_that_run_out() {
    let mut r = Random::new(6);
    for coder in 0..CODERS.len() {
        let coder = built(&mut r, coder, 8);
        let c = Case::new(&mut r, 2, plain(Map::Rotate, 8), 8, coder, 5);
        for set in 0..SETS {
            let elements = c.elements(&mut r);
            let e = encode(Isa::PORTABLE, &c, &elements, &[[STATE_MIN; LANES]; SETS]);
            for cut in 0..=e.words[set].len().max(e.literals.len()) {
                let mut s = Stream::of(&e, &[]);
                let words = &mut s.words[set];
                words.truncate(words.len().saturating_sub(2 * cut));
                s.word_counts[set] = words.len() / 2;
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
    for coder in 0..CODERS.len() {
        let coder = built(&mut r, coder, 8);
        let c = Case::new(&mut r, 1, plain(Map::Identity, 0), 8, coder, 6);
        let elements = c.elements(&mut r);
        let e = encode(Isa::PORTABLE, &c, &elements, &[[STATE_MIN; LANES]; SETS]);
        let table = DecodeTable::new(&c.coder).unwrap();
        for isa in others() {
            let s = Stream::of(&e, &r.bytes(300));
            let first = Case { runs: c.runs[..4].to_vec(), coder: c.coder.clone(), ..c };
            let got = decode(isa, &first, &s).unwrap();
            let mut lanes: [LaneReader<'_>; SETS] = std::array::from_fn(|i| {
                let states: Vec<u8> = got.states[i].iter().flat_map(|x| x.to_le_bytes()).collect();
                let mut l = LaneReader::new(&states, &s.words[i], s.word_counts[i]).unwrap();
                l.pos = got.words_taken[i];
                l
            });
            let mut literals = LiteralReader::new(&s.literals, s.literal_count);
            literals.pos = got.literals_taken;
            for i in 4..6 {
                let mut symbols = [0; CHUNK];
                decode_chunk(&table, &mut lanes[i % SETS], &mut literals, &mut symbols).unwrap();
                assert_eq!(symbols, elements[c.runs[i] as usize * RUN..][..RUN], "{}", isa.name());
            }
            assert!(lanes.iter().all(|l| l.finish().is_ok()) && literals.finish().is_ok());
        }
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
