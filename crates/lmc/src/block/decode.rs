//! Decoding a block.

use super::head::{BlockHead, Method};
use crate::arch::Isa;
use crate::checksum::{LEAF, digest};
use crate::error::{Error, Result};

/// Decodes blocks one after the other, keeping its working memory.
pub(crate) struct BlockDecoder {
    #[expect(dead_code)]
    isa: Isa,
}

impl BlockDecoder {
    pub(crate) fn new(isa: Isa) -> Self {
        Self { isa }
    }

    /// Decodes a block into `out`, which has exactly `head.raw_len` bytes, and checks it.
    ///
    /// After an error `out` holds nothing of use.
    pub(crate) fn decode(&mut self, head: &BlockHead, body: &[u8], out: &mut [u8]) -> Result<()> {
        assert_eq!(out.len(), head.raw_len);
        match &head.parts[..] {
            [p] if p.method == Method::Stored && body.len() == out.len() => out.copy_from_slice(body),
            _ => return Err(Error::damaged("a block's body does not have the length that its head implies")),
        }
        for (leaf, want) in out.chunks(LEAF).zip(&head.leaves) {
            if digest(leaf) != *want {
                return Err(Error::damaged("the checksum of a block does not match"));
            }
        }
        Ok(())
    }
}
