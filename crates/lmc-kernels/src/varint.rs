//! LEB128 integers and the cursor that heads and tables are read with.

use lmc_layout::error::{Error, Result};

/// Appends a varint.
pub fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// A checked reader over bytes in memory.
#[derive(Clone)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    /// A name of the bytes, for errors.
    what: &'static str,
}

impl<'a> Cursor<'a> {
    /// A cursor at the first byte of a header.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::of("a header", bytes)
    }
    /// Errors call the bytes `what`.
    pub(crate) fn of(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what }
    }
    /// The number of bytes left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
    /// Takes the next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(n) {
            Some((a, b)) => {
                self.rest = b;
                Ok(a)
            }
            None => Err(Error::damaged(format!(
                "{} ends early: {n} more bytes are needed, {} are left",
                self.what,
                self.rest.len()
            ))),
        }
    }
    /// Takes a byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }
    /// Takes the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("N bytes were taken"))
    }
    /// Takes a varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        // Nearly all are short.
        match *self.rest {
            [b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Ok(b.into())
            }
            _ => self.long_varint(),
        }
    }
    fn long_varint(&mut self) -> Result<u64> {
        let mut v = 0u64;
        for i in 0..10 {
            let b = self.u8()?;
            if i == 9 && b > 1 {
                break;
            }
            v |= u64::from(b & 0x7f) << (7 * i);
            if b < 0x80 {
                if b == 0 && i > 0 {
                    break;
                }
                return Ok(v);
            }
        }
        Err(Error::damaged(format!("{} holds an invalid varint: it exceeds 64 bits or ends in a zero byte", self.what)))
    }
    /// A varint that is an in-memory size, at most `max`.
    pub fn size(&mut self, max: usize, what: &str) -> Result<usize> {
        match self.varint()? {
            v if v <= max as u64 => Ok(v as usize),
            v => Err(Error::damaged(format!("{what} is {v}; it can be at most {max}"))),
        }
    }
    /// Fails if bytes are left.
    pub fn finish(self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(Error::damaged(format!("{} has {n} bytes left over", self.what))),
        }
    }
}

/// Appends a string: its length, then its bytes.
pub fn put_string(out: &mut Vec<u8>, s: &str) {
    put(out, s.len() as u64);
    out.extend_from_slice(s.as_bytes());
}

/// Reads a string that [`put_string`] wrote.
pub fn string<'a>(c: &mut Cursor<'a>) -> Result<&'a str> {
    let n = c.size(c.remaining(), "the length of a name")?;
    std::str::from_utf8(c.bytes(n)?).map_err(|_| Error::damaged("a name is not UTF-8"))
}
