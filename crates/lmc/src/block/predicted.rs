//! How a column is predicted: from what, into which contexts, or not at all.

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

/// Which elements of a column streams tell.
#[derive(PartialEq, Eq)]
enum Told {
    All,
    /// Those of runs that changed, by a map of runs that did not.
    ChangedRuns(Vec<u8>),
    /// Those that changed, which the planner holds.
    Changes,
}

/// Runs that are looked at together, how many such stretches are, if there are as many, and of how many one is, at least.
const STRETCH: usize = 4;
const STRETCHES: usize = 64;
const STRETCH_OF: usize = 16;

impl Planner {
    /// The best way to predict `elements`, and whether the sample says that nothing without prediction comes near; `streams` again if
    /// nothing promises anything.
    pub(super) fn plan_predicted(
        &mut self,
        width: usize,
        elements: &[u8],
        x: &PredictionInput<'_>,
        streams: Streams,
    ) -> Result<(ColumnPlan, bool), Streams> {
        // A look at some runs tells most that there is to be known of all.
        self.stats.clear();
        let stretch = STRETCH * RUN * width;
        let step = (elements.len() / stretch / STRETCHES).clamp(1, STRETCH_OF);
        let mut map = vec![];
        for (i, of_stretch) in elements.chunks(stretch).enumerate().step_by(step) {
            self.isa.run_stats(width, x.map, of_stretch, &mut self.stats);
            self.isa.unchanged_runs(width, of_stretch, &x.prediction[i * stretch..][..of_stretch.len()], &mut map);
        }
        // Runs of one value cost nothing without a prediction; where there are some, they are many, side by side.
        let constant = self.stats.constant();
        let few = constant * 16 <= self.stats.len();
        let unchanged = map.iter().filter(|&&u| u == 1).count();
        let some_unchanged = unchanged > 0 && unchanged >= map.len() / 128;
        let most = few_of(elements.len() / width);
        if some_unchanged && self.isa.changes(&Compared::with(x.prediction, width, elements), most, &mut self.changes) {
            let c = sparse::choose_predictor(width, x.prediction, x.map, &self.changes);
            let sure = few && c.sure;
            return Ok((self.plan_choice(width, elements, x, c, Told::Changes, streams), sure));
        }
        let map = some_unchanged.then(|| {
            map.clear();
            self.isa.unchanged_runs(width, elements, x.prediction, &mut map);
            map
        });
        let map = map.filter(|map| worth_telling(map));
        let effort = self.effort();
        match with_element!(width, E => choose_predictor::<E>(elements, x, map.as_deref(), effort)) {
            Some(c) => {
                let sure = few && c.sure;
                let told = map.map_or(Told::All, Told::ChangedRuns);
                Ok((self.plan_choice(width, elements, x, c, told, streams), sure))
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
        told: Told,
        mut streams: Streams,
    ) -> ColumnPlan {
        let sparse = told == Told::Changes;
        let map = if let Told::ChangedRuns(map) = told { Some(map) } else { None };
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
            // Contexts are scattered as the sample has them; where it was wrong, what they have is counted.
            streams.reset(c.rooms(changed_len, width));
            if self.isa.partition(&model, elements, &mut streams) {
                streams.widen(width);
            } else {
                streams.reset(self.isa.count_contexts(&model).into_iter().map(|n| (n, width)));
                assert!(self.isa.partition(&model, elements, &mut streams), "there is room for every context");
            }
            streams.counts()
        };
        let mut predicted = Predicted {
            width,
            predictor: c.predictor,
            conversion: x.conversion,
            // Dependencies are named by whoever puts the block together.
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

/// Whether runs that did not change are so many, and so often side by side, that they are not just sparse changes' chance gaps.
fn worth_telling(map: &[u8]) -> bool {
    let unchanged = map.iter().filter(|&&u| u == 1).count();
    let beside = map.windows(2).filter(|w| w == &[1, 1]).count();
    unchanged >= 16.max(map.len() / 64) && 2 * beside >= unchanged
}
