//! Reading the fields of the format (§1) from the front of a slice.

use super::faults::must;

pub(super) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    pub(super) fn position(&self) -> u64 {
        self.at as u64
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.all[self.at..]
    }

    /// The next `n` bytes, which stay unread.
    pub(super) fn peek(&self, n: u64) -> Result<&'a [u8], String> {
        let rest = self.rest();
        must(n <= rest.len() as u64, "the data end too early")?;
        Ok(&rest[..n as usize])
    }

    pub(super) fn take(&mut self, n: u64) -> Result<&'a [u8], String> {
        let bytes = self.peek(n)?;
        self.at += bytes.len();
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N as u64)?.try_into().expect("take returns N bytes"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, String> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, String> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u128;
        for i in 0..10 {
            let byte = self.u8()?;
            value |= u128::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                must(i == 0 || byte != 0, "a varint is padded")?;
                return u64::try_from(value).map_err(|_| "a varint exceeds 64 bits".into());
            }
        }
        Err("a varint is longer than 10 bytes".into())
    }

    pub(super) fn string(&mut self) -> Result<&'a str, String> {
        let length = self.varint()?;
        std::str::from_utf8(self.take(length)?).map_err(|_| "a string is not UTF-8".into())
    }

    pub(super) fn end(&self, otherwise: &str) -> Result<(), String> {
        must(self.rest().is_empty(), otherwise)
    }
}
