//! Choices read from the bytes that the fuzzer supplies.

pub use lmc_test_inputs::Random;

/// The bytes not yet used. When they run out every choice is 0.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Choices made by these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// The lowest bit of the next byte.
    pub fn bool(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// One of 0 … n − 1, for n up to 65,536. It takes one byte where that is enough.
    pub fn below(&mut self, n: usize) -> usize {
        let choice = if n <= 256 { usize::from(self.u8()) } else { usize::from(self.u16()) };
        choice % n
    }

    /// Up to `n` bytes.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// Whether every further choice is 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A generator of numbers, seeded with the next four bytes.
    pub fn random(&mut self) -> Random {
        Random::new(u64::from(self.u32()))
    }
}
