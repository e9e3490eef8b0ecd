//! Decodes and checks records of blocks in order, and the whole file at the end.

use crate::Summary;
use crate::block::Origin;
use crate::block::by_leaf::BlockOutput;
use crate::block::decode::BlockDecoder;
use crate::block::head::BlockHead;
use crate::file::open::{Opened, block_record, wrong_raw_len};
use crate::format::bases::SourceRange;
use crate::format::bases::{Chains, Sources};
use crate::format::checksum::{ContentHash, Digest, check64};
use crate::format::header::Features;
use crate::refs::base::or_wrong_base;
use lmc_layout::error::{Error, Result};

/// Buffers that a block larger than this encoder's made larger than this are freed.
pub(crate) const KEEP: usize = 9 << 20;

/// Data of a decoded block for the checks of the whole: digests for the content hash, ranges for the depths.
pub(crate) struct Decoded {
    pub(crate) leaves: Vec<Digest>,
    ranges: Vec<SourceRange>,
    features: Features,
}

/// Checks of the whole file, after its first blocks.
pub(crate) struct Progress {
    pub(crate) hash: ContentHash,
    /// Depths and costs of the blocks, if blocks can depend on others.
    chains: Option<Chains>,
    /// The features that the blocks so far need.
    needed: Features,
}

impl Progress {
    pub(crate) fn new(sources: &Sources) -> Self {
        let chains = sources.features.own.then(Chains::default);
        Self { hash: ContentHash::default(), chains, needed: Features::default() }
    }

    /// Adds the next block.
    pub(crate) fn push(&mut self, block: &Decoded, raw_len: u64) -> Result<()> {
        self.needed = self.needed | block.features;
        block.leaves.iter().for_each(|l| self.hash.push(l));
        self.chains.as_mut().map_or(Ok(()), |c| c.push(raw_len, &block.ranges))
    }
}

/// Decodes a block's record; the index gives it `raw_len` bytes, and `out`, if that is memory, has as many. The block starts at raw byte
/// `start`.
pub(crate) fn decode(
    decoder: &mut BlockDecoder,
    record: &[u8],
    sources: &Sources,
    start: u64,
    origin: &dyn Origin,
    raw_len: usize,
    out: BlockOutput<'_>,
) -> Result<Decoded> {
    let (head, body) = checked_block(record, sources, start, raw_len)?;
    decode_checked(decoder, head, body, origin, out)
}

/// Head and body of a block's record, checked except for decoding the body. The block starts at raw byte `start`; the index gives it
/// `raw_len` bytes.
pub(crate) fn checked_block<'r>(
    record: &'r [u8],
    sources: &Sources,
    start: u64,
    raw_len: usize,
) -> Result<(BlockHead, &'r [u8])> {
    let (head, body) = block_record(record)?;
    if head.raw_len != raw_len {
        return Err(wrong_raw_len());
    }
    sources.check(&head.ranges, head.features(), start)?;
    Ok((head, body))
}

/// Decodes a block whose ranges were checked.
pub(crate) fn decode_checked(
    decoder: &mut BlockDecoder,
    head: BlockHead,
    body: &[u8],
    origin: &dyn Origin,
    out: BlockOutput<'_>,
) -> Result<Decoded> {
    let done = decoder.decode_to(&head, body, origin, out);
    // If the body is as it was written, its predictions are not.
    let leaves = done.map_err(|e| match head.body_check {
        Some(check) if check == check64(body) => or_wrong_base(e),
        _ => e,
    })?;
    Ok(Decoded { leaves, features: head.features(), ranges: head.ranges })
}

/// Checks the content hash and the features against the index.
pub(crate) fn finish(opened: &Opened, done: &Progress) -> Result<Summary> {
    check_hash(&done.hash, &opened.index.content_hash)?;
    opened.index.check_exact(done.needed)?;
    Ok(Summary {
        raw_size: opened.index.raw_size,
        compressed_size: opened.size,
        content_hash: opened.index.content_hash,
        blocks: opened.blocks() as u64,
        unlisted_tensors: 0,
        header: done.needed.with_bases(!opened.sources.bases.is_empty()),
    })
}

pub(crate) fn check_hash(hash: &ContentHash, want: &Digest) -> Result<()> {
    if hash.finish() == *want {
        Ok(())
    } else {
        Err(Error::damaged("the content hash does not match: the blocks are not those of this file; fetch it again"))
    }
}
