//! Plans a column that a grid predicts.

use super::Grid;
use super::find::Found;
use crate::block::methods::planned::ColumnPlan;
use crate::block::methods::predicted::choice::PredictionInput;
use crate::block::methods::predicted::operand::Operand;
use crate::block::methods::predicted::plan::OperandPlan;
use crate::block::stream::plan::{Planner, coding_of};
use lmc_kernels::map::Map;
use lmc_kernels::predict::job::Streams;
use lmc_layout::dtype::Dtype;

impl Planner {
    /// A plan of elements that a grid predicts.
    ///
    /// # Errors
    /// Returns `streams` if the grid promises no gain.
    pub(in crate::block) fn plan_grid(
        &mut self,
        dtype: Dtype,
        bytes: &[u8],
        found: Found,
        streams: Streams,
    ) -> Result<ColumnPlan, Streams> {
        let (width, map) = coding_of(dtype);
        let Found { conversion, levels, groups, scales, offsets, indices, prediction } = found;
        let input = PredictionInput { prediction: &prediction, map, rows: None, clusters: false };
        let operand = |planner: &mut Self| {
            let (mut body, mut estimate) = (Vec::new(), 4 * levels.len() as u64);
            let mut stream = |width, elements: Vec<u8>| {
                let of = planner.plan(width, Map::Identity, &elements).owning(elements);
                body.extend(of.body);
                estimate += of.estimate;
                of.stream
            };
            let scales = stream(4, scales);
            let offsets = (!offsets.is_empty()).then(|| stream(4, offsets));
            let indices = stream(1, indices);
            let grid = Grid { conversion, levels, groups, scales, offsets, indices };
            OperandPlan { operand: Operand::Grid(Box::new(grid)), body, estimate }
        };
        self.plan_predicted(width, bytes, &input, operand, streams).map(|(plan, _)| plan)
    }
}
