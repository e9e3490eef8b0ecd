//! Bits in bytes, from bit 0 of the first byte up.

/// Writes a sequence of bits.
#[derive(Default)]
pub struct BitWriter {
    /// The bytes written, and at least seven more.
    bytes: Vec<u8>,
    /// Whole bytes written.
    at: usize,
    /// Bits that do not fill a byte yet; at most seven.
    pending: u64,
    count: u32,
}

impl BitWriter {
    /// Appends the low `n` bits of `value`, 57 at most; the others are 0.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: u64, n: u32) {
        debug_assert!(n <= 57 && value >> n == 0);
        if self.bytes.len() < self.at + 8 {
            self.bytes.resize(2 * self.at + 64, 0);
        }
        self.pending |= value << self.count;
        self.count += n;
        *self.bytes[self.at..].first_chunk_mut().expect("room for eight bytes") = self.pending.to_le_bytes();
        self.at += self.count as usize / 8;
        self.pending = self.pending.unbounded_shr(self.count & !7);
        self.count &= 7;
    }

    /// All bytes; the last one is padded with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.truncate(self.at + usize::from(self.count > 0));
        self.bytes
    }
}

/// Reads a sequence of bits. After the last byte zeros follow without end: the caller checks at the end whether all bytes were
/// [used up](Self::is_used_up).
#[derive(Clone, Copy)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits read so far.
    at: u64,
}

impl<'a> BitReader<'a> {
    /// A reader at bit 0 of the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// At least the next 57 bits, which stay unread.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u64 {
        let byte = (self.at / 8) as usize;
        let word = match self.bytes.get(byte..byte + 8) {
            Some(word) => u64::from_le_bytes(*word.first_chunk().expect("eight bytes")),
            None => self.peek_at_the_end(byte),
        };
        word >> (self.at % 8)
    }

    #[cold]
    fn peek_at_the_end(&self, byte: usize) -> u64 {
        let rest = self.bytes.get(byte..).unwrap_or(&[]);
        rest.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b))
    }

    #[inline(always)]
    pub(crate) fn skip(&mut self, n: u32) {
        self.at += u64::from(n);
    }

    /// The next `n` bits, 64 at most.
    #[inline(always)]
    pub(crate) fn take(&mut self, n: u32) -> u64 {
        if n <= 56 {
            let value = self.peek() & ((1 << n) - 1);
            self.skip(n);
            return value;
        }
        let low = self.take(32);
        low | self.take(n - 32) << 32
    }

    /// Whether reading ended in the last byte, and its unread bits are 0.
    pub fn is_used_up(&self) -> bool {
        self.at.div_ceil(8) == self.bytes.len() as u64 && (self.at.is_multiple_of(8) || self.peek() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back() {
        let values: Vec<(u64, u32)> = (0..=57)
            .chain((0..=57).rev())
            .map(|n| (0x9e37_79b9_7f4a_7c15u64.checked_shr(64 - n).unwrap_or(0), n))
            .collect();
        let mut w = BitWriter::default();
        values.iter().for_each(|&(v, n)| w.put(v, n));
        let bytes = w.finish();
        assert_eq!(bytes.len(), (57usize * 58).div_ceil(8));
        let mut r = BitReader::new(&bytes);
        assert!(values.iter().all(|&(v, n)| r.take(n) == v));
        assert!(r.is_used_up());
        r.skip(8);
        assert!(!r.is_used_up());
    }

    #[test]
    fn the_first_bit_is_the_lowest() {
        let mut w = BitWriter::default();
        w.put(1, 1);
        w.put(0b10, 2);
        w.put(0x155, 9);
        assert_eq!(w.finish(), [0b1010_1101, 0b1010]);
    }

    #[test]
    fn what_is_left_over_shows() {
        for (bytes, read, fits) in [
            (&[0xff, 0x01][..], 9, true),
            (&[0xff, 0x03], 9, false),
            (&[0xff, 0x01], 8, false),
            (&[0xff], 8, true),
            (&[0xff], 9, false),
            (&[], 0, true),
            (&[0], 0, false),
        ] {
            let mut r = BitReader::new(bytes);
            r.take(read);
            assert_eq!(r.is_used_up(), fits, "{bytes:?} {read}");
        }
    }
}
