//! Encoding a block.

use super::Piece;
use super::head::{BlockHead, Method, Part};
use crate::arch::Isa;
use crate::checksum::{Digest, LEAF, digest};
use crate::container::record::{self, RecordHeader};
use crate::options::Level;

/// Encodes blocks one after the other, keeping its working memory.
pub(crate) struct BlockEncoder {
    #[expect(dead_code)]
    isa: Isa,
    #[expect(dead_code)]
    level: Level,
    head: Vec<u8>,
}

/// What the index and the content hash need to know of a block.
pub(crate) struct BlockSummary {
    pub(crate) record_len: u64,
    pub(crate) raw_len: u64,
    pub(crate) leaves: Vec<Digest>,
}

impl BlockEncoder {
    pub(crate) fn new(isa: Isa, level: Level) -> Self {
        Self { isa, level, head: Vec::new() }
    }

    /// Appends the record of a block to `out`.
    ///
    /// `raw` has 1 to `MAX_RAW` bytes, and the lengths of `pieces` (none zero) add up to it.
    pub(crate) fn encode(&mut self, raw: &[u8], pieces: &[Piece], out: &mut Vec<u8>) -> BlockSummary {
        assert_eq!(pieces.iter().map(|p| p.len).sum::<usize>(), raw.len(), "pieces cover the block");
        let leaves: Vec<Digest> = raw.chunks(LEAF).map(digest).collect();
        let head = BlockHead {
            raw_len: raw.len(),
            words: vec![],
            literals: 0,
            pieces: vec![(0, raw.len())],
            parts: vec![Part { len: raw.len(), method: Method::Stored }],
            leaves: leaves.clone(),
        };
        self.head.clear();
        head.put(&mut self.head);
        let start = out.len();
        out.extend_from_slice(&RecordHeader::encode(record::BLOCK, &self.head, raw.len() as u64));
        out.extend_from_slice(&self.head);
        out.extend_from_slice(raw);
        BlockSummary { record_len: (out.len() - start) as u64, raw_len: raw.len() as u64, leaves }
    }
}
