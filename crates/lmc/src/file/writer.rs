//! Writes the records around blocks: header, bases, index, trailer.

use crate::Summary;
use crate::block::encode::BlockSummary;
use crate::file::hashing::OwnDigest;
use crate::format::bases::Sources;
use crate::format::checksum::ContentHash;
use crate::format::digests::{self, RawDigest};
use crate::format::frames::FrameEncoder;
use crate::format::header::{self, Features};
use crate::format::index::Index;
use crate::format::segments::within_limits;
use crate::format::trailer::Trailer;
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
    has_bases: bool,
    /// Digests of the bases, and of the raw bytes, if they are wanted.
    digests: Vec<RawDigest>,
    own_digest: Option<OwnDigest>,
}

impl Writer {
    /// A writer, and the bytes before the first block.
    pub(crate) fn start(sources: &Sources, name: String) -> Result<(Self, Vec<u8>)> {
        let mut bytes = header::encode(sources.features).to_vec();
        bytes.extend(sources.encode()?);
        let offset = bytes.len() as u64;
        let (lengths, hash) = (vec![], ContentHash::default());
        let writer = Self {
            offset,
            raw: 0,
            blocks: 0,
            lengths,
            hash,
            features: Features::default(),
            name,
            has_bases: !sources.bases.is_empty(),
            digests: vec![],
            own_digest: None,
        };
        Ok((writer, bytes))
    }

    /// Sets the digests of the bases, in order.
    pub(crate) fn set_base_digests(&mut self, digests: impl Iterator<Item = [u8; 32]>) {
        self.digests = (1..).zip(digests).map(|(i, digest)| RawDigest::sha256(i, digest)).collect();
    }

    /// Sets that of the raw bytes.
    pub(crate) fn set_own_digest(&mut self, digest: Option<OwnDigest>) {
        self.own_digest = digest;
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
    /// The index has the segments that the format can have; none if they can be found again, and take more than they are worth
    /// ([`Self::is_worth`]).
    pub(crate) fn finish(mut self, layout: &Layout, frames: &mut FrameEncoder) -> Result<(Vec<u8>, Summary)> {
        let content_hash = self.hash.clone().finish();
        if let Some(own) = self.own_digest.take() {
            self.digests.insert(0, RawDigest::sha256(0, own.take()?));
        }
        let mut end = if self.digests.is_empty() { vec![] } else { digests::encode(&self.digests) };
        let index_offset = self.offset + end.len() as u64;
        let mut index = |segments: &[Segment]| {
            let (blocks, names) = ((self.blocks, &self.lengths[..]), [layout.name, &self.name]);
            Index::encode(self.raw, &content_hash, self.features, blocks, names, segments, frames)
        };
        let all = layout.covering(self.raw);
        let (segments, unlisted_tensors) = within_limits(&all);
        let mut record = index(&segments)?;
        if Layout::is_in_the_bytes(layout.name) && !self.is_worth(record.len() as u64) {
            record = index(&within_limits(&[Segment::opaque(0, self.raw)]).0)?;
        }
        let index_len = record.len() as u64;
        end.append(&mut record);
        end.extend_from_slice(&Trailer { index_offset, index_len }.encode());
        let summary = Summary {
            raw_size: self.raw,
            compressed_size: self.offset + end.len() as u64,
            content_hash,
            blocks: self.blocks,
            unlisted_tensors,
            header: self.features.with_bases(self.has_bases),
        };
        Ok((end, summary))
    }

    /// Whether an index of `index_len` bytes is a small part of the file, or of what the blocks save.
    ///
    /// Names may be as long as the headers of files can be, so that an index of them could double a file.
    fn is_worth(&self, index_len: u64) -> bool {
        let saved = self.raw.saturating_sub(self.offset);
        index_len <= INDEX_LEAST + self.raw / INDEX_OF_RAW + saved / INDEX_OF_SAVED
    }
}

/// Bytes that any index may take, and the parts of the raw bytes and of those that the blocks save.
const INDEX_LEAST: u64 = 1 << 9;
const INDEX_OF_RAW: u64 = 1000;
const INDEX_OF_SAVED: u64 = 8;
