//! Writes the records around blocks: header, bases, index, trailer.

use crate::Summary;
use crate::block::encode::BlockSummary;
use crate::format::bases::Sources;
use crate::format::checksum::ContentHash;
use crate::format::frames::FrameEncoder;
use crate::format::header::{self, Features};
use crate::format::index::Index;
use crate::format::trailer::{self, Trailer};
use crate::settings::limits::DecodeLimits;
use lmc_kernels::varint::put;
use lmc_layout::Layout;
use lmc_layout::error::Result;
use lmc_layout::segment::Segment;

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
    ///
    /// The index has no segments if they can be found again, and take more than they are worth ([`Self::is_worth`]).
    pub(crate) fn finish(self, layout: &Layout, frames: &mut FrameEncoder) -> Result<(Vec<u8>, Summary)> {
        let content_hash = self.hash.clone().finish();
        let mut index = |segments: &[Segment]| {
            let (blocks, names) = ((self.blocks, &self.lengths[..]), [layout.name, &self.name]);
            Index::encode(self.raw, &content_hash, self.features, blocks, names, segments, frames)
        };
        let (mut end, memory) = index(&layout.covering(self.raw))?;
        if Layout::is_in_the_bytes(layout.name) && !self.is_worth(end.len() as u64, memory) {
            (end, _) = index(&[Segment::opaque(0, self.raw)])?;
        }
        let index_len = end.len() as u64;
        end.extend_from_slice(&Trailer { index_offset: self.offset, index_len }.encode());
        let compressed_size = self.offset + index_len + trailer::LEN as u64;
        Ok((end, Summary { raw_size: self.raw, compressed_size, content_hash, blocks: self.blocks }))
    }

    /// Whether an index of `index_len` bytes is a small part of the file, or of what the blocks save, and readers may take `memory` bytes for
    /// it.
    ///
    /// Names may be as long as the headers of files can be, so that an index of them could double a file.
    fn is_worth(&self, index_len: u64, memory: u64) -> bool {
        let saved = self.raw.saturating_sub(self.offset);
        index_len <= INDEX_LEAST + self.raw / INDEX_OF_RAW + saved / INDEX_OF_SAVED
            && memory <= DecodeLimits::default().max_index_size as u64
    }
}

/// Bytes that any index may take, and the parts of the raw bytes and of those that the blocks save.
const INDEX_LEAST: u64 = 1 << 9;
const INDEX_OF_RAW: u64 = 1000;
const INDEX_OF_SAVED: u64 = 8;
