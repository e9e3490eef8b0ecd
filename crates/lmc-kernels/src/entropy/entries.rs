//! A table as a file stores it (`docs/format.md` §5.3): a number for each symbol and one for the escape.

use crate::inline::array;
use crate::varint::Cursor;
use lmc_layout::error::{Error, Result};

/// Symbol index of the escape in tables of 257.
pub(crate) const ESCAPE: usize = 256;

/// Frequencies or code lengths by symbol; 0 for symbols that are not in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    pub(crate) of: [u16; 256],
    pub(crate) escape: u16,
}

impl Entries {
    /// An empty table.
    pub fn none() -> Self {
        Self { of: [0; 256], escape: 0 }
    }

    /// The entry of a symbol or of the escape.
    pub(super) fn get(&self, symbol: usize) -> u16 {
        if symbol == ESCAPE { self.escape } else { self.of[symbol] }
    }

    pub(super) fn set(&mut self, symbol: usize, entry: u16) {
        if symbol == ESCAPE { self.escape = entry } else { self.of[symbol] = entry }
    }

    /// The entries that are not 0, with their symbol; the escape's ([`ESCAPE`]) last.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, u16)> + Clone {
        (0..ESCAPE + 1).map(|s| (s, self.get(s))).filter(|e| e.1 != 0)
    }

    /// The symbol whose entry is first by `before`; the lowest of equal ones.
    pub(super) fn first_by(&self, before: fn(u16, u16) -> bool) -> u8 {
        let mut best: Option<(usize, u16)> = None;
        for (s, e) in self.all().filter(|e| e.0 != ESCAPE) {
            if best.is_none_or(|b| before(e, b.1)) {
                best = Some((s, e));
            }
        }
        best.expect("stored tables have a symbol").0 as u8
    }

    /// A byte value that is no symbol of the table and marks the escape; `None` without an escape or a free value.
    pub(super) fn escape_mark(&self) -> Option<u8> {
        let unused = self.of.iter().rposition(|&e| e == 0).map(|s| s as u8);
        unused.filter(|_| self.escape > 0)
    }

    /// Maps `of` over all symbols; one that is not in the table gets the escape's value.
    pub(super) fn by_symbol<T: Copy>(&self, of: impl Fn(usize) -> T) -> [T; 256] {
        array(|s| of(if self.of[s] != 0 { s } else { ESCAPE }))
    }

    fn range(&self) -> Result<(usize, usize)> {
        let first = self.of.iter().position(|&e| e != 0).ok_or_else(|| Error::damaged("a table has no symbols"))?;
        let last = self.of.iter().rposition(|&e| e != 0).expect("one is not zero");
        Ok((first, last))
    }

    /// Reads a table for symbols of `symbol_bits` bits. `read` reads the entries of consecutive symbols and of the escape.
    pub(super) fn parse(
        c: &mut Cursor<'_>,
        symbol_bits: u32,
        read: impl FnOnce(&mut Cursor<'_>, &mut [u16]) -> Result<()>,
    ) -> Result<Self> {
        let first = usize::from(c.u8()?);
        let count = usize::from(c.u8()?) + 1;
        if first + count > 256 {
            return Err(Error::damaged(format!("a table has symbols {first} to {}, above 255", first + count - 1)));
        }
        let mut stored = [0; 257];
        read(c, &mut stored[..=count])?;
        let mut e = Self::none();
        e.of[first..first + count].copy_from_slice(&stored[..count]);
        e.escape = stored[count];
        if symbol_bits < 8 && e.of[1 << symbol_bits..].iter().any(|&x| x != 0) {
            return Err(Error::damaged(format!("a table for {symbol_bits}-bit symbols has a wider symbol")));
        }
        e.range()?;
        Ok(e)
    }

    /// Appends the table; `write` appends its entries.
    pub(super) fn put(&self, out: &mut Vec<u8>, write: impl FnOnce(&[u16], &mut Vec<u8>)) {
        let (first, last) = self.range().expect("encoders build tables with symbols");
        out.extend([first as u8, (last - first) as u8]);
        let mut stored = self.of[first..=last].to_vec();
        stored.push(self.escape);
        write(&stored, out);
    }
}
