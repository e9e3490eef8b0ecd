//! Plans a column that a grid predicts.

use super::Found;
use crate::block::plan::{Planner, coding_of};
use crate::block::planned::{ColumnPlan, Elements as Coded};
use crate::block::predictor_choice::PredictionInput;
use crate::dtype::Dtype;
use crate::format::block_head::{Grid, Method, Operand};
use crate::map::Map;
use crate::predict::job::Streams;

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
        let of_scales = self.plan(4, Map::Identity, &scales);
        let of_offsets = (!offsets.is_empty()).then(|| self.plan(4, Map::Identity, &offsets));
        let of_indices = self.plan(1, Map::Identity, &indices);
        plan.estimate += 4 * levels.len() as u64 + of_scales.estimate + of_indices.estimate;
        plan.estimate += of_offsets.as_ref().map_or(0, |offsets| offsets.estimate);
        let Method::Predicted(predicted) = &mut plan.method else { unreachable!("it has predictions") };
        predicted.operand = Operand::Grid(Box::new(Grid {
            conversion,
            levels,
            groups,
            scales: of_scales.stream.clone(),
            offsets: of_offsets.as_ref().map(|offsets| offsets.stream.clone()),
            indices: of_indices.stream.clone(),
        }));
        let of_offsets = of_offsets.into_iter().flat_map(|offsets| offsets.body_of(|| Coded::Offsets));
        let items = of_scales.body_of(|| Coded::Scales).chain(of_offsets);
        let items: Vec<_> = items.chain(of_indices.body_of(|| Coded::Indices)).collect();
        plan.body.splice(..0, items);
        plan.grid = [scales, offsets, indices];
        Ok(plan)
    }
}
