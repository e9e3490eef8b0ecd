//! Chooses the method of a column.

use super::plan::{Planner, coding_of};
use super::planned::{ColumnPlan, StreamPlan};
use super::predictor_choice::PredictionInput;
use super::sparse::is_mostly_zero;
use crate::arch::inline::array;
use crate::cluster::RUN;
use crate::cluster::element::with_element;
use crate::cluster::runs::count_run;
use crate::dtype::Dtype;
use crate::entropy::histogram::{Histogram, histogram, sum_of};
use crate::entropy::{LANES, SETS, cost};
use crate::error::Result;
use crate::format::block_head::Method;
use crate::frames::FrameEncoder;
use crate::isa::Isa;
use crate::layout::safetensors::list;
use crate::map::Map;
use crate::options::Level;
use crate::predict::Conversion;
use crate::predict::job::Streams;

/// Chooses methods, keeping its working memory.
pub(crate) struct Chooser {
    level: Level,
    planner: Planner,
    /// Working memory of predicted columns.
    spare: Vec<Streams>,
    frames: FrameEncoder,
    /// A tensor list.
    list: Vec<u8>,
}

/// Bytes of a block's lane states, which a column with clusters must save.
const LANE_BYTES: u64 = 4 * (SETS * LANES) as u64;
/// Parts of a column that zstd tries before the whole, and bytes of each.
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 8 << 10;
/// If zstd shrinks a sample of opaque bytes by 4× to 64×, they are text, and no other method is tried; above 64× they are constant, and
/// clusters are smaller.
const TEXT: u64 = 4;
const TEXT_MOST: u64 = 64;

impl Chooser {
    pub(crate) fn new(isa: Isa, level: Level) -> Self {
        Self {
            level,
            planner: Planner::new(isa, level),
            spare: Vec::new(),
            frames: FrameEncoder::new(level),
            list: vec![],
        }
    }

    /// Plans a column of whole elements of the dtype; `base` has a prediction for each.
    ///
    /// # Errors
    /// `Limit` when there is no memory for zstd.
    pub(crate) fn choose(
        &mut self,
        dtype: Option<Dtype>,
        bytes: &[u8],
        base: Option<(&[u8], Conversion)>,
    ) -> Result<ColumnPlan> {
        let Some((prediction, conversion)) = base else { return self.choose_plain(dtype, bytes) };
        let (width, map) = dtype.map_or_else(|| detect_width(bytes).unwrap_or((1, Map::Identity)), coding_of);
        let input = PredictionInput { prediction, conversion, map };
        let residuals = self.spare.pop().unwrap_or_default();
        Ok(match self.planner.plan_predicted(width, bytes, &input, residuals) {
            // Unless zstd or a list might still win.
            Ok((predicted, sure)) if sure && map == Map::Rotate && !repeats(bytes) && !is_mostly_zero(width, bytes) => {
                predicted
            }
            Ok((predicted, _)) => match self.choose_plain(dtype, bytes)? {
                plain if plain.estimate <= predicted.estimate => {
                    self.recycle(predicted);
                    plain
                }
                _ => predicted,
            },
            Err(residuals) => {
                self.spare.push(residuals);
                self.choose_plain(dtype, bytes)?
            }
        })
    }

    /// Takes back the working memory of a plan.
    pub(crate) fn recycle(&mut self, plan: ColumnPlan) {
        if plan.is_predicted() {
            self.spare.push(plan.residuals);
        }
    }

    /// Plans a column without predictions.
    fn choose_plain(&mut self, dtype: Option<Dtype>, bytes: &[u8]) -> Result<ColumnPlan> {
        let len = bytes.len() as u64;
        if dtype.is_none()
            && let Some(list) = self.try_tensor_list(bytes)?
        {
            return Ok(list);
        }
        let sampled = if dtype.is_none() { self.sampled(bytes)? } else { None };
        // Text, not a tensor.
        if sampled.is_some_and(|n| n * TEXT < len && n * TEXT_MOST > len) {
            return Ok(ColumnPlan::zstd(self.frames.encode(bytes)?));
        }
        let coding = match dtype {
            Some(d) => Some(coding_of(d)),
            None => detect_width(bytes),
        };
        let stream = coding.map(|(width, map)| self.planner.plan(width, map, bytes));
        let lanes = |g: &StreamPlan| if g.stream.clusters.is_empty() { 0 } else { LANE_BYTES };
        let estimate = stream.as_ref().map_or(len, |g| g.estimate + lanes(g)).min(len);
        let float = dtype.is_some() && coding.is_some_and(|(_, map)| map == Map::Rotate);
        // Trained floats have no repeats for zstd to find; a few words show whether these have.
        if (!float || len < SAMPLE_BYTES as u64 || repeats(bytes))
            && let Some(frame) = self.try_zstd(bytes, sampled, estimate)?
        {
            return Ok(frame);
        }
        Ok(match stream {
            Some(g) if g.estimate + lanes(&g) < len || g.estimate * 64 < len => ColumnPlan::plain(g),
            _ => ColumnPlan::stored(bytes.len()),
        })
    }

