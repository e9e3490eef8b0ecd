//! Estimates the compressed size from a few blocks.

use std::collections::BTreeMap;

use crate::api::compress::{Compressor, Loader};
use crate::block::Extent;
use crate::block::encode::BlockSummary;
use crate::file::cut::BLOCK;
use crate::file::origin::Raw;
use crate::file::session::EncodeSession;
use crate::format::bases::BaseInfo;
use crate::format::header::Features;
use crate::refs::base::Base;
use crate::settings::options::CompressOptions;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::ReadAt;
use lmc_layout::segment::Segment;
use lmc_layout::{Layout, Start};

/// The estimated result of compressing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// Size of the raw file in bytes.
    pub raw_size: u64,
    /// Estimated size of the compressed file in bytes.
    pub compressed_size: u64,
    /// Two standard errors of that size in bytes, as far as the blocks show how they differ; 0 where it is exact.
    pub margin: u64,
    /// Raw bytes that were compressed for the estimate.
    pub sampled: u64,
}

/// Estimates the size of a file that is compressed, as a delta if there are bases: to decide whether, against which bases and at
/// which level to do it.
///
/// A file of at most twice [`Estimate::SAMPLE`] bytes is compressed whole, and the size is exact. Of a larger one, that
/// many bytes are compressed, in blocks that are spread evenly over the dtypes and names of its tensors; where little
/// changed since a base, up to eight times as many. Of the bases only the references of those blocks are read, and no
/// hashes are computed: the cost does not depend on the size of the file, but for its header and for samples of each
/// tensor.
///
/// # Errors
/// Those of [`Compressor::compress`].
pub fn estimate(raw: &dyn ReadAt, bases: &[Base<'_>], o: &CompressOptions) -> Result<Estimate> {
    Compressor::new(o)?.estimate(raw, bases)
}

impl Estimate {
    /// Bytes that are compressed of a large file.
    pub const SAMPLE: u64 = 64 << 20;
}

/// The fewest blocks: one says nothing of how they differ.
const LEAST: u64 = 2;

/// The most parts of a file that blocks are chosen from.
const PARTS: u64 = 1 << 20;

/// The longest blocks are at most this fraction of the sample, as far as blocks can be shorter.
const LARGEST: u64 = 8;

/// A part of a file, whose first block is compressed.
struct Part {
    offset: u64,
    /// Its place among those that were chosen, similar ones beside each other.
    rank: usize,
}

/// A block that is compressed.
struct Block {
    offset: u64,
    len: usize,
    extents: Vec<Extent>,
    rank: usize,
    /// How many chosen parts it stands for.
    parts: u64,
}

impl Compressor {
    /// [`estimate`] with this compressor's options, threads and buffers.
    ///
    /// # Errors
    /// Those of [`Compressor::compress`].
    pub fn estimate(&mut self, raw: &dyn ReadAt, bases: &[Base<'_>]) -> Result<Estimate> {
        self.estimate_from(raw, bases, Estimate::SAMPLE)
    }

    /// [`Self::estimate`] from another number of bytes than [`Estimate::SAMPLE`], for instance because there are many
    /// files; at least 2 MiB.
    ///
    /// # Errors
    /// Those of [`Compressor::compress`].
    pub fn estimate_from(&mut self, raw: &dyn ReadAt, bases: &[Base<'_>], sample: u64) -> Result<Estimate> {
        let sample = sample.max(LEAST * BLOCK);
        let size = raw.size().map_err(|e| Error::io("cannot get the size of the input", e))?;
        let layout = lmc_layout::detect(&mut Start::new(raw, size, "the input"), self.options().dtype)?;
        let chosen = (size / 2 > sample).then(|| choose(&layout, size, sample / BLOCK));
        let own = Raw::measured(raw);
        let bases = self.for_call(bases);
        let info =
            |b: &Base<'_>| Ok(BaseInfo { content_hash: [0; 16], raw_size: b.raw_size(), name: b.name().to_owned() });
        let EncodeSession { mut cutter, layout, mut writer, origin, .. } =
            EncodeSession::new(self.options(), layout, Some(&own), &bases, info)?;
        let mut blocks: Vec<Block> = Vec::new();
        let mut next = 0;
        match &chosen {
            None => {
                while next < size {
                    let mut extents = Vec::new();
                    let len = cutter.next_block(raw, size - next, &mut extents)?;
                    blocks.push(Block { offset: next, len, extents, rank: blocks.len(), parts: 1 });
                    next += len as u64;
                }
            }
            Some(chosen) => {
                let most = (sample / LARGEST).max(BLOCK) / BLOCK * BLOCK;
                for &Part { offset, rank } in chosen {
                    // A large block may reach there.
                    if let Some(last) = blocks.last_mut().filter(|_| offset < next) {
                        last.parts += 1;
                        continue;
                    }
                    cutter.skip(offset - next);
                    let mut extents = Vec::new();
                    let len = cutter.next_block_within(raw, size - offset, most, &mut extents)?;
                    blocks.push(Block { offset, len, extents, rank, parts: 1 });
                    next = offset + len as u64;
                }
            }
        }
        let (mut record_lens, mut coming) = (Vec::new(), blocks.iter());
        self.encoders().blocks(
            &Loader::File(raw, &own),
            &origin,
            |job| {
                let Some(Block { offset, len, extents, .. }) = coming.next() else { return Ok(false) };
                (job.offset, job.len) = (*offset, *len);
                job.extents.clone_from(extents);
                Ok(true)
            },
            |block, _| {
                record_lens.push(block.record_len);
                Ok(())
            },
        )?;
        let sampled = blocks.iter().map(|b| b.len as u64).sum();
        let mut put = |record_len, raw_len| {
            writer.block(&BlockSummary { record_len, raw_len, features: Features::default(), leaves: vec![] });
        };
        match &chosen {
            None => blocks.iter().zip(&record_lens).for_each(|(b, &len)| put(len, b.len as u64)),
            Some(chosen) => {
                // The bytes that each block stands for, in blocks of its length, or of so many times that.
                let times = size.div_ceil(BLOCK * PARTS);
                let end_of = |parts: u64| (u128::from(size) * u128::from(parts) / chosen.len() as u128) as u64;
                let mut parts = 0;
                for (b, &record_len) in blocks.iter().zip(&record_lens) {
                    let (from, len, record_len) = (end_of(parts), b.len as u64 * times, record_len * times);
                    parts += b.parts;
                    let raw = end_of(parts) - from;
                    (0..raw / len).for_each(|_| put(record_len, len));
                    if !raw.is_multiple_of(len) {
                        put((u128::from(record_len) * u128::from(raw % len) / u128::from(len)) as u64, raw % len);
                    }
                }
            }
        }
        let margin = if chosen.is_some() { margin(size, sampled, &blocks, &record_lens) } else { 0 };
        let (_, summary) = self.workers().with(|encoder| writer.finish(&layout, encoder.frames()))?;
        Ok(Estimate { raw_size: size, compressed_size: summary.compressed_size, margin, sampled })
    }
}

/// The name of a tensor without its numbers: tensors of one pattern in different layers are similar.
fn pattern(segment: &Segment) -> String {
    segment.name.iter().flat_map(|n| n.chars()).filter(|c| !c.is_ascii_digit()).collect()
}

/// Chooses `count` parts of a file (all if there are fewer), evenly spread over dtypes, names and the file; in order of
/// their offsets.
fn choose(layout: &Layout, size: u64, count: u64) -> Vec<Part> {
    let len = BLOCK * size.div_ceil(BLOCK * PARTS);
    // Each kind of segment has a number: dtype, then pattern of names.
    let kind = |s: &Segment| (s.dtype, pattern(s));
    let mut kinds: BTreeMap<(Option<Dtype>, String), usize> = layout.segments.iter().map(|s| (kind(s), 0)).collect();
    kinds.values_mut().enumerate().for_each(|(i, number)| *number = i + 1);
    // What follows the last segment is of kind 0.
    let of_segment: Vec<usize> = layout.segments.iter().map(|s| kinds[&kind(s)]).collect();
    let mut segment = 0;
    // The rest of the file is shorter than a part, and goes with the last one.
    let mut parts: Vec<(usize, u64)> = (0..size / len)
        .map(|part| {
            let middle = part * len + len / 2;
            while layout.segments.get(segment).is_some_and(|s| s.end() <= middle) {
                segment += 1;
            }
            (of_segment.get(segment).copied().unwrap_or(0), part * len)
        })
        .collect();
    parts.sort_unstable();
    let (n, count) = (parts.len(), parts.len().min(usize::try_from(count).unwrap_or(usize::MAX)));
    let chosen = (0..count).map(|rank| Part { offset: parts[(2 * rank + 1) * n / (2 * count)].1, rank });
    let mut chosen: Vec<Part> = chosen.collect();
    chosen.sort_unstable_by_key(|part| part.offset);
    chosen
}

/// Two standard errors of the size, from the differences between neighbours among similar blocks: as for systematic
/// samples (Wolter, *Introduction to Variance Estimation*, 2007, chapter 8).
fn margin(size: u64, sampled: u64, blocks: &[Block], record_lens: &[u64]) -> u64 {
    let of = |(b, &len): (&Block, &u64)| (b.rank, len as f64 / b.len as f64);
    let mut ratios: Vec<(usize, f64)> = blocks.iter().zip(record_lens).map(of).collect();
    ratios.sort_unstable_by_key(|(rank, _)| *rank);
    let n = ratios.len() as f64;
    let squares: f64 = ratios.windows(2).map(|pair| (pair[1].1 - pair[0].1).powi(2)).sum();
    let unseen = 1.0 - sampled as f64 / size as f64;
    let variance = unseen * squares / (2.0 * n * (n - 1.0).max(1.0));
    (2.0 * variance.sqrt() * size as f64).ceil() as u64
}
