//! Tables: from their stored form to what decoders and encoders look up, with the checks that make a stored table safe.

use super::coder::{Coder, Entries};
use super::fine::{FineDecodeTable, FineEncodeTable};
use super::{SLOTS, fine, huffman, rans};
use crate::arch::inline::array;
use crate::error::Result;

/// What a decoder looks up by slot.
#[derive(Clone, Debug)]
pub(crate) enum DecodeTable {
    Coarse(Box<CoarseTable>),
    Fine(Box<FineDecodeTable>),
}

/// Columns of 128 slots. Huffman codes are expressed as frequency and offset, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct CoarseTable {
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
    Coarse(Box<CoarseKind>),
    Fine(Box<FineEncodeTable>),
}

#[derive(Clone, Debug)]
pub(crate) enum CoarseKind {
    /// `x ← x << len | code`
    Huffman { len: [u8; 256], code: [u8; 256] },
    /// `x ← (x / freq) · 128 + x % freq + start`
    Rans { freq: [u8; 256], start: [u8; 256] },
}

impl CoarseTable {
    pub(super) fn empty(escape_mark: u8, pad: u8) -> Self {
        Self { symbol: [0; SLOTS], freq: [0; SLOTS], offset: [0; SLOTS], escape_mark, pad }
    }
}

/// Symbol index of the escape in tables of 257.
pub(crate) const ESCAPE: usize = 256;

/// The symbol whose entry comes first by `before`, the lowest of several.
pub(super) fn pad_symbol(entries: &Entries, before: fn(u16, u16) -> bool) -> u8 {
    let mut best: Option<(usize, u16)> = None;
    for (s, e) in entries.all().filter(|e| e.0 != ESCAPE) {
        if best.is_none_or(|b| before(e, b.1)) {
            best = Some((s, e));
        }
    }
    best.expect("stored tables have a symbol").0 as u8
}

/// The first slot of every symbol and of the escape, where slots are given out in order.
pub(super) fn starts(e: &Entries) -> [u16; 257] {
    let mut starts = [0; 257];
    let mut at = 0u16;
    for (s, start) in starts.iter_mut().enumerate() {
        *start = at;
        at = at.wrapping_add(if s == ESCAPE { e.escape } else { e.of[s] });
    }
    starts
}

/// A byte value that is no symbol, if there is one.
pub(super) fn unused_byte(entries: &Entries) -> Option<u8> {
    entries.of.iter().rposition(|&e| e == 0).map(|s| s as u8)
}

/// A column by symbol; what is not in the table has the escape's value.
pub(super) fn by_symbol<T: Copy>(entries: &Entries, of: impl Fn(usize) -> T) -> [T; 256] {
    array(|s| of(if entries.of[s] != 0 { s } else { ESCAPE }))
}

impl DecodeTable {
    /// The table of a coder, or `None` for the coder without symbols.
    pub(crate) fn new(coder: &Coder) -> Result<Option<Self>> {
        Ok(Some(match coder {
            Coder::None => return Ok(None),
            Coder::Huffman(e) => Self::Coarse(Box::new(huffman::decode_table(e)?)),
            Coder::Rans(e) => Self::Coarse(Box::new(rans::decode_table(e)?)),
            Coder::Fine(e) => Self::Fine(Box::new(fine::decode_table(e)?)),
        }))
    }

    pub(crate) fn pad(&self) -> u8 {
        match self {
            Self::Coarse(t) => t.pad,
            Self::Fine(t) => t.pad,
        }
    }
}

impl EncodeTable {
    /// The table of a coder that an encoder built, or `None` for the coder without symbols.
    pub(crate) fn new(coder: &Coder) -> Option<Self> {
        let (kind, pad) = match coder {
            Coder::None => return None,
            Coder::Huffman(e) => (EncodeKind::Coarse(Box::new(huffman::encode_table(e))), huffman::pad(e)),
            Coder::Rans(e) => (EncodeKind::Coarse(Box::new(rans::encode_table(e))), rans::pad(e)),
            Coder::Fine(e) => (EncodeKind::Fine(Box::new(fine::encode_table(e))), rans::pad(e)),
        };
        let entries = coder.entries()?;
        Some(Self { kept: array(|s| entries.of[s] != 0), pad, kind })
    }
}
