//! Chooses the method of a column.

use super::opaque::{WIDEST, detect_width};
use super::plan::{Planner, coding_of};
use super::planned::{ColumnPlan, StreamPlan};
use super::predictor_choice::PredictionInput;
use super::sparse::is_mostly_zero;
use super::structure::{Finder, LEAST, Structure, is_few, palette};
use super::{Matrix, grid};
use crate::format::block_head::{Method, NamedRanges, Palette};
use crate::format::frames::{self, FrameEncoder};
use crate::format::limits::{MAX_PREFIX, MAX_RAW};
use crate::settings::level::Level;
use lmc_kernels::entropy::histogram::{Histogram, histogram};
use lmc_kernels::entropy::{LANES, SETS, cost};
use lmc_kernels::isa::Isa;
use lmc_kernels::map::Map;
use lmc_kernels::planes;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::job::Streams;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;

/// A column to plan: whole elements of the dtype.
#[derive(Clone, Copy)]
pub(crate) struct RawColumn<'a> {
    pub(super) dtype: Option<Dtype>,
    /// The structure that was found in it, unless it has predictions.
    pub(super) structure: Structure,
    /// Where its elements are in a matrix, if they may be on a grid.
    pub(super) matrix: Option<Matrix>,
    pub(super) bytes: &'a [u8],
}

/// Chooses methods, keeping its working memory.
pub(crate) struct Chooser {
    level: Level,
    planner: Planner,
    /// Working memory of predicted columns.
    spare: Vec<Streams>,
    frames: FrameEncoder,
    /// Of columns with predictions, which need it seldom.
    finder: Finder,
    /// Byte planes.
    planes: Vec<u8>,
}

/// Bytes of a block's lane states, which a column with clusters must save.
const LANE_BYTES: u64 = 4 * (SETS * LANES) as u64;
/// Parts of a column that zstd tries before the whole, and bytes of each.
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 8 << 10;
/// Least opaque bytes whose planes are tried.
const PLANES_LEAST: usize = 4 << 10;
/// If zstd shrinks a sample of opaque bytes by 4× to 64×, they are text, and no other method is tried; above 64× they are constant, and
/// clusters are smaller.
const TEXT: u64 = 4;
const TEXT_MOST: u64 = 64;
/// Opaque bytes that are tried with a prefix although they may be no text.
const SHORT: usize = 64 << 10;

impl Chooser {
    pub(crate) fn new(isa: Isa, level: Level) -> Self {
        Self {
            level,
            planner: Planner::new(isa, level),
            spare: Vec::new(),
            frames: FrameEncoder::new(level),
            finder: Finder::default(),
            planes: vec![],
        }
    }

    /// Plans a column; `base` has a prediction for each element.
    ///
    /// # Errors
    /// `Limit` when there is no memory for zstd.
    pub(crate) fn choose(&mut self, column: &RawColumn<'_>, base: Option<(&[u8], Conversion)>) -> Result<ColumnPlan> {
        let Some((prediction, conversion)) = base else { return self.choose_plain(column) };
        let &RawColumn { dtype, bytes, .. } = column;
        let (width, map) = dtype.map_or_else(|| detect_width(bytes).unwrap_or((1, Map::Identity)), coding_of);
        let input = PredictionInput { prediction, conversion, map };
        let residuals = self.spare.pop().unwrap_or_default();
        Ok(match self.planner.plan_predicted(width, bytes, &input, residuals) {
            // Unless zstd might still win.
            Ok((predicted, sure)) if sure && map == Map::Rotate && !repeats(bytes) && !is_mostly_zero(width, bytes) => {
                predicted
            }
            Ok((predicted, _)) => match self.choose_structured(column)? {
                plain if plain.estimate <= predicted.estimate => {
                    self.recycle(predicted);
                    plain
                }
                _ => predicted,
            },
            Err(residuals) => {
                self.spare.push(residuals);
                self.choose_structured(column)?
            }
        })
    }

    pub(super) fn frames(&mut self) -> &mut FrameEncoder {
        &mut self.frames
    }

    /// Takes back the working memory of a plan.
    pub(crate) fn recycle(&mut self, plan: ColumnPlan) {
        if plan.is_predicted() {
            self.spare.push(plan.residuals);
        }
    }

