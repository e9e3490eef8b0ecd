//! Encoding by the text of §5.2, and tables to encode with.

use super::varint;
use std::cmp::Reverse;
use std::ptr;

/// A cluster's coder, with its table as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Coder {
    #[default]
    None,
    /// Entries are code lengths.
    Huffman(Table),
    /// Entries are frequencies, which sum to 2^`log_slots`.
    Rans { log_slots: u8, table: Table },
}

/// The fields of a table (§5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub first: u8,
    /// At least one, for the symbols from `first` on.
    pub entries: Vec<u16>,
    pub escape: u16,
}

/// Padding of a partial run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pad {
    /// The table's pad symbol.
    #[default]
    PadSymbol,
    /// A symbol of the table: not valid when it is another.
    Symbol(u8),
    /// The pad symbol as a literal: the table must have an escape.
    PadSymbolAsLiteral,
    /// A literal: not valid when it is not the pad symbol.
    Literal(u8),
}

/// Up to 128 symbols that one lane set codes at once; padding completes them.
pub(super) struct Chunk<'a> {
    pub(super) lane_set: usize,
    /// The same reference for all chunks of a cluster.
    pub(super) coder: &'a Coder,
    pub(super) symbols: Vec<u8>,
    pub(super) pad: Pad,
}

/// The encoded lanes of a block.
pub(super) struct Encoded {
    pub(super) states: Vec<[u32; 64]>,
    pub(super) words: Vec<Vec<u16>>,
    pub(super) literals: Vec<u8>,
}

/// How a symbol is pushed.
#[derive(Clone, Copy)]
enum Push {
    Huffman { length: u32, code: u32 },
    Rans { slots: u32, freq: u32, start: u32 },
}

/// Stands for the escape among symbols.
const ESCAPE: usize = 256;

impl Coder {
    /// A Huffman code of the most frequent of `symbols`, with an escape if `escape` is set or one is needed.
    pub fn huffman(symbols: &[u8], escape: bool) -> Self {
        // Every code has 7 bits at first. A code is shortened, the most frequent first, while there is room.
        let present = most_frequent(symbols, escape, 128);
        let mut lengths = vec![7u16; present.len()];
        let mut room = 128 - present.len();
        for length in &mut lengths {
            while *length > 1 && 1 << (7 - *length) <= room {
                room -= 1 << (7 - *length);
                *length -= 1;
            }
        }
        Coder::Huffman(Table::of(&present, &lengths))
    }

    /// A rANS table of 128 slots for the most frequent of `symbols`, with an escape if `escape` is set or one is
    /// needed.
    pub fn rans(symbols: &[u8], escape: bool) -> Self {
        Self::rans_of(7, symbols, escape)
    }

    /// A rANS table of 4096 slots: for all `symbols`, or the 255 most frequent and the escape.
    pub fn fine_rans(symbols: &[u8], escape: bool) -> Self {
        Self::rans_of(12, symbols, escape)
    }

    fn rans_of(log_slots: u8, symbols: &[u8], escape: bool) -> Self {
        let slots = 1 << log_slots;
        let present = most_frequent(symbols, escape, slots.min(256));
        Coder::Rans { log_slots, table: Table::of(&present, &frequencies(&present, symbols, slots)) }
    }

    /// Its number in the head of a cluster.
    pub(super) fn code(&self) -> u8 {
        match self {
            Coder::None => 0,
            Coder::Huffman(_) => 1,
            Coder::Rans { log_slots, .. } => *log_slots,
        }
    }

    /// The table as it is written: nothing where there is no coder.
    pub fn table(&self) -> Vec<u8> {
        match self {
            Coder::None => Vec::new(),
            Coder::Huffman(table) => {
                let halves = table.entries_and_escape();
                let bytes = halves.chunks(2).map(|pair| (pair[0] | pair.get(1).unwrap_or(&0) << 4) as u8);
                table.range().into_iter().chain(bytes).collect()
            }
            Coder::Rans { table, .. } => {
                let mut bytes = table.range().to_vec();
                table.entries_and_escape().into_iter().for_each(|freq| varint(&mut bytes, freq.into()));
                bytes
            }
        }
    }

