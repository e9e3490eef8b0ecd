//! Tables: from their stored form to what decoders and encoders look up, with the checks that make a stored table safe.

use super::SLOTS;
use super::{huffman, rans};
use crate::block::head::{Coder, Entries};
use crate::error::{Error, Result};

/// What a decoder looks up by slot. Huffman codes are expressed as frequency and offset, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct DecodeTable {
    /// Symbol of the slot, or `escape_mark`.
    pub(crate) symbol: [u8; SLOTS],
    pub(crate) freq: [u8; SLOTS],
    pub(crate) offset: [u8; SLOTS],
    /// A byte that is no symbol of the table: it marks the escape's slots.
    pub(crate) escape_mark: u8,
    pub(crate) pad: u8,
}

/// What an encoder looks up by symbol; a symbol that is not in the table finds the escape's entry.
#[derive(Clone, Debug)]
pub(crate) struct EncodeTable {
    pub(crate) kind: EncodeKind,
    /// Whether the symbol is in the table.
    pub(crate) kept: [bool; 256],
    pub(crate) pad: u8,
}

#[derive(Clone, Debug)]
pub(crate) enum EncodeKind {
    /// `x ← x << len | code`
    Huffman { len: [u8; 256], code: [u8; 256] },
    /// `x ← (x / freq) · 128 + x % freq + start`
    Rans { freq: [u8; 256], start: [u8; 256] },
}

/// Symbol index of the escape in tables of 257.
pub(crate) const ESCAPE: usize = 256;

fn pad_symbol(entries: &Entries, prefer_large: bool) -> u8 {
    let key = |e: u8| if prefer_large { u16::from(e) } else { 255 - u16::from(e) };
    let mut best = None;
    for (s, &e) in entries.of.iter().enumerate().filter(|(_, e)| **e != 0) {
        if best.is_none_or(|(k, _)| key(e) > k) {
            best = Some((key(e), s as u8));
        }
    }
    best.expect("stored tables have a symbol").1
}

/// A byte value that is no symbol. There is one: at most 127 of 256 values are in a table.
fn unused_byte(entries: &Entries) -> u8 {
    entries.of.iter().rposition(|&e| e == 0).expect("a table has at most 128 symbols") as u8
}

impl DecodeTable {
    /// The table of a coder, or `None` for the coder without symbols.
    pub(crate) fn new(coder: &Coder) -> Result<Option<Self>> {
        let (entries, codes) = match coder {
            Coder::None => return Ok(None),
            Coder::Rans(e) => {
                let sum: u32 = e.of.iter().map(|&f| u32::from(f)).sum::<u32>() + u32::from(e.escape);
                if sum != SLOTS as u32 || e.of.iter().any(|&f| f > 127) {
                    return Err(Error::damaged("the frequencies of a table do not sum to 128"));
                }
                (e, None)
            }
            Coder::Huffman(e) => {
                let all = || e.of.iter().chain([&e.escape]).filter(|&&l| l != 0);
                if all().any(|&l| l > 7) || all().map(|&l| SLOTS >> l).sum::<usize>() != SLOTS {
                    return Err(Error::damaged("the code of a table is not complete"));
                }
                (e, Some(huffman::codes(e)))
            }
        };
        let mark = unused_byte(entries);
        let mut t = DecodeTable {
            symbol: [0; SLOTS],
            freq: [0; SLOTS],
            offset: [0; SLOTS],
            escape_mark: mark,
            pad: pad_symbol(entries, codes.is_none()),
        };
        let mut start = 0usize;
        let with_escape = entries.of.iter().enumerate().map(|(s, &e)| (s, s as u8, e));
        for (index, symbol, e) in with_escape.chain([(ESCAPE, mark, entries.escape)]).filter(|x| x.2 != 0) {
            match &codes {
                None => {
                    for i in 0..usize::from(e) {
                        (t.symbol[start + i], t.freq[start + i], t.offset[start + i]) = (symbol, e, i as u8);
                    }
                    start += usize::from(e);
                }
                Some(codes) => {
                    for slot in (usize::from(codes[index])..SLOTS).step_by(1 << e) {
                        (t.symbol[slot], t.freq[slot], t.offset[slot]) = (symbol, 1 << (7 - e), (slot >> e) as u8);
                    }
                }
            }
        }
        Ok(Some(t))
    }
}

impl EncodeTable {
    /// The table of a coder that an encoder built, or `None` for the coder without symbols.
    pub(crate) fn new(coder: &Coder) -> Option<Self> {
        let spread = |of: &dyn Fn(usize) -> u8, entries: &Entries| {
            std::array::from_fn(|s| of(if entries.of[s] != 0 { s } else { ESCAPE }))
        };
        let (entries, kind) = match coder {
            Coder::None => return None,
            Coder::Huffman(e) => {
                let codes = huffman::codes(e);
                let len = |i: usize| if i == ESCAPE { e.escape } else { e.of[i] };
                (e, EncodeKind::Huffman { len: spread(&len, e), code: spread(&|i| codes[i], e) })
            }
            Coder::Rans(e) => {
                let starts = rans::starts(e);
                let freq = |i: usize| if i == ESCAPE { e.escape } else { e.of[i] };
                (e, EncodeKind::Rans { freq: spread(&freq, e), start: spread(&|i| starts[i], e) })
            }
        };
        let kept = std::array::from_fn(|s| entries.of[s] != 0);
        Some(Self { kept, pad: pad_symbol(entries, matches!(coder, Coder::Rans(_))), kind })
    }
}
