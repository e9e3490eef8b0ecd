//! Chooses the method of a column.

use super::methods::plain::plan::is_tiny;
use super::methods::planned::ColumnPlan;
use super::methods::predicted::choice::PredictionInput;
use super::methods::predicted::derived::Derivation;
use super::methods::predicted::grid::find;
use super::methods::predicted::plan::OperandPlan;
use super::methods::predicted::{factored, scaled};
use super::methods::zstd::plan::{FramePlanner, SAMPLE_BYTES, repeats};
use super::stream::plan::{Planner, coding_of};
use super::stream::planned::StreamPlan;
use super::stream::sparse::is_mostly_zero;
use super::structure::opaque::detect_width;
use super::structure::{Finder, LEAST, Structure, is_few};
use super::{Matrix, Step};
use crate::format::frames::FrameEncoder;
use crate::settings::level::Level;
use lmc_kernels::entropy::{LANES, SETS};
use lmc_kernels::isa::Isa;
use lmc_kernels::map::Map;
use lmc_kernels::predict::job::Streams;
use lmc_kernels::predict::optimizer;
use lmc_kernels::predict::{Conversion, bits_apart};
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::io::scratch;

/// A column to plan: whole elements of the dtype.
#[derive(Clone, Copy)]
pub(crate) struct RawColumn<'a> {
    pub(super) dtype: Option<Dtype>,
    /// The structure that was found in it, unless it has predictions.
    pub(super) structure: Structure,
    /// Where its elements are in a matrix, if they are consecutive there.
    pub(super) matrix: Option<Matrix>,
    /// Whether they may be on a grid.
    pub(super) grids: bool,
    pub(super) bytes: &'a [u8],
}

/// What is known to predict a column: a prediction for each element.
#[derive(Clone, Copy)]
pub(crate) enum Predictions<'a> {
    /// Nothing.
    None,
    /// A base, converted; and those of the step of an optimizer from there, if there is one.
    Base { prediction: &'a [u8], conversion: Conversion, step: Option<(&'a [u8], Step)> },
    /// Data in another precision, and its scales.
    Derived { prediction: &'a [u8], derivation: Derivation, scales: &'a [u8] },
}

/// Chooses methods, keeping its working memory.
pub(crate) struct Chooser {
    planner: Planner,
    /// Working memory of predicted columns.
    spare: Vec<Streams>,
    frames: FramePlanner,
    /// Multiples of a prediction.
    multiples: Vec<u8>,
    /// Of columns with predictions, which need it seldom.
    finder: Finder,
}

/// Least elements of a row that may have a term.
const ROW_LEAST: u64 = 64;
/// A derived column that leaves one byte in this many is taken as it is.
const REPLAYED: u64 = 8;
/// Values of a column that is on no grid.
const GRID_VALUES: usize = 4;
/// Windows that say which of several predictions is worth a plan: bytes, and at least this many if there are as many; and how much
/// longer than the shortest differences others may be, as a part of a bit of an element.
const WINDOW: usize = 512;
const WINDOWS: usize = 64;
const NEAR: u64 = 16;
/// Bytes of a block's lane states, which a column with clusters must save.
const LANE_BYTES: u64 = 4 * (SETS * LANES) as u64;

impl Chooser {
    pub(crate) fn new(isa: Isa, level: Level) -> Self {
        Self {
            planner: Planner::new(isa, level),
            spare: Vec::new(),
            frames: FramePlanner::new(level),
            multiples: Vec::new(),
            finder: Finder::default(),
        }
    }

