//! Estimates the compressed size from a few blocks.

use std::collections::BTreeMap;

use crate::base::Base;
use crate::block::Extent;
use crate::block::encode::BlockSummary;
use crate::compress::{Compressor, Loader};
use crate::format::bases::BaseInfo;
use crate::format::header::Features;
use crate::options::CompressOptions;
use crate::origin::Raw;
use crate::session::EncodeSession;
use lmc_kernels::predict::Conversion;
use lmc_layout::Start;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::ReadAt;
use lmc_layout::segment::Segment;

/// The estimated result of compressing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// Size of the raw file in bytes.
    pub raw_size: u64,
    /// Estimated size of the compressed file in bytes.
    pub compressed_size: u64,
    /// Raw bytes that were compressed for the estimate.
    pub sampled: u64,
}

/// Estimates the size of a file that is compressed, as a delta if there are bases: to decide whether, against which bases and at
/// which level to do it.
///
/// One block in sixteen is compressed, but at least 32 MiB in eight blocks. Estimates of training states and weights, alone and as deltas,
/// were within one percent (or 1/100,000 of the raw size, where next to nothing changed). A smaller file is compressed whole, and the size
/// is exact. Of the bases only the references of those blocks are read, and no hashes are computed.
///
/// # Errors
/// Those of [`Compressor::compress`].
pub fn estimate(raw: &dyn ReadAt, bases: &[Base<'_>], o: &CompressOptions) -> Result<Estimate> {
    Compressor::new(o)?.estimate(raw, bases)
}

/// One block in this many is compressed.
const STEP: usize = 16;
/// Least bytes and blocks that are compressed, if there are as many.
const BYTES: u64 = 32 << 20;
const BLOCKS: usize = 8;

/// A block, and its record's length if known.
struct Block {
    offset: u64,
    len: usize,
    extents: Vec<Extent>,
    record_len: Option<u64>,
}

/// Blocks of a kind have similar ratios: the dtype and the reference of most of their bytes.
type Kind = (Option<Dtype>, Option<(u32, Conversion)>);

impl Compressor {
    /// [`estimate`] with this compressor's options, threads and buffers.
    ///
    /// # Errors
    /// Those of [`Compressor::compress`].
    pub fn estimate(&mut self, raw: &dyn ReadAt, bases: &[Base<'_>]) -> Result<Estimate> {
        let size = raw.size().map_err(|e| Error::io("cannot get the size of the input", e))?;
        let layout = lmc_layout::detect(&mut Start::new(raw, size, "the input"), self.options().dtype)?;
        let names: Vec<(u64, String)> = layout.segments.iter().map(|s| (s.offset, pattern(s))).collect();
        let own = Raw::measured(raw);
        let bases = self.for_call(bases);
        let info =
            |b: &Base<'_>| Ok(BaseInfo { content_hash: [0; 16], raw_size: b.raw_size(), name: b.name().to_owned() });
        let EncodeSession { mut cutter, layout, mut writer, origin, .. } =
            EncodeSession::new(self.options(), layout, Some(&own), &bases, info)?;
        let mut blocks = Vec::new();
        let mut next = 0;
        while next < size {
            let mut extents = Vec::new();
            let len = cutter.next_block(raw, size - next, &mut extents)?;
            blocks.push(Block { offset: next, len, extents, record_len: None });
            next += len as u64;
        }
        let kinds = sample(&blocks, &names);
        let chosen: Vec<usize> = kinds.values().flat_map(|k| &k.chosen).copied().collect();
        let (mut record_lens, mut next) = (Vec::new(), chosen.iter());
        self.encoders().blocks(
            &Loader::File(raw, &own),
            &origin,
            |job| {
                let Some(&block) = next.next() else { return Ok(false) };
                let Block { offset, len, extents, .. } = &blocks[block];
                (job.offset, job.len) = (*offset, *len);
                job.extents.clone_from(extents);
                Ok(true)
            },
            |block, _| {
                record_lens.push(block.record_len);
                Ok(())
            },
        )?;
        let sampled = chosen.iter().map(|&b| blocks[b].len as u64).sum();
        chosen.iter().zip(record_lens).for_each(|(&block, len)| blocks[block].record_len = Some(len));
        for k in kinds.values() {
            let raw: u64 = k.chosen.iter().map(|&b| blocks[b].len as u64).sum();
            let records: u64 = k.chosen.iter().map(|&b| blocks[b].record_len.expect("it was compressed")).sum();
            for &b in &k.all {
                let like_others = || u128::from(records) * blocks[b].len as u128 / u128::from(raw);
                let record_len = blocks[b].record_len.unwrap_or_else(|| like_others() as u64);
                blocks[b].record_len = Some(record_len);
            }
        }
        for b in &blocks {
            let record_len = b.record_len.expect("every block is of a kind");
            writer.block(&BlockSummary {
                record_len,
                raw_len: b.len as u64,
                features: Features::default(),
                leaves: vec![],
            });
        }
        let (_, summary) = self.workers().with(|encoder| writer.finish(&layout, encoder.frames()))?;
        Ok(Estimate { raw_size: size, compressed_size: summary.compressed_size, sampled })
    }
}

/// The blocks of a kind, and those of them that are compressed.
#[derive(Default)]
struct Sampled {
    all: Vec<usize>,
    chosen: Vec<usize>,
}

/// The name of a tensor without its numbers: tensors of one pattern in different layers are similar.
fn pattern(segment: &Segment) -> String {
    segment.name.iter().flat_map(|n| n.chars()).filter(|c| !c.is_ascii_digit()).collect()
}

/// Chooses blocks of every kind, evenly spread over names and over the file. `names`: the pattern of every segment's, and where it starts.
fn sample(blocks: &[Block], names: &[(u64, String)]) -> BTreeMap<Kind, Sampled> {
    let mut kinds: BTreeMap<Kind, Sampled> = BTreeMap::new();
    for (i, b) in blocks.iter().enumerate() {
        let largest = b.extents.iter().max_by_key(|p| p.len).expect("a block has extents");
        let kind = (largest.dtype, largest.base.map(|l| (l.source, l.conversion)));
        kinds.entry(kind).or_default().all.push(i);
    }
    let size: u64 = blocks.iter().map(|b| b.len as u64).sum();
    let least = ((blocks.len() as u64 * BYTES).div_ceil(size.max(1)) as usize).max(BLOCKS);
    for k in kinds.values_mut() {
        // Layers repeat: blocks that are spread over the file alone could be of the same tensors again and again.
        let middle = |b: &Block| b.offset + b.len as u64 / 2;
        let name = |b: usize| names.partition_point(|n| n.0 <= middle(&blocks[b])).checked_sub(1).map(|i| &names[i].1);
        k.all.sort_by(|&a, &b| name(a).cmp(&name(b)));
        let n = k.all.len();
        // The share of the kind, and two at least: one block says nothing of how they differ.
        let share = (n * least).div_ceil(blocks.len()).max(n.div_ceil(STEP)).max(2).min(n);
        k.chosen = (0..share).map(|i| k.all[(2 * i + 1) * n / (2 * share)]).collect();
    }
    kinds
}
