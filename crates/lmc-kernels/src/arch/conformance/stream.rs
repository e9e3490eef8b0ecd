//! Streams that kernels write and read.

use super::case::Case;
use crate::arch::job::{DecodeJob, EncodeJob};
use crate::cluster::RUN;
use crate::entropy::lanes::{LaneReader, LaneWriter, LiteralReader, LiteralWriter};
use crate::entropy::table::{DecodeTable, EncodeTable};
use crate::entropy::{CHUNK_WORDS, LANES, SETS, STATE_MIN};
use crate::isa::Isa;
use lmc_layout::error::Result;
use lmc_test_inputs::Random;

/// The encoding of a cluster.
#[derive(PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) raw: Vec<u8>,
    pub(super) words: Vec<Vec<u16>>,
    pub(super) states: Vec<[u32; LANES]>,
    pub(super) literals: Vec<u8>,
}

pub(super) fn encode(isa: Isa, c: &Case, elements: &[u8], start: &[[u32; LANES]; SETS]) -> Encoded {
    let mut lanes = start.map(|x| {
        let mut l = LaneWriter::default();
        l.reset(c.runs.len().div_ceil(SETS));
        l.x = x;
        l
    });
    let mut literals = LiteralWriter::default();
    literals.reset(c.runs.len() * RUN);
    let mut raw = vec![0xaa; c.runs.len() * c.shape.raw_len(RUN)];
    isa.encode_cluster(EncodeJob {
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

/// A stream in a body: more bytes follow the words and the literals.
pub(super) struct Stream {
    pub(super) words: Vec<Vec<u8>>,
    pub(super) word_counts: Vec<usize>,
    pub(super) states: Vec<[u32; LANES]>,
    pub(super) literals: Vec<u8>,
    pub(super) literal_count: usize,
    pub(super) raw: Vec<u8>,
}

impl Stream {
    pub(super) fn of(e: &Encoded, slack: &[u8]) -> Self {
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

    /// Noise, in half of the cases too short.
    pub(super) fn noise(r: &mut Random, c: &Case) -> Self {
        let chunks = c.runs.len().div_ceil(SETS) as u64;
        let states = (0..SETS).map(|_| std::array::from_fn(|_| (r.u64() as u32).max(STATE_MIN))).collect();
        let words: Vec<Vec<u8>> = (0..SETS)
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

/// The state after decoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) column: Vec<u8>,
    pub(super) states: Vec<[u32; LANES]>,
    pub(super) words_taken: Vec<usize>,
    pub(super) literals_taken: usize,
    pub(super) finished: bool,
}

pub(super) fn decode(isa: Isa, c: &Case, s: &Stream) -> Result<Decoded> {
    let mut lanes: [LaneReader<'_>; SETS] = std::array::from_fn(|i| {
        let states: Vec<u8> = s.states[i].iter().flat_map(|x| x.to_le_bytes()).collect();
        LaneReader::new(&states, &s.words[i], s.word_counts[i]).unwrap()
    });
    let mut literals = LiteralReader::new(&s.literals, s.literal_count);
    let mut column = vec![0x55; c.column];
    isa.decode_cluster(DecodeJob {
        table: DecodeTable::new(&c.coder).as_ref(),
        shape: c.shape,
        width: c.width,
        lanes: &mut lanes,
        literals: &mut literals,
        runs: &c.runs,
        raw: &s.raw,
        out: &mut column,
    })?;
    Ok(Decoded {
        column,
        states: lanes.iter().map(|l| l.x).collect(),
        words_taken: lanes.iter().map(|l| l.pos).collect(),
        literals_taken: literals.pos,
        finished: lanes.iter().all(|l| l.finish().is_ok()) && literals.finish().is_ok(),
    })
}
