//! Frames of zstd, tried on samples first.

use super::Zstd;
use crate::block::methods::Method;
use crate::block::methods::planned::ColumnPlan;
use crate::block::stream::planned::Item;
use crate::block::structure::Structure;
use crate::block::structure::opaque::WIDEST;
use crate::format::frames::FrameEncoder;
use crate::settings::level::Level;
use lmc_kernels::entropy::cost;
use lmc_kernels::entropy::histogram::{Histogram, histogram};
use lmc_kernels::planes;
use lmc_layout::error::Result;

/// Plans frames, keeping its working memory.
pub(in crate::block) struct FramePlanner {
    level: Level,
    pub(in crate::block) frames: FrameEncoder,
    /// Byte planes.
    planes: Vec<u8>,
}

/// Parts of a column that zstd tries before the whole, and bytes of each.
const SAMPLES: usize = 4;
pub(in crate::block) const SAMPLE_BYTES: usize = 8 << 10;
/// Bytes of a window in which zstd shows more.
const WINDOW_BYTES: usize = 32 << 10;
/// Least opaque bytes whose planes are tried.
const PLANES_LEAST: usize = 4 << 10;
/// If zstd shrinks a sample of opaque bytes by 4× to 64×, they are text, and no other method is tried; above 64× they are constant, and
/// clusters are smaller.
const TEXT: u64 = 4;
const TEXT_MOST: u64 = 64;

impl FramePlanner {
    pub(in crate::block) fn new(level: Level) -> Self {
        Self { level, frames: FrameEncoder::new(level), planes: vec![] }
    }

    /// A frame of text; `None` if opaque bytes are something else. `sampled` is the estimated length of a frame of them.
    pub(in crate::block) fn try_text(&mut self, bytes: &[u8], sampled: Option<u64>) -> Result<Option<ColumnPlan>> {
        let len = bytes.len() as u64;
        // Text, not a tensor, unless there is less in its planes.
        if let Some(n) = sampled.filter(|n| n * TEXT < len && n * TEXT_MOST > len)
            && self.sampled(WIDEST, bytes)?.is_none_or(|of_planes| n <= of_planes)
        {
            return Ok(Some(zstd(1, self.frames.encode(bytes)?)));
        }
        Ok(None)
    }

    /// A frame of elements with structure, or of their byte planes, if it is shorter than `other` bytes.
    pub(in crate::block) fn try_structured(
        &mut self,
        width: usize,
        structure: Structure,
        bytes: &[u8],
        other: u64,
    ) -> Result<Option<ColumnPlan>> {
        let mut best = (other - self.margin(other), None);
        for planes_of in [1, width].into_iter().take(if width > 1 { 2 } else { 1 }) {
            // A sample has few of the repeats that are far apart, and of the places that have values in common.
            if !structure.repeats
                && (self
                    .sampled_within(Some(other + other / 4), planes_of, bytes)?
                    .is_some_and(|n| n > other + other / 4)
                    || !self.promises(planes_of, bytes, other)?)
            {
                continue;
            }
            let frame = self.frames.encode_whole(split(planes_of, bytes, &mut self.planes), false)?;
            if (frame.len() as u64) < best.0 {
                best = (frame.len() as u64, Some(zstd(planes_of, frame)));
            }
        }
        self.thorough(best.1, bytes)
    }

    /// A frame of opaque bytes, or of the byte planes of the widest elements, which are planes of narrower ones, too, if it is shorter than
    /// `other` bytes: of big-endian elements, and of structs.
    pub(in crate::block) fn try_opaque(
        &mut self,
        bytes: &[u8],
        sampled: Option<u64>,
        other: u64,
    ) -> Result<Option<ColumnPlan>> {
        let mut best = self.try_zstd(bytes, sampled, other)?;
        let other = best.as_ref().map_or(other, |plan| plan.estimate);
        if bytes.len() >= PLANES_LEAST
            && bytes.len().is_multiple_of(WIDEST)
            && (sampled.is_some() || other * TEXT > bytes.len() as u64)
            && self.sampled(WIDEST, bytes)?.is_none_or(|n| n <= other + other / 10)
        {
            let margin = self.margin(other);
            let frame = self.frames.encode_whole(split(WIDEST, bytes, &mut self.planes), false)?;
            if frame.len() as u64 + margin < other {
                best = Some(zstd(WIDEST, frame));
            }
        }
        self.thorough(best, bytes)
    }

    /// At level `max`, the frame that a thorough search finds, if it is shorter.
    fn thorough(&mut self, plan: Option<ColumnPlan>, bytes: &[u8]) -> Result<Option<ColumnPlan>> {
        let Some(ColumnPlan { method: Method::Zstd(Zstd { width, .. }), estimate, .. }) = plan else { return Ok(plan) };
        if self.level != Level::Max {
            return Ok(plan);
        }
        let frame = self.frames.encode_whole(split(width, bytes, &mut self.planes), true)?;
        Ok(if (frame.len() as u64) < estimate { Some(zstd(width, frame)) } else { plan })
    }

