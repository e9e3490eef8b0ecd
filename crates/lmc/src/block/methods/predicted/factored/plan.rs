//! Plans a column that terms of rows and columns predict.

use super::{Factored, Found};
use crate::block::methods::planned::ColumnPlan;
use crate::block::methods::predicted::choice::PredictionInput;
use crate::block::methods::predicted::operand::Operand;
use crate::block::methods::predicted::plan::OperandPlan;
use crate::block::stream::plan::Planner;
use lmc_kernels::map::Map;
use lmc_kernels::predict::job::Streams;

impl Planner {
    /// A plan of elements of 4 bytes that terms predict.
    ///
    /// # Errors
    /// Returns `streams` if they promise no gain.
    pub(in crate::block) fn plan_factored(
        &mut self,
        bytes: &[u8],
        found: Found,
        streams: Streams,
    ) -> Result<ColumnPlan, Streams> {
        let Found { shift, rows, of_rows, of_columns, prediction } = found;
        // As integers: the logarithms of floats without sign.
        let input = PredictionInput { prediction: &prediction, map: Map::Identity, rows: None, clusters: true };
        let operand = |planner: &mut Self| {
            let [rows_plan, columns_plan] =
                [of_rows, of_columns].map(|terms| planner.plan(1, Map::Identity, &terms).owning(terms));
            let estimate = rows_plan.estimate + columns_plan.estimate;
            let body = rows_plan.body.into_iter().chain(columns_plan.body).collect();
            let factored = Factored { shift, rows, of_rows: rows_plan.stream, of_columns: columns_plan.stream };
            OperandPlan { operand: Operand::Factored(Box::new(factored)), body, estimate }
        };
        self.plan_predicted(4, bytes, &input, operand, streams).map(|(plan, _)| plan)
    }
}