    /// A safetensors header as a tensor list, if it is one and the list is shorter.
    fn try_tensor_list(&mut self, bytes: &[u8]) -> Result<Option<ColumnPlan>> {
        self.list.clear();
        if list::list(bytes, &mut self.list).is_none() {
            return Ok(None);
        }
        let frame = self.frames.encode(&self.list)?;
        // Lengths take a few bytes more than those of other methods.
        let method = Method::TensorList { list_len: self.list.len(), frame_len: frame.len() };
        Ok((frame.len() + 8 < bytes.len()).then(|| ColumnPlan::framed(method, frame)))
    }

    /// A frame of `bytes` if it is shorter than `other` bytes.
    fn try_zstd(&mut self, bytes: &[u8], sampled: Option<u64>, other: u64) -> Result<Option<ColumnPlan>> {
        // Small columns, such as those at a block's edge, are not worth the trial to save an eighth.
        if bytes.len() < SAMPLE_BYTES && shortest_without_repeats(bytes) > other - other / 8 && !repeats(bytes) {
            return Ok(None);
        }
        let sampled = if sampled.is_none() { self.sampled(bytes)? } else { sampled };
        // The whole has more repeats than the sample: allow a tenth for them.
        if sampled.is_some_and(|n| n > other + other / 10) {
            return Ok(None);
        }
        let frame = self.frames.encode(bytes)?;
        // At equal size lanes are several times as fast.
        let margin = if self.level == Level::Fast { other / 20 } else { other / 100 };
        Ok((frame.len() as u64 + margin < other).then(|| ColumnPlan::zstd(frame)))
    }

    /// Length of a frame of `bytes`, estimated from a sample; `None` if they are too few for one.
    fn sampled(&mut self, bytes: &[u8]) -> Result<Option<u64>> {
        if bytes.len() <= 2 * SAMPLES * SAMPLE_BYTES {
            return Ok(None);
        }
        let step = bytes.len() / SAMPLES;
        let sample: Vec<u8> = (0..SAMPLES).flat_map(|i| &bytes[i * step..i * step + SAMPLE_BYTES]).copied().collect();
        let frame = self.frames.encode(&sample)?;
        Ok(Some(frame.len() as u64 * bytes.len() as u64 / sample.len() as u64))
    }
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

/// The width and map under which opaque bytes look like floats or integers, if any.
fn detect_width(bytes: &[u8]) -> Option<(usize, Map)> {
    const SAMPLE_RUNS: usize = 24;
    if bytes.len() < 4096 {
        return None;
    }
    let mut best: Option<(u64, (usize, Map))> = None;
    for (width, map) in [(1, Map::Identity), (2, Map::Rotate), (4, Map::Rotate), (8, Map::Rotate)] {
        if !bytes.len().is_multiple_of(width) {
            continue;
        }
        let run = RUN * width;
        let runs = bytes.len() / run;
        let step = (runs / SAMPLE_RUNS).max(1);
        // A histogram for every byte of the mapped element; a noisy byte costs eight bits.
        let mut bits = 0;
        let mut sampled = 0u64;
        for plane in 0..width {
            let mut h: [Histogram; 4] = [[0; 256]; 4];
            for r in (0..runs).step_by(step) {
                with_element!(width, E => count_run::<E>(map, 8 * plane as u32, &bytes[r * run..][..run], &mut h));
            }
            let h: Histogram = array(|s| sum_of(&h, s));
            let n: u64 = h.iter().map(|&c| u64::from(c)).sum();
            // Only the top byte is coded by a table; constant bytes below it are dropped.
            let constant = h.iter().any(|&c| u64::from(c) == n);
            bits += if plane == width - 1 || constant {
                cost::estimate(&h, 7).min(8 * cost::BIT * n)
            } else {
                8 * cost::BIT * n
            };
            sampled += n;
        }
        let score = bits * 1000 / sampled.max(1);
        if best.is_none_or(|b| score * 100 < b.0 * 99) {
            best = Some((score, (width, map)));
        }
    }
    best.filter(|b| b.0 < 7900 * cost::BIT).map(|b| b.1)
}