    /// A frame of `bytes` if it is shorter than `other` bytes.
    pub(in crate::block) fn try_zstd(
        &mut self,
        bytes: &[u8],
        sampled: Option<u64>,
        other: u64,
    ) -> Result<Option<ColumnPlan>> {
        // Small columns, such as those at a block's edge, are not worth the trial to save an eighth.
        if bytes.len() < SAMPLE_BYTES && shortest_without_repeats(bytes) > other - other / 8 && !repeats(bytes) {
            return Ok(None);
        }
        let sampled = if sampled.is_none() { self.sampled(1, bytes)? } else { sampled };
        // The whole has more repeats than the sample: allow a tenth for them.
        if sampled.is_some_and(|n| n > other + other / 10) {
            return Ok(None);
        }
        let margin = self.margin(other);
        let frame = self.frames.encode(bytes)?;
        Ok((frame.len() as u64 + margin < other).then(|| zstd(1, frame)))
    }

    /// Bytes that a frame must save: at equal size lanes are several times as fast.
    fn margin(&self, other: u64) -> u64 {
        if self.level == Level::Fast { other / 20 } else { other / 100 }
    }

    /// Whether a frame of `bytes`, or of their byte planes, may be shorter than `other` bytes, as that of two longer windows is: of a column
    /// whose repeats are near each other. A whole frame in vain would take several times as long as everything else.
    pub(in crate::block) fn promises(&mut self, planes_of: usize, bytes: &[u8], other: u64) -> Result<bool> {
        let len = bytes.len();
        if self.level == Level::Max || len < 8 * WINDOW_BYTES {
            return Ok(true);
        }
        // Where the sample has none.
        let windows = [3, 7].map(|eighths| &bytes[len / 64 * 8 * eighths..][..WINDOW_BYTES]).concat();
        // In a longer frame the tables of planes are a smaller part.
        let most = if planes_of == 1 { other - self.margin(other) } else { other + other / 32 };
        let frame = self.frames.encode_whole(split(planes_of, &windows, &mut self.planes), false)?;
        Ok(frame.len() as u64 * len as u64 <= most * windows.len() as u64)
    }

    /// Length of a frame of `bytes`, or of their byte planes, estimated from a sample; `None` if they are too few for one.
    pub(in crate::block) fn sampled(&mut self, planes_of: usize, bytes: &[u8]) -> Result<Option<u64>> {
        self.sampled_within(None, planes_of, bytes)
    }

    /// [`Self::sampled`], roughly if it is far above `most`.
    fn sampled_within(&mut self, most: Option<u64>, planes_of: usize, bytes: &[u8]) -> Result<Option<u64>> {
        if bytes.len() <= 2 * SAMPLES * SAMPLE_BYTES {
            return Ok(None);
        }
        let step = bytes.len() / SAMPLES / 8 * 8;
        let sample: Vec<u8> = (0..SAMPLES).flat_map(|i| &bytes[i * step..i * step + SAMPLE_BYTES]).copied().collect();
        let (all, len) = (bytes.len() as u64, sample.len() as u64);
        let most = most.filter(|_| self.level != Level::Max).map_or(u64::MAX, |most| (most + most / 4) * len / all);
        let frame = self.frames.encode_if_near(split(planes_of, &sample, &mut self.planes), most as usize)?;
        Ok(Some(frame.len() as u64 * all / len))
    }
}

/// A frame of the byte planes of elements of `width` bytes; 1 for the bytes as they are.
fn zstd(width: usize, frame: &[u8]) -> ColumnPlan {
    let (body, estimate) = (vec![Item::Bytes(frame.to_vec())], frame.len() as u64);
    ColumnPlan { body, estimate, ..ColumnPlan::of(Method::Zstd(Zstd { width, frame_len: frame.len() })) }
}

/// The byte planes of elements of `width` bytes, in `buf`; with width 1, the bytes themselves.
fn split<'b>(width: usize, bytes: &'b [u8], buf: &'b mut Vec<u8>) -> &'b [u8] {
    if width == 1 {
        return bytes;
    }
    buf.clear();
    planes::split(width, bytes, buf);
    buf
}

/// Approximate length of a frame without repeats: Huffman codes, and about four bits per symbol for their lengths.
fn shortest_without_repeats(bytes: &[u8]) -> u64 {
    let counts: Histogram = histogram(bytes, usize::from);
    let symbols = counts.iter().filter(|&&n| n > 0).count() as u64;
    (cost::entropy(&counts) / cost::BIT + 4 * symbols) / 8
}

/// Whether more than 1/16 of a sample of words that are not zero repeat others.
pub(in crate::block) fn repeats(bytes: &[u8]) -> bool {
    const WORDS: usize = 64;
    let words = bytes.as_chunks::<8>().0;
    let mut seen: Vec<[u8; 8]> = if words.len() <= 2 * WORDS {
        words.to_vec()
    } else {
        // Half of them contiguous, for short periods.
        let middle = words.len() / 2;
        let spread = words.iter().step_by(words.len() / WORDS).take(WORDS);
        spread.chain(&words[middle..][..WORDS]).copied().collect()
    };
    seen.retain(|w| *w != [0; 8]);
    let n = seen.len();
    seen.sort_unstable();
    seen.dedup();
    n - seen.len() > n / 16
}
