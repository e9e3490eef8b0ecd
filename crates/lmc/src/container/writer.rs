//! Writes the records around blocks: header, bases, index, trailer.

use crate::Summary;
use crate::block::encode::BlockSummary;
use crate::error::Result;
use crate::format::bases::Sources;
use crate::format::checksum::ContentHash;
use crate::format::header::{self, Features};
use crate::format::index::Index;
use crate::format::trailer::{self, Trailer};
use crate::frames::FrameEncoder;
use crate::layout::Layout;
use crate::varint::put;

/// Collects the lengths and digests of the blocks written.
pub(crate) struct Writer {
    offset: u64,
    raw: u64,
    blocks: u64,
    /// Lengths of the blocks as the index has them.
    lengths: Vec<u8>,
    hash: ContentHash,
    /// The features that the blocks so far need.
    features: Features,
    /// The name of this program and its options.
    name: String,
}

impl Writer {
    /// A writer, and the bytes before the first block.
    pub(crate) fn start(sources: &Sources, name: String) -> Result<(Self, Vec<u8>)> {
        let mut bytes = header::encode(sources.features).to_vec();
        bytes.extend(sources.encode()?);
        let offset = bytes.len() as u64;
        let (lengths, hash) = (vec![], ContentHash::default());
        Ok((Self { offset, raw: 0, blocks: 0, lengths, hash, features: Features::default(), name }, bytes))
    }

    /// Raw bytes in the blocks so far.
    pub(crate) fn raw(&self) -> u64 {
        self.raw
    }

    /// Adds the next block.
    pub(crate) fn block(&mut self, b: &BlockSummary) {
        self.offset += b.record_len;
        self.raw += b.raw_len;
        self.blocks += 1;
        self.features = self.features | b.features;
        put(&mut self.lengths, b.record_len);
        put(&mut self.lengths, b.raw_len);
        b.leaves.iter().for_each(|l| self.hash.push(l));
    }

    /// The bytes that follow the last block. `frames` is one that is kept: making one takes longer than a small file.
    pub(crate) fn finish(self, layout: &Layout, frames: &mut FrameEncoder) -> Result<(Vec<u8>, Summary)> {
        let content_hash = self.hash.finish();
        let segments = layout.covering(self.raw);
        let (blocks, names) = ((self.blocks, self.lengths), [layout.name, &self.name]);
        let mut end = Index::encode(self.raw, &content_hash, self.features, blocks, names, &segments, frames)?;
        let index_len = end.len() as u64;
        end.extend_from_slice(&Trailer { index_offset: self.offset, index_len }.encode());
        let compressed_size = self.offset + index_len + trailer::LEN as u64;
        Ok((end, Summary { raw_size: self.raw, compressed_size, content_hash, blocks: self.blocks }))
    }
}
