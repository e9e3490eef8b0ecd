//! Codecs behind an exclusive or.

use std::rc::Rc;

use lmc::Result;

use crate::codec::Codec;

/// A codec that gets the exclusive or of the data and the expected data.
pub(crate) struct Xor {
    codec: Box<dyn Codec>,
    expected: Rc<[u8]>,
    buffer: Vec<u8>,
}

impl Xor {
    pub(crate) fn new(codec: Box<dyn Codec>, expected: Rc<[u8]>) -> Self {
        Self { codec, expected, buffer: Vec::new() }
    }
}

impl Codec for Xor {
    fn compress(&mut self, raw: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        self.buffer.resize(raw.len(), 0);
        let each = self.buffer.iter_mut().zip(raw).zip(&self.expected[..]);
        each.for_each(|((to, a), b)| *to = a ^ b);
        self.codec.compress(&self.buffer, packed)
    }
    fn decompress(&mut self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        self.codec.decompress(packed, out)?;
        out.iter_mut().zip(&self.expected[..]).for_each(|(to, b)| *to ^= b);
        Ok(())
    }
}
