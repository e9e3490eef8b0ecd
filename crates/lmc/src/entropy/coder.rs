//! Coders and their tables as a file stores them (`docs/format.md` §5.3).
//!
//! Here and in `table` are the lists of coders; what each does is in a file of its own.

use super::table::ESCAPE;
use super::{fine, huffman, rans};
use crate::error::{Error, Result};
use crate::format::varint::Cursor;

/// What codes the symbols of a group, with its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Coder {
    /// There are no symbols.
    None,
    Huffman(Box<Entries>),
    Rans(Box<Entries>),
    Fine(Box<Entries>),
}

/// A table as it is stored: frequencies or code lengths by symbol, 0 for what has none. Completeness is checked where
/// tables are built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) of: [u16; 256],
    pub(crate) escape: u16,
}

/// Fills a slice with entries.
type ReadEntries = fn(&mut Cursor<'_>, &mut [u16]) -> Result<()>;

impl Coder {
    /// Its number in the format.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Coder::None => 0,
            Coder::Huffman(_) => 1,
            Coder::Rans(_) => 2,
            Coder::Fine(_) => 3,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Coder::None => "none",
            Coder::Huffman(_) => "huffman",
            Coder::Rans(_) => "rans",
            Coder::Fine(_) => "fine-rans",
        }
    }

    pub(crate) fn entries(&self) -> Option<&Entries> {
        match self {
            Coder::None => None,
            Coder::Huffman(e) | Coder::Rans(e) | Coder::Fine(e) => Some(e),
        }
    }

    /// Reads the table of the coder with a number, for symbols of so many bits (0: only the coder without symbols fits).
    pub(crate) fn parse(code: u8, c: &mut Cursor<'_>, symbol_bits: u32) -> Result<Self> {
        let mut entries = |read: ReadEntries| Entries::parse(c, symbol_bits, read).map(Box::new);
        match code {
            0 => Ok(Coder::None),
            1 => entries(huffman::read).map(Coder::Huffman),
            2 => entries(rans::read).map(Coder::Rans),
            3 => entries(fine::read).map(Coder::Fine),
            _ => Err(Error::unsupported("a group has a coder that this lmc does not know; a newer one may")),
        }
    }

    /// Appends the table.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Coder::None => {}
            Coder::Huffman(e) => e.put(out, huffman::write),
            Coder::Rans(e) => e.put(out, rans::write),
            Coder::Fine(e) => e.put(out, fine::write),
        }
    }
}

impl Entries {
    pub(crate) fn none() -> Self {
        Self { of: [0; 256], escape: 0 }
    }

    /// The entries that are not 0 with the index of their symbol, that of the escape ([`super::table::ESCAPE`]) last.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, u16)> {
        (0..ESCAPE + 1).map(|s| (s, if s == ESCAPE { self.escape } else { self.of[s] })).filter(|e| e.1 != 0)
    }

    fn range(&self) -> Result<(usize, usize)> {
        let first = self.of.iter().position(|&e| e != 0).ok_or_else(|| Error::damaged("a table without symbols"))?;
        let last = self.of.iter().rposition(|&e| e != 0).expect("one is not zero");
        Ok((first, last))
    }

    /// `read` reads the entries of consecutive symbols and of the escape.
    fn parse(c: &mut Cursor<'_>, symbol_bits: u32, read: ReadEntries) -> Result<Self> {
        let first = usize::from(c.u8()?);
        let count = usize::from(c.u8()?) + 1;
        if first + count > 256 {
            return Err(Error::damaged("a table's symbols are out of range"));
        }
        let mut stored = [0; 257];
        read(c, &mut stored[..=count])?;
        let mut e = Self::none();
        e.of[first..first + count].copy_from_slice(&stored[..count]);
        e.escape = stored[count];
        if symbol_bits < 8 && e.of[1 << symbol_bits..].iter().any(|&x| x != 0) {
            return Err(Error::damaged("a table has a symbol that is too wide"));
        }
        e.range()?;
        Ok(e)
    }

    fn put(&self, out: &mut Vec<u8>, write: fn(&[u16], &mut Vec<u8>)) {
        let (first, last) = self.range().expect("encoders build tables with symbols");
        out.extend([first as u8, (last - first) as u8]);
        let mut stored = self.of[first..=last].to_vec();
        stored.push(self.escape);
        write(&stored, out);
    }
}
