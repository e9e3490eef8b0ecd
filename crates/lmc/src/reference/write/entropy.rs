//! Encoding by the text of §5.2, and tables to encode with.

/// A group's coder, with its table as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Coder {
    #[default]
    None,
    /// Entries are code lengths.
    Huffman(Table),
    /// Entries are frequencies.
    Rans(Table),
}

/// The fields of a table (§5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub first: u8,
    /// At least one, for the symbols from `first` on.
    pub entries: Vec<u8>,
    pub escape: u8,
}

/// What fills up a partial run.
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

/// 128 symbols that one lane set codes at once, or fewer: then padding fills them up.
pub(super) struct Chunk {
    pub(super) lane_set: usize,
    pub(super) coder: Coder,
    pub(super) symbols: Vec<u8>,
    pub(super) pad: Pad,
}

/// What the lanes of a block leave in its body.
pub(super) struct Encoded {
    pub(super) states: Vec<[u32; 64]>,
    pub(super) words: Vec<Vec<u16>>,
    pub(super) literals: Vec<u8>,
}

/// How a symbol is pushed.
#[derive(Clone, Copy)]
enum Push {
    Huffman { length: u32, code: u32 },
    Rans { freq: u32, start: u32 },
}

/// Stands for the escape among symbols.
const ESCAPE: usize = 256;

impl Coder {
    /// A Huffman code of the most frequent of `symbols`, the escape if `escape` says so or one is needed.
    pub fn huffman(symbols: &[u8], escape: bool) -> Self {
        // Every code has 7 bits at first. A code is shortened, the most frequent first, while there is room.
        let present = most_frequent(symbols, escape);
        let mut lengths = vec![7u8; present.len()];
        let mut room = 128 - present.len();
        for length in &mut lengths {
            while *length > 1 && 1 << (7 - *length) <= room {
                room -= 1 << (7 - *length);
                *length -= 1;
            }
        }
        Coder::Huffman(Table::of(&present, &lengths))
    }

    /// A rANS table of the most frequent of `symbols`, the escape if `escape` says so or one is needed.
    pub fn rans(symbols: &[u8], escape: bool) -> Self {
        let present = most_frequent(symbols, escape);
        let count = |symbol: usize| symbols.iter().filter(|&&s| usize::from(s) == symbol).count();
        let spare = 128 - present.len();
        let mut freqs: Vec<u8> =
            present.iter().map(|&symbol| 1 + (count(symbol) * spare / symbols.len().max(1)).min(126) as u8).collect();
        let mut room = 128 - freqs.iter().map(|&freq| usize::from(freq)).sum::<usize>();
        for freq in &mut freqs {
            let more = room.min(127 - usize::from(*freq));
            *freq += more as u8;
            room -= more;
        }
        Coder::Rans(Table::of(&present, &freqs))
    }

    pub(super) fn write_table(&self, head: &mut Vec<u8>) {
        let (Coder::Huffman(table) | Coder::Rans(table)) = self else { return };
        head.extend([table.first, (table.entries.len() - 1) as u8]);
        let entries: Vec<u8> = table.entries.iter().copied().chain([table.escape]).collect();
        match self {
            Coder::Huffman(_) => {
                head.extend(entries.chunks(2).map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4));
            }
            _ => head.extend(entries),
        }
    }

    /// How to push each symbol and the escape; `None` for what is not in the table.
    fn pushes(&self) -> Vec<Option<Push>> {
        let mut pushes = vec![None; 257];
        match self {
            Coder::None => (),
            Coder::Rans(table) => {
                let mut start = 0;
                for (symbol, freq) in table.present() {
                    pushes[symbol] = Some(Push::Rans { freq, start });
                    start += freq;
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
        let symbols = |table: &Table| table.present().filter(|&(symbol, _)| symbol != ESCAPE).collect::<Vec<_>>();
        let best = match self {
            Coder::None => None,
            Coder::Huffman(table) => symbols(table).into_iter().min_by_key(|&(symbol, length)| (length, symbol)),
            Coder::Rans(table) => symbols(table).into_iter().min_by_key(|&(symbol, freq)| (127 - freq, symbol)),
        };
        best.map(|(symbol, _)| symbol as u8)
    }
}

impl Table {
    /// A table of these symbols, of which one may be the escape.
    fn of(symbols: &[usize], values: &[u8]) -> Self {
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
        symbols.filter(|&(_, entry)| entry != 0).map(|(symbol, entry)| (symbol, u32::from(entry)))
    }
}

/// At least two and at most 128 symbols, the most frequent first, and the escape where it is wanted or needed.
fn most_frequent(symbols: &[u8], escape: bool) -> Vec<usize> {
    let mut counts: Vec<(usize, usize)> = (0..256).map(|symbol| (0, symbol)).collect();
    symbols.iter().for_each(|&symbol| counts[usize::from(symbol)].0 += 1);
    counts.sort_by_key(|&(count, symbol)| (usize::MAX - count, symbol));
    let mut present: Vec<usize> = counts.iter().filter(|&&(count, _)| count > 0).map(|&(_, symbol)| symbol).collect();
    if present.is_empty() {
        present.push(0);
    }
    if escape || present.len() == 1 || present.len() > 128 {
        present.truncate(127);
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
            Push::Rans { freq, start } => (*x / freq) * 128 + *x % freq + start,
        };
    }
}

/// Codes all chunks of a block.
pub(super) fn encode(chunks: &[Chunk], lane_sets: usize, final_state: u32) -> Result<Encoded, String> {
    let mut literals = Vec::new();
    let mut pushes_of_chunks = Vec::new();
    for chunk in chunks {
        let table = chunk.coder.pushes();
        let mut pushes = Vec::new();
        for &symbol in &chunk.symbols {
            pushes.push(match table[usize::from(symbol)] {
                Some(push) => push,
                None => {
                    literals.push(symbol);
                    table[ESCAPE].ok_or("a symbol is not in its table, which has no escape")?
                }
            });
        }
        let pad_symbol = chunk.coder.pad_symbol().ok_or("a table has no symbol")?;
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

    let mut order: Vec<usize> = (0..64).collect();
    order.sort_by_key(|j| (j % 4, j / 4));
    let mut states = vec![[final_state; 64]; lane_sets];
    let mut words = vec![Vec::new(); lane_sets];
    for (chunk, pushes) in chunks.iter().zip(&pushes_of_chunks).rev() {
        for &j in order.iter().rev() {
            let x = &mut states[chunk.lane_set][j];
            let (s1, s2) = (pushes[j], pushes[64 + j]);
            if u64::from(*x) >= u64::from(s1.freq() * s2.freq()) << 18 {
                words[chunk.lane_set].push(*x as u16);
                *x >>= 16;
            }
            s2.push(x);
            s1.push(x);
        }
    }
    words.iter_mut().for_each(|words| words.reverse());
    Ok(Encoded { states, words, literals })
}