    /// How to push each symbol and the escape; `None` for symbols that are not in the table.
    fn pushes(&self) -> Vec<Option<Push>> {
        let mut pushes = vec![None; 257];
        match self {
            Coder::None => (),
            Coder::Rans { log_slots, table } => {
                for (symbol, freq, start) in table.starts() {
                    pushes[symbol] = Some(Push::Rans { slots: 1 << log_slots, freq, start });
                }
            }
            Coder::Huffman(table) => {
                let mut sorted: Vec<(u32, usize)> = table.present().map(|(symbol, length)| (length, symbol)).collect();
                sorted.sort();
                let mut previous: Option<(u32, u32)> = None;
                for (length, symbol) in sorted {
                    let code = previous.map_or(0, |(code, shorter)| (code + 1) << (length - shorter));
                    previous = Some((code, length));
                    pushes[symbol] = Some(Push::Huffman { length, code: code.reverse_bits() >> (32 - length) });
                }
            }
        }
        pushes
    }

    fn pad_symbol(&self) -> Option<u8> {
        let plain = |&(symbol, _): &(usize, u32)| symbol != ESCAPE;
        let best = match self {
            Coder::None => None,
            Coder::Huffman(table) => table.present().filter(plain).min_by_key(|&(symbol, length)| (length, symbol)),
            Coder::Rans { table, .. } => {
                table.present().filter(plain).min_by_key(|&(symbol, freq)| (Reverse(freq), symbol))
            }
        };
        best.map(|(symbol, _)| symbol as u8)
    }
}

impl Table {
    /// A table of these symbols; one may be the escape.
    fn of(symbols: &[usize], values: &[u16]) -> Self {
        let plain = || symbols.iter().copied().filter(|&symbol| symbol != ESCAPE);
        let first = plain().min().unwrap_or(0);
        let mut entries = vec![0; plain().max().unwrap_or(0) - first + 1];
        let mut escape = 0;
        for (&symbol, &value) in symbols.iter().zip(values) {
            match symbol {
                ESCAPE => escape = value,
                _ => entries[symbol - first] = value,
            }
        }
        Self { first: first as u8, entries, escape }
    }

    /// Symbols and their entries, the escape last.
    fn present(&self) -> impl Iterator<Item = (usize, u32)> {
        let symbols = (usize::from(self.first)..).zip(self.entries.iter().copied()).chain([(ESCAPE, self.escape)]);
        symbols.map(|(symbol, entry)| (symbol, entry.into())).filter(|&(_, entry)| entry != 0)
    }

    /// Symbols, frequencies and starts, the escape last.
    fn starts(&self) -> impl Iterator<Item = (usize, u32, u32)> {
        self.present().scan(0, |end, (symbol, freq)| {
            let start = *end;
            *end += freq;
            Some((symbol, freq, start))
        })
    }

    /// The first two bytes: the first symbol, and the number of entries for symbols less one.
    fn range(&self) -> [u8; 2] {
        [self.first, (self.entries.len() - 1) as u8]
    }

    fn entries_and_escape(&self) -> Vec<u16> {
        self.entries.iter().copied().chain([self.escape]).collect()
    }
}

/// The frequencies of the symbols `present`, which sum to `slots`: each at least 1, none all slots.
fn frequencies(present: &[usize], symbols: &[u8], slots: usize) -> Vec<u16> {
    let mut counts = [0; ESCAPE + 1];
    symbols.iter().for_each(|&symbol| counts[usize::from(symbol)] += 1);
    let spare = slots - present.len();
    let share = |&symbol: &usize| 1 + (counts[symbol] * spare / symbols.len().max(1)).min(slots - 2);
    let mut freqs: Vec<usize> = present.iter().map(share).collect();
    let mut room = slots - freqs.iter().sum::<usize>();
    for freq in &mut freqs {
        let more = room.min(slots - 1 - *freq);
        *freq += more;
        room -= more;
    }
    freqs.into_iter().map(|freq| freq as u16).collect()
}