    /// The plan of opaque bytes, or a frame whose matches reach into a prefix of this length, which `read` reads, if that is shorter.
    pub(crate) fn or_with_prefix<'p>(
        &mut self,
        bytes: &[u8],
        prefix_len: u64,
        read: impl FnOnce() -> Result<&'p [u8]>,
        plan: ColumnPlan,
    ) -> Result<ColumnPlan> {
        let len = bytes.len() as u64;
        // A frame and its range take some 30 bytes.
        let room = prefix_len <= MAX_PREFIX && prefix_len + len <= MAX_RAW as u64 && plan.estimate > 64;
        if !room || bytes.len() > SHORT && self.sampled(1, bytes)?.is_none_or(|n| n * TEXT >= len) {
            return Ok(plan);
        }
        let prefix = read()?;
        let frame = frames::encode_after(prefix, bytes, self.level)?;
        if frame.len() as u64 + 16 >= plan.estimate {
            return Ok(plan);
        }
        self.recycle(plan);
        // The block names the ranges.
        let method = Method::Zstd { width: 1, prefix: NamedRanges { first: 0, count: 1 }, frame_len: frame.len() };
        Ok(ColumnPlan::framed(method, &frame))
    }

    /// Plans a column without its predictions.
    fn choose_structured(&mut self, column: &RawColumn<'_>) -> Result<ColumnPlan> {
        let find = |d: Dtype| self.finder.find(d.coding_width(), column.bytes);
        let structure = column.dtype.map_or_else(Structure::default, find);
        self.choose_plain(&RawColumn { structure, ..*column })
    }

    /// Plans a column without predictions.
    fn choose_plain(&mut self, column: &RawColumn<'_>) -> Result<ColumnPlan> {
        let &RawColumn { dtype, structure, bytes, .. } = column;
        let len = bytes.len() as u64;
        let sampled = if dtype.is_none() { self.sampled(1, bytes)? } else { None };
        // Text, not a tensor, unless there is less in its planes.
        if let Some(n) = sampled.filter(|n| n * TEXT < len && n * TEXT_MOST > len)
            && self.sampled(WIDEST, bytes)?.is_none_or(|of_planes| n <= of_planes)
        {
            return Ok(ColumnPlan::zstd(1, self.frames.encode(bytes)?));
        }
        let coding = match dtype {
            Some(d) => Some(coding_of(d)),
            None => detect_width(bytes),
        };
        let few = structure.few || dtype.is_none() && coding.is_some_and(|(width, _)| is_few(width, bytes));
        let lanes = |g: &StreamPlan| if g.stream.clusters.is_empty() { 0 } else { LANE_BYTES };
        let mut stream = coding.map(|(width, map)| self.planner.plan(width, map, bytes));
        if let Some((width, _)) = coding
            && few
            && let Some((values, of_elements)) = palette(width, bytes)
        {
            let mut plan = self.planner.plan(width, Map::Identity, &of_elements);
            plan.estimate += (values.len() * width) as u64;
            if stream.as_ref().is_none_or(|g| plan.estimate < g.estimate) {
                plan.stream.palette = Some(Palette { values });
                stream = Some(plan.owning(of_elements));
            }
        }
        if let Some((width, map)) = coding
            && few
            && let Some((plan, of_mask)) = self.planner.plan_masked(width, map, bytes)
            && stream.as_ref().is_none_or(|g| plan.estimate < g.estimate)
        {
            stream = Some(plan.owning(of_mask));
        }
        let estimate = stream.as_ref().map_or(len, |g| g.estimate + lanes(g)).min(len);
        let grid = self.on_grid(column, estimate);
        let estimate = grid.as_ref().map_or(estimate, |plan| plan.estimate);
        let float = dtype.is_some() && coding.is_some_and(|(_, map)| map == Map::Rotate);
        let frame = if !structure.is_noise() || dtype.is_some() && !float && bytes.len() >= LEAST {
            let width = coding.map_or(1, |c| c.0);
            self.try_structured(width, structure, bytes, estimate)?
        } else if dtype.is_none() {
            self.try_opaque(bytes, sampled, estimate)?
        } else if !float || len < SAMPLE_BYTES as u64 || repeats(bytes) {
            // Trained floats have no repeats for zstd to find; a few words show whether these have.
            self.try_zstd(bytes, sampled, estimate)?
        } else {
            None
        };
        if let Some(frame) = frame {
            grid.into_iter().for_each(|plan| self.recycle(plan));
            return Ok(frame);
        }
        if let Some(plan) = grid {
            return Ok(plan);
        }
        Ok(match stream {
            Some(g) if g.estimate + lanes(&g) < len || g.estimate * 64 < len => ColumnPlan::plain(g),
            _ => ColumnPlan::stored(bytes.len()),
        })
    }

    /// A plan of elements that are on a grid, if it takes less than `other` bytes.
    fn on_grid(&mut self, column: &RawColumn<'_>, other: u64) -> Option<ColumnPlan> {
        let (dtype, matrix) = (column.dtype?, column.matrix.filter(|_| column.structure.few)?);
        let found = grid::find(dtype, &matrix, column.bytes)?;
        let residuals = self.spare.pop().unwrap_or_default();
        let plan = self.planner.plan_grid(dtype, column.bytes, found, residuals);
        let mut plan = plan.map_err(|residuals| self.spare.push(residuals)).ok()?;
        plan.estimate += LANE_BYTES;
        if plan.estimate < other {
            return Some(plan);
        }
        self.recycle(plan);
        None
    }

    /// A frame of elements with structure, or of their byte planes, if it is shorter than `other` bytes.
    fn try_structured(
        &mut self,
        width: usize,
        structure: Structure,
        bytes: &[u8],
        other: u64,
    ) -> Result<Option<ColumnPlan>> {
        let mut best = (other - self.margin(other), None);
        for planes_of in [1, width].into_iter().take(if width > 1 { 2 } else { 1 }) {
            // A sample has few of the repeats that are far apart, and of the places that have values in common.
            if !structure.repeats && self.sampled(planes_of, bytes)?.is_some_and(|n| n > other + other / 4) {
                continue;
            }
            let frame = self.frames.encode_whole(split(planes_of, bytes, &mut self.planes), false)?;
            if (frame.len() as u64) < best.0 {
                best = (frame.len() as u64, Some(ColumnPlan::zstd(planes_of, frame)));
            }
        }
        self.thorough(best.1, bytes)
    }

    /// A frame of opaque bytes, or of the byte planes of the widest elements, which are planes of narrower ones, too, if it is shorter than
    /// `other` bytes: of big-endian elements, and of structs.
    fn try_opaque(&mut self, bytes: &[u8], sampled: Option<u64>, other: u64) -> Result<Option<ColumnPlan>> {
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
                best = Some(ColumnPlan::zstd(WIDEST, frame));
            }
        }
        self.thorough(best, bytes)
    }

    /// At level `max`, the frame that a thorough search finds, if it is shorter.
    fn thorough(&mut self, plan: Option<ColumnPlan>, bytes: &[u8]) -> Result<Option<ColumnPlan>> {
        let Some(ColumnPlan { method: Method::Zstd { width, .. }, estimate, .. }) = plan else { return Ok(plan) };
        if self.level != Level::Max {
            return Ok(plan);
        }
        let frame = self.frames.encode_whole(split(width, bytes, &mut self.planes), true)?;
        Ok(if (frame.len() as u64) < estimate { Some(ColumnPlan::zstd(width, frame)) } else { plan })
    }

    /// A frame of `bytes` if it is shorter than `other` bytes.
    fn try_zstd(&mut self, bytes: &[u8], sampled: Option<u64>, other: u64) -> Result<Option<ColumnPlan>> {
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
        Ok((frame.len() as u64 + margin < other).then(|| ColumnPlan::zstd(1, frame)))
    }

    /// Bytes that a frame must save: at equal size lanes are several times as fast.
    fn margin(&self, other: u64) -> u64 {
        if self.level == Level::Fast { other / 20 } else { other / 100 }
    }

    /// Length of a frame of `bytes`, or of their byte planes, estimated from a sample; `None` if they are too few for one.
    fn sampled(&mut self, planes_of: usize, bytes: &[u8]) -> Result<Option<u64>> {
        if bytes.len() <= 2 * SAMPLES * SAMPLE_BYTES {
            return Ok(None);
        }
        let step = bytes.len() / SAMPLES / 8 * 8;
        let sample: Vec<u8> = (0..SAMPLES).flat_map(|i| &bytes[i * step..i * step + SAMPLE_BYTES]).copied().collect();
        let frame = self.frames.encode(split(planes_of, &sample, &mut self.planes))?;
        Ok(Some(frame.len() as u64 * bytes.len() as u64 / sample.len() as u64))
    }
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
fn repeats(bytes: &[u8]) -> bool {
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
