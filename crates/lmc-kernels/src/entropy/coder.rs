//! Coders and their tables as a file stores them (`docs/format.md` §5.3).

use super::entries::Entries;
use super::huffman::Huffman;
use super::rans::{COARSE_BITS, FINE_BITS, Rans};
use crate::varint::Cursor;
use lmc_layout::error::{Error, Result};

/// The coder of a cluster's symbols, with its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coder {
    /// There are no symbols.
    None,
    /// Huffman codes.
    Huffman(Box<Huffman>),
    /// rANS.
    Rans(Box<Rans>),
}

impl Coder {
    /// Its number in the format.
    pub fn code(&self) -> u8 {
        match self {
            Coder::None => 0,
            Coder::Huffman(_) => 1,
            Coder::Rans(r) => r.log_slots as u8,
        }
    }

    pub(crate) fn entries(&self) -> Option<&Entries> {
        match self {
            Coder::None => None,
            Coder::Huffman(h) => Some(&h.lens),
            Coder::Rans(r) => Some(&r.freqs),
        }
    }

    /// Reads the table of coder `code` for symbols of `symbol_bits` bits (0: only coder 0 fits).
    pub fn parse(code: u8, c: &mut Cursor<'_>, symbol_bits: u32) -> Result<Self> {
        match code.into() {
            0 => Ok(Coder::None),
            1 => Ok(Coder::Huffman(Box::new(Huffman::parse(c, symbol_bits)?))),
            log_slots @ (COARSE_BITS | FINE_BITS) => Ok(Coder::Rans(Box::new(Rans::parse(log_slots, c, symbol_bits)?))),
            _ => Err(Error::unsupported(format!("unsupported coder {code}; a newer lmc may read this file"))),
        }
    }

    /// Appends the table.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Coder::None => {}
            Coder::Huffman(h) => h.put(out),
            Coder::Rans(r) => r.put(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::{huffman, rans};
    use lmc_layout::error::ErrorKind;

    #[test]
    fn what_is_put_is_parsed() {
        let mut h = [0; 256];
        (h[9], h[10], h[63]) = (1000, 90, 30);
        let coders = [
            Coder::None,
            Coder::Huffman(Box::new(huffman::build(&h, true).0)),
            Coder::Rans(Box::new(rans::build(&h, false, COARSE_BITS).0)),
            Coder::Rans(Box::new(rans::build(&h, false, FINE_BITS).0)),
        ];
        for coder in coders {
            let mut stored = Vec::new();
            coder.put(&mut stored);
            let mut c = Cursor::new(&stored);
            assert_eq!(Coder::parse(coder.code(), &mut c, 6).unwrap(), coder);
            assert_eq!(c.remaining(), 0, "{coder:?}");
            // Symbol 63 does not fit five bits.
            let narrow = Coder::parse(coder.code(), &mut Cursor::new(&stored), 5);
            assert_eq!(narrow.is_ok(), coder == Coder::None);
        }
        for code in (0..=255).filter(|code| ![0, 1, 7, 12].contains(code)) {
            let e = Coder::parse(code, &mut Cursor::new(&[0; 300]), 8).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unsupported);
        }
    }
}