/// At least two and at most `most` symbols, the most frequent first, and among them the escape where it is wanted or
/// needed.
fn most_frequent(symbols: &[u8], escape: bool, most: usize) -> Vec<usize> {
    let mut counts: Vec<(usize, usize)> = (0..256).map(|symbol| (0, symbol)).collect();
    symbols.iter().for_each(|&symbol| counts[usize::from(symbol)].0 += 1);
    counts.sort_by_key(|&(count, symbol)| (usize::MAX - count, symbol));
    let mut present: Vec<usize> = counts.iter().filter(|&&(count, _)| count > 0).map(|&(_, symbol)| symbol).collect();
    if present.is_empty() {
        present.push(0);
    }
    if escape || present.len() == 1 || present.len() > most {
        present.truncate(most - 1);
        present.push(ESCAPE);
    }
    present
}

impl Push {
    fn freq(self) -> u32 {
        match self {
            Push::Huffman { length, .. } => 1 << (7 - length),
            Push::Rans { freq, .. } => freq,
        }
    }

    fn push(self, x: &mut u32) {
        *x = match self {
            Push::Huffman { length, code } => *x << length | code,
            Push::Rans { slots, freq, start } => (*x / freq) * slots + *x % freq + start,
        };
    }
}

/// Codes all chunks of a block.
pub(super) fn encode(chunks: &[Chunk<'_>], lane_sets: usize, final_state: u32) -> Result<Encoded, String> {
    let mut literals = Vec::new();
    let mut pushes_of_chunks = Vec::with_capacity(chunks.len());
    for cluster in chunks.chunk_by(|a, b| ptr::eq(a.coder, b.coder)) {
        let table = cluster[0].coder.pushes();
        let pad_symbol = cluster[0].coder.pad_symbol().ok_or("a table has no symbol")?;
        for chunk in cluster {
            let mut pushes = Vec::with_capacity(128);
            for &symbol in &chunk.symbols {
                pushes.push(match table[usize::from(symbol)] {
                    Some(push) => push,
                    None => {
                        literals.push(symbol);
                        table[ESCAPE].ok_or("a symbol is not in its table, which has no escape")?
                    }
                });
            }
            let (pad, literal) = match chunk.pad {
                Pad::PadSymbol => (usize::from(pad_symbol), None),
                Pad::Symbol(symbol) => (usize::from(symbol), None),
                Pad::PadSymbolAsLiteral => (ESCAPE, Some(pad_symbol)),
                Pad::Literal(literal) => (ESCAPE, Some(literal)),
            };
            if let Some(literal) = literal {
                literals.resize(literals.len() + 128 - pushes.len(), literal);
            }
            pushes.resize(128, table[pad].ok_or("the pad symbol is not in its table")?);
            pushes_of_chunks.push(pushes);
        }
    }

    let mut order: Vec<usize> = (0..64).collect();
    order.sort_by_key(|j| (j % 4, j / 4));
    let mut states = vec![[final_state; 64]; lane_sets];
    let mut words = vec![Vec::new(); lane_sets];
    for (chunk, pushes) in chunks.iter().zip(&pushes_of_chunks).rev() {
        let (states, words) = (&mut states[chunk.lane_set], &mut words[chunk.lane_set]);
        let (first, second) = pushes.split_at(64);
        if let Coder::Rans { log_slots: 12, .. } = chunk.coder {
            for pushes in [second, first] {
                for &j in order.iter().rev() {
                    emit(&mut states[j], u64::from(pushes[j].freq()) << 20, words);
                    pushes[j].push(&mut states[j]);
                }
            }
        } else {
            for &j in order.iter().rev() {
                emit(&mut states[j], u64::from(first[j].freq() * second[j].freq()) << 18, words);
                second[j].push(&mut states[j]);
                first[j].push(&mut states[j]);
            }
        }
    }
    words.iter_mut().for_each(|words| words.reverse());
    Ok(Encoded { states, words, literals })
}

/// Moves the low half of a state to the words where the state has reached the limit.
fn emit(x: &mut u32, limit: u64, words: &mut Vec<u16>) {
    if u64::from(*x) >= limit {
        words.push(*x as u16);
        *x >>= 16;
    }
}
