//! Plans a column that a grid predicts.

use super::Found;
use crate::block::plan::{Planner, coding_of};
use crate::block::planned::ColumnPlan;
use crate::block::predictor_choice::PredictionInput;
use crate::format::block_head::{Grid, Method, Operand};
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
        let input = PredictionInput { prediction: &prediction, conversion, map };
        let (mut plan, _) = self.plan_predicted(width, bytes, &input, streams)?;
        let (mut items, mut estimate) = (Vec::new(), 4 * levels.len() as u64);
        let mut stream = |width, elements: Vec<u8>| {
            let of = self.plan(width, Map::Identity, &elements).owning(elements);
            items.extend(of.body);
            estimate += of.estimate;
            of.stream
        };
        let scales = stream(4, scales);
        let offsets = (!offsets.is_empty()).then(|| stream(4, offsets));
        let indices = stream(1, indices);
        plan.body.splice(..0, items);
        plan.estimate += estimate;
        let Method::Predicted(predicted) = &mut plan.method else { unreachable!("it has predictions") };
        let grid = Grid { conversion, levels, groups, scales, offsets, indices };
        predicted.operand = Operand::Grid(Box::new(grid));
        Ok(plan)
    }
}
