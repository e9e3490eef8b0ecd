//! Plans a predicted column: predictor, contexts, coverage, streams.

use super::plan::Planner;
use super::planned::{ColumnPlan, StreamPlan};
use super::predictor_choice::{PredictionInput, PredictorChoice, choose_predictor};
use super::sparse::{self, few_of};
use crate::cluster::RUN;
use crate::cluster::element::with_element;
use crate::entropy::cost;
use crate::format::block_head::{Method, Named, Predicted, Unchanged};
use crate::map::Map;
use crate::predict::changes::Compared;
use crate::predict::job::{Model, Streams};
use crate::predict::unchanged::{elements as unchanged_elements, leave_out};

/// The elements of a column that its streams code.
#[derive(PartialEq, Eq)]
enum Coverage {
    All,
    /// Those of changed runs; the map has a byte per run, 1 for an unchanged one.
    ChangedRuns(Vec<u8>),
    /// Those that changed; the planner holds them.
    Changes,
}

/// Sampling: windows of 4 runs; at most 64 windows, but at least one window in 16.
const WINDOW_RUNS: usize = 4;
const WINDOWS: usize = 64;
const WINDOW_STRIDE: usize = 16;

impl Planner {
    /// The best plan with predictions, and whether by the sample no plan without them comes near.
    ///
    /// # Errors
    /// `streams`, if no prediction promises a gain.
    pub(super) fn plan_predicted(
        &mut self,
        width: usize,
        elements: &[u8],
        x: &PredictionInput<'_>,
        streams: Streams,
    ) -> Result<(ColumnPlan, bool), Streams> {
        // A sample of runs decides.
        self.stats.clear();
        let window = WINDOW_RUNS * RUN * width;
        let step = (elements.len() / window / WINDOWS).clamp(1, WINDOW_STRIDE);
        let mut map = vec![];
        for (i, of_window) in elements.chunks(window).enumerate().step_by(step) {
            self.isa.run_stats(width, x.map, of_window, &mut self.stats);
            self.isa.unchanged_runs(width, of_window, &x.prediction[i * window..][..of_window.len()], &mut map);
        }
        // Constant runs cost nothing without a prediction; they occur in long sequences.
        let constant = self.stats.constant();
        let few = constant * 16 <= self.stats.len();
        let unchanged = map.iter().filter(|&&u| u == 1).count();
        let some_unchanged = unchanged > 0 && unchanged >= map.len() / 128;
        let most = few_of(elements.len() / width);
        if some_unchanged && self.isa.changes(&Compared::with(x.prediction, width, elements), most, &mut self.changes) {
            let c = sparse::choose_predictor(width, x.prediction, x.map, &self.changes);
            let sure = few && c.sure;
            return Ok((self.plan_choice(width, elements, x, c, Coverage::Changes, streams), sure));
        }
        let map = some_unchanged.then(|| {
            map.clear();
            self.isa.unchanged_runs(width, elements, x.prediction, &mut map);
            map
        });
        let map = map.filter(|map| worth_mapping(map));
        let effort = self.effort();
        match with_element!(width, E => choose_predictor::<E>(elements, x, map.as_deref(), effort)) {
            Some(c) => {
                let sure = few && c.sure;
                let coverage = map.map_or(Coverage::All, Coverage::ChangedRuns);
                Ok((self.plan_choice(width, elements, x, c, coverage, streams), sure))
            }
            None => Err(streams),
        }
    }

    fn plan_choice(
        &mut self,
        width: usize,
        elements: &[u8],
        x: &PredictionInput<'_>,
        c: PredictorChoice,
        coverage: Coverage,
        mut streams: Streams,
    ) -> ColumnPlan {
        let sparse = coverage == Coverage::Changes;
        let map = if let Coverage::ChangedRuns(map) = coverage { Some(map) } else { None };
        let [changed, kept] = &mut *self.changed;
        let mut elements = elements;
        let mut model = Model {
            width,
            len: elements.len() / width,
            predictor: c.predictor,
            prediction: x.prediction,
            contexts: c.contexts.as_ref(),
        };
        let n = model.len;
        if let Some(map) = &map {
            leave_out(width, map, elements, changed);
            elements = changed;
            leave_out(width, map, x.prediction, kept);
            (model.len, model.prediction) = (elements.len() / width, kept);
        }
        let changed_len = model.len;
        let counts = if sparse {
            let counts = sparse::list(self.isa, &model, &self.changes, &mut self.lists);
            streams.reset(counts.iter().map(|_| (0, width)));
            counts
        } else {
            // The sample gives the sizes of the contexts; where it is wrong, they are counted.
            streams.reset(c.rooms(changed_len, width));
            if self.isa.partition(&model, elements, &mut streams) {
                streams.widen(width);
            } else {
                streams.reset(self.isa.count_contexts(&model).into_iter().map(|n| (n, width)));
                assert!(self.isa.partition(&model, elements, &mut streams), "contexts have room for their counts");
            }
            streams.counts()
        };
        let mut predicted = Predicted {
            width,
            predictor: c.predictor,
            conversion: x.conversion,
            // Set when the block is assembled.
            base: Named { first: 0, count: 0 },
            contexts: c.contexts,
            unchanged: None,
            streams: Vec::with_capacity(counts.len()),
        };
        let (mut body, mut estimate) = (Vec::new(), 16);
        if let Some(map) = map {
            let elements = unchanged_elements(&map, n);
            let ((cluster, item), bits) = self.plan_cluster_map(map);
            estimate += bits / (8 * cost::BIT) + 8;
            predicted.unchanged = Some(Unchanged { elements, map: cluster });
            body.push(item);
        }
        for (context, &n) in counts.iter().enumerate() {
            if n == 0 {
                estimate += 1;
                predicted.streams.push((0, None));
                continue;
            }
            let plan = if sparse {
                StreamPlan::sparse(width, Map::Identity, &mut self.lists[context])
            } else {
                self.plan_residuals(streams.width(context), streams.get_mut(context), changed_len)
            };
            estimate += plan.estimate;
            predicted.streams.push((n, Some(plan.stream.widened(width))));
            body.extend(plan.body_of_context(context));
        }
        ColumnPlan { method: Method::Predicted(Box::new(predicted)), body, residuals: streams, estimate }
    }
}

/// Whether unchanged runs are frequent and adjacent enough not to be chance gaps between sparse changes.
fn worth_mapping(map: &[u8]) -> bool {
    let unchanged = map.iter().filter(|&&u| u == 1).count();
    let beside = map.windows(2).filter(|w| w == &[1, 1]).count();
    unchanged >= 16.max(map.len() / 64) && 2 * beside >= unchanged
}