    /// Plans a column.
    ///
    /// # Errors
    /// `Limit` when there is no memory for zstd.
    pub(crate) fn choose(&mut self, column: &RawColumn<'_>, predictions: Predictions<'_>) -> Result<ColumnPlan> {
        let (prediction, conversion, step) = match predictions {
            Predictions::None => return self.choose_plain(column),
            Predictions::Derived { prediction, derivation, scales } => {
                return self.choose_derived(column, prediction, derivation, scales);
            }
            Predictions::Base { prediction, conversion, step } => (prediction, conversion, step),
        };
        let &RawColumn { dtype, bytes, .. } = column;
        let (width, map) = dtype.map_or_else(|| detect_width(bytes).unwrap_or((1, Map::Identity)), coding_of);
        let rows = dtype.and(column.matrix).filter(|m| m.row >= ROW_LEAST).map(Matrix::rows);
        let input = PredictionInput { prediction, map, rows, clusters: false };
        let factor =
            dtype.filter(|_| conversion == Conversion::None).and_then(|dtype| factor(dtype, bytes, prediction));
        let mut multiples = std::mem::take(&mut self.multiples);
        let mut candidates = vec![];
        if let Some((prediction, step)) = step {
            candidates.push((prediction, OperandPlan::step(step), 0));
        }
        candidates.push((prediction, OperandPlan::ranges(conversion), 0));
        if let Some(factor) = factor {
            let multiples = scratch(&mut multiples, bytes.len());
            optimizer::scaled(width, factor, prediction, multiples);
            // No element is below its multiple: the signs of differences take nothing.
            candidates.push((multiples, OperandPlan::scaled(factor), 1));
        }
        let mut plan = None;
        for (prediction, operand) in nearest(dtype, bytes, candidates) {
            let other = self.predicted(width, bytes, &PredictionInput { prediction, ..input }, operand);
            plan = self.shorter(plan, other);
        }
        self.multiples = multiples;
        Ok(match plan {
            // Unless zstd might still win.
            Some((predicted, sure))
                if sure && map == Map::Rotate && !repeats(bytes) && !is_mostly_zero(width, bytes) =>
            {
                predicted
            }
            Some((predicted, _)) => match self.choose_structured(column)? {
                plain if plain.estimate <= predicted.estimate => {
                    self.recycle(predicted);
                    plain
                }
                _ => predicted,
            },
            None => self.choose_structured(column)?,
        })
    }

    /// Plans a column that is derived from other data.
    fn choose_derived(
        &mut self,
        column: &RawColumn<'_>,
        prediction: &[u8],
        derivation: Derivation,
        scales: &[u8],
    ) -> Result<ColumnPlan> {
        let &RawColumn { dtype, bytes, .. } = column;
        let (width, map) = dtype.map_or((1, Map::Identity), coding_of);
        let input = PredictionInput { prediction, map, rows: None, clusters: false };
        let operand = OperandPlan::derived(&mut self.planner, derivation, scales);
        let plan = self.predicted(width, bytes, &input, operand);
        let Some((plan, _)) = plan else { return self.choose_structured(column) };
        if plan.estimate <= bytes.len() as u64 / REPLAYED {
            return Ok(plan);
        }
        let other = self.choose_structured(column)?;
        let (best, other) = if other.estimate <= plan.estimate { (other, plan) } else { (plan, other) };
        self.recycle(other);
        Ok(best)
    }

    /// The plan of a prediction, and whether none without one comes near; `None` if it promises no gain.
    fn predicted(
        &mut self,
        width: usize,
        bytes: &[u8],
        input: &PredictionInput<'_>,
        operand: OperandPlan,
    ) -> Option<(ColumnPlan, bool)> {
        let residuals = self.spare.pop().unwrap_or_default();
        let plan = self.planner.plan_predicted(width, bytes, input, |_| operand, residuals);
        plan.map_err(|residuals| self.spare.push(residuals)).ok()
    }

    /// The plan with the lower estimate; the first of equal ones.
    fn shorter(
        &mut self,
        first: Option<(ColumnPlan, bool)>,
        second: Option<(ColumnPlan, bool)>,
    ) -> Option<(ColumnPlan, bool)> {
        match (first, second) {
            (Some(first), Some(second)) => {
                let is_second = second.0.estimate < first.0.estimate;
                let (best, other) = if is_second { (second, first) } else { (first, second) };
                self.recycle(other.0);
                Some(best)
            }
            (first, second) => first.or(second),
        }
    }

    pub(super) fn frames(&mut self) -> &mut FrameEncoder {
        &mut self.frames.frames
    }

