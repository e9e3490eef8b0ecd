//! Chooses the method of a column.

use super::Matrix;
use super::methods::planned::ColumnPlan;
use super::methods::predicted::choice::PredictionInput;
use super::methods::predicted::grid::find;
use super::methods::predicted::plan::OperandPlan;
use super::methods::zstd::plan::{FramePlanner, SAMPLE_BYTES, repeats};
use super::stream::plan::{Planner, coding_of};
use super::stream::planned::StreamPlan;
use super::stream::sparse::is_mostly_zero;
use super::structure::opaque::detect_width;
use super::structure::{Finder, LEAST, Structure, is_few};
use crate::format::frames::FrameEncoder;
use crate::settings::level::Level;
use lmc_kernels::entropy::{LANES, SETS};
use lmc_kernels::isa::Isa;
use lmc_kernels::map::Map;
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
    planner: Planner,
    /// Working memory of predicted columns.
    spare: Vec<Streams>,
    frames: FramePlanner,
    /// Of columns with predictions, which need it seldom.
    finder: Finder,
}

/// Bytes of a block's lane states, which a column with clusters must save.
const LANE_BYTES: u64 = 4 * (SETS * LANES) as u64;

impl Chooser {
    pub(crate) fn new(isa: Isa, level: Level) -> Self {
        Self {
            planner: Planner::new(isa, level),
            spare: Vec::new(),
            frames: FramePlanner::new(level),
            finder: Finder::default(),
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
        let input = PredictionInput { prediction, map };
        let operand = |_: &mut Planner| OperandPlan::ranges(conversion);
        let residuals = self.spare.pop().unwrap_or_default();
        Ok(match self.planner.plan_predicted(width, bytes, &input, operand, residuals) {
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
        &mut self.frames.frames
    }

    /// Takes back the working memory of a plan.
    pub(crate) fn recycle(&mut self, plan: ColumnPlan) {
        if plan.is_predicted() {
            self.spare.push(plan.residuals);
        }
    }

    /// The plan of opaque bytes, or a frame whose matches reach into a prefix of this length, which `read` reads, if that
    /// is shorter.
    pub(crate) fn or_with_prefix<'p>(
        &mut self,
        bytes: &[u8],
        prefix_len: u64,
        read: impl FnOnce() -> Result<&'p [u8]>,
        plan: ColumnPlan,
    ) -> Result<ColumnPlan> {
        Ok(match self.frames.try_prefix(bytes, prefix_len, read, plan.estimate)? {
            Some(frame) => {
                self.recycle(plan);
                frame
            }
            None => plan,
        })
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
        let stream = coding.map(|coding| self.planner.plan_plain(coding, few, bytes));
        let lanes = |g: &StreamPlan| if g.stream.clusters.is_empty() { 0 } else { LANE_BYTES };
        let estimate = stream.as_ref().map_or(len, |g| g.estimate + lanes(g)).min(len);
        let grid = self.on_grid(column, estimate);
        let estimate = grid.as_ref().map_or(estimate, |plan| plan.estimate);
        let float = dtype.is_some() && coding.is_some_and(|(_, map)| map == Map::Rotate);
        let frame = if !structure.is_noise() || dtype.is_some() && !float && bytes.len() >= LEAST {
            let width = coding.map_or(1, |c| c.0);
            self.frames.try_structured(width, structure, bytes, estimate)?
        } else if dtype.is_none() {
            self.frames.try_opaque(bytes, sampled, estimate)?
        } else if !float || len < SAMPLE_BYTES as u64 || repeats(bytes) {
            // Trained floats have no repeats for zstd to find; a few words show whether these have.
            self.frames.try_zstd(bytes, sampled, estimate)?
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
        let found = find::find(dtype, &matrix, column.bytes)?;
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
}