    /// Takes back the working memory of a plan.
    pub(crate) fn recycle(&mut self, plan: ColumnPlan) {
        if plan.is_predicted() {
            self.spare.push(plan.residuals);
        }
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
        let sampled = if dtype.is_none() { self.frames.sampled(1, bytes)? } else { None };
        if let Some(text) = self.frames.try_text(bytes, sampled)? {
            return Ok(text);
        }
        let coding = match dtype {
            Some(d) => Some(coding_of(d)),
            None => detect_width(bytes),
        };
        let few = structure.few || dtype.is_none() && coding.is_some_and(|(width, _)| is_few(width, bytes));
        let (stream, values) = coding.map(|coding| self.planner.plan_plain(coding, few, bytes)).unzip();
        let (stream, values) = match stream {
            Some(plan) if is_tiny(&plan, bytes.len()) => return Ok(ColumnPlan::plain(plan)),
            other => (other, values.flatten()),
        };
        let lanes = |g: &StreamPlan| if g.chunks() == 0 { 0 } else { LANE_BYTES };
        let estimate = stream.as_ref().map_or(len, |g| g.estimate + lanes(g)).min(len);
        // Of few values a grid says no more than they do.
        let grids = values.is_none_or(|values| values > GRID_VALUES);
        let grid = if grids { self.on_grid(column, estimate) } else { None };
        let modelled = grid.or_else(|| self.factored(column, estimate));
        let estimate = modelled.as_ref().map_or(estimate, |plan| plan.estimate);
        let float = dtype.is_some() && coding.is_some_and(|(_, map)| map == Map::Rotate);
        let frame = if !structure.is_noise() || dtype.is_some() && !float && bytes.len() >= LEAST {
            let width = coding.map_or(1, |c| c.0);
            self.frames.try_structured(width, structure, bytes, estimate)?
        } else if dtype.is_none() {
            self.frames.try_opaque(bytes, sampled, estimate)?
        } else if !float || len < SAMPLE_BYTES as u64 || repeats(bytes) && self.frames.promises(1, bytes, estimate)? {
            // Trained floats have no repeats for zstd to find; a few words show whether these have.
            self.frames.try_zstd(bytes, sampled, estimate)?
        } else {
            None
        };
        if let Some(frame) = frame {
            modelled.into_iter().for_each(|plan| self.recycle(plan));
            return Ok(frame);
        }
        if let Some(plan) = modelled {
            return Ok(plan);
        }
        Ok(match stream {
            Some(g) if g.estimate + lanes(&g) < len || g.estimate * 64 < len => ColumnPlan::plain(g),
            _ => ColumnPlan::stored(bytes.len()),
        })
    }

    /// A plan of elements that terms of rows and columns predict, if it takes less than `other` bytes by a little.
    fn factored(&mut self, column: &RawColumn<'_>, other: u64) -> Option<ColumnPlan> {
        let matrix = column.matrix.filter(|_| column.dtype == Some(Dtype::F32))?;
        let found = factored::find(matrix.rows(), column.bytes)?;
        let residuals = self.spare.pop().unwrap_or_default();
        let plan = self.planner.plan_factored(column.bytes, found, residuals);
        self.if_shorter(plan, other - other / 128)
    }

    /// A plan of elements that are on a grid, if it takes less than `other` bytes.
    fn on_grid(&mut self, column: &RawColumn<'_>, other: u64) -> Option<ColumnPlan> {
        let (dtype, matrix) = (column.dtype?, column.matrix.filter(|_| column.grids && column.structure.few)?);
        let found = find::find(dtype, &matrix, column.bytes)?;
        let residuals = self.spare.pop().unwrap_or_default();
        let plan = self.planner.plan_grid(dtype, column.bytes, found, residuals);
        self.if_shorter(plan, other)
    }

    /// A plan that is compared with one without lanes, if it takes less than `other` bytes with them.
    fn if_shorter(&mut self, plan: std::result::Result<ColumnPlan, Streams>, other: u64) -> Option<ColumnPlan> {
        let mut plan = plan.map_err(|residuals| self.spare.push(residuals)).ok()?;
        plan.estimate += LANE_BYTES;
        if plan.estimate < other {
            return Some(plan);
        }
        self.recycle(plan);
        None
    }
}

/// The factor of a multiple of a prediction, for elements that look like second moments.
fn factor(dtype: Dtype, bytes: &[u8], prediction: &[u8]) -> Option<f32> {
    matches!(dtype, Dtype::F32 | Dtype::Bf16).then(|| scaled::find(dtype.coding_width(), bytes, prediction))?
}

/// Those of several predictions, each with bits of an element that need no code, that are worth a plan: by a sample, they are about as near
/// as the nearest.
fn nearest<'a, T>(dtype: Option<Dtype>, bytes: &[u8], candidates: Vec<(&'a [u8], T, u64)>) -> Vec<(&'a [u8], T)> {
    let Some(dtype) = dtype.filter(|_| candidates.len() > 1) else {
        return candidates.into_iter().map(|(prediction, operand, _)| (prediction, operand)).collect();
    };
    let stride = (bytes.len() / WINDOW / WINDOWS).max(1);
    let seen = bytes.chunks(WINDOW).step_by(stride).map(|of| of.len() / dtype.coding_width()).sum::<usize>() as u64;
    let bits = |&(prediction, _, free): &(&[u8], T, u64)| {
        let both = bytes.chunks(WINDOW).zip(prediction.chunks(WINDOW)).step_by(stride);
        both.map(|(new, old)| bits_apart(dtype, new, old)).sum::<u64>().saturating_sub(free * seen)
    };
    let bits: Vec<u64> = candidates.iter().map(bits).collect();
    let least = bits.iter().min().copied().unwrap_or(0);
    let near = candidates.into_iter().zip(bits).filter(|(_, bits)| *bits <= least + seen / NEAR);
    near.map(|((prediction, operand, _), _)| (prediction, operand)).collect()
}
