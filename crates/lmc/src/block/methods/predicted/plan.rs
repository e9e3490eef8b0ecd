//! Plans a predicted column: contexts, coverage, streams.

use super::choice::{ContextChoice, PredictionInput, choose_contexts};
use super::derived::{Derivation, Derived, OfScales};
use super::operand::Operand;
use super::steps::Scaled;
use super::steps::plan::operand_of;
use super::terms::Terms;
use super::{Predicted, sparse};
use crate::block::Step;
use crate::block::methods::Method;
use crate::block::methods::planned::ColumnPlan;
use crate::block::ranges::NamedRanges;
use crate::block::stream::plan::{Planner, coding_of};
use crate::block::stream::planned::{Elements, Item, StreamPlan};
use crate::block::stream::sparse::few_of;
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::with_element;
use lmc_kernels::map::Map;
use lmc_kernels::predict::changes::Compared;
use lmc_kernels::predict::job::{Model, RowTerms, Streams};
use lmc_kernels::predict::{Conversion, unchanged};

/// An operand, ready to be encoded.
pub(in crate::block) struct OperandPlan {
    pub(in crate::block) operand: Operand,
    /// Its items in the body.
    pub(in crate::block) body: Vec<Item>,
    /// Estimated bytes.
    pub(in crate::block) estimate: u64,
}

impl OperandPlan {
    /// Ranges, which are set when the block is assembled.
    pub(in crate::block) fn ranges(conversion: Conversion) -> Self {
        let operand = Operand::Ranges { conversion, base: NamedRanges::default() };
        Self { operand, body: vec![], estimate: 0 }
    }

    /// A step of an optimizer, whose ranges are set when the block is assembled.
    pub(in crate::block) fn step(step: Step) -> Self {
        Self { operand: operand_of(step), body: vec![], estimate: 40 }
    }

    /// Derived elements, whose ranges are set when the block is assembled, and the scales that stand in the column, if they do.
    pub(in crate::block) fn derived(planner: &mut Planner, derivation: Derivation, scales: &[u8]) -> Self {
        let elements = NamedRanges::default();
        let (scales, body, estimate) = match derivation {
            Derivation::Codes(codes, _, true) => {
                let (width, map) = coding_of(codes.scales.dtype());
                let plan = planner.plan(width, map, scales).owning(scales.to_vec());
                (OfScales::Stream(Box::new(plan.stream)), plan.body, plan.estimate)
            }
            Derivation::Codes(..) => (OfScales::Ranges(NamedRanges::default()), vec![], 0),
            _ => (OfScales::None, vec![], 0),
        };
        let operand = Operand::Derived(Box::new(Derived { derivation, elements, scales }));
        Self { operand, body, estimate: estimate + 24 }
    }

    /// Multiples of ranges, which are set when the block is assembled.
    pub(in crate::block) fn scaled(factor: f32) -> Self {
        let operand = Operand::Scaled(Scaled { factor, base: NamedRanges::default() });
        Self { operand, body: vec![], estimate: 4 }
    }
}

/// The elements that equal their predictions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unchanged {
    /// Single ones, or none.
    Some,
    /// Many, next to each other.
    Together,
    /// Nearly all; the planner holds the others.
    Most,
}

/// Sampling: windows of 4 runs; at most 64 windows, but at least one window in 16.
const WINDOW_RUNS: usize = 4;
const WINDOWS: usize = 64;
const WINDOW_STRIDE: usize = 16;

impl Planner {
    /// The best plan with predictions, and whether by the sample no plan without them comes near. `operand` plans what
    /// they are computed from.
    ///
    /// # Errors
    /// Returns `streams` if no prediction promises a gain.
    pub(in crate::block) fn plan_predicted(
        &mut self,
        width: usize,
        elements: &[u8],
        x: &PredictionInput<'_>,
        operand: impl FnOnce(&mut Self) -> OperandPlan,
        streams: Streams,
    ) -> Result<(ColumnPlan, bool), Streams> {
        // A sample of runs decides.
        self.stats.clear();
        let window = WINDOW_RUNS * RUN * width;
        let step = (elements.len() / window / WINDOWS).clamp(1, WINDOW_STRIDE);
        let mut map = vec![];
        for (i, of_window) in elements.chunks(window).enumerate().step_by(step) {
            self.isa.run_stats(width, x.map, of_window, &mut self.stats);
            unchanged::find(width, of_window, &x.prediction[i * window..][..of_window.len()], &mut map);
        }
        // Constant runs cost nothing without a prediction; they occur in long sequences.
        let constant = self.stats.constant();
        let few = constant * 16 <= self.stats.runs();
        let unchanged = map.iter().filter(|&&u| u == 1).count();
        let some_unchanged = unchanged > 0 && unchanged >= map.len() / 128;
        let most = few_of(elements.len() / width);
        if some_unchanged && self.isa.changes(&Compared::with(x.prediction, width, elements), most, &mut self.changes) {
            let c = sparse::choose_contexts(self.level, width, x.prediction, x.map, &self.changes);
            let sure = few && c.sure;
            return Ok((self.plan_choice(width, elements, x, (c, Unchanged::Most), operand, streams), sure));
        }
        let map = some_unchanged.then(|| {
            map.clear();
            unchanged::find(width, elements, x.prediction, &mut map);
            map
        });
        let map = map.filter(|map| worth_mapping(map));
        let effort = self.effort();
        match with_element!(width, E => choose_contexts::<E>(elements, x, map.as_deref(), effort)) {
            Some(c) => {
                let sure = few && c.sure;
                let unchanged = if map.is_some() { Unchanged::Together } else { Unchanged::Some };
                Ok((self.plan_choice(width, elements, x, (c, unchanged), operand, streams), sure))
            }
            None => Err(streams),
        }
    }

    fn plan_choice(
        &mut self,
        width: usize,
        elements: &[u8],
        x: &PredictionInput<'_>,
        (c, unchanged): (ContextChoice, Unchanged),
        operand: impl FnOnce(&mut Self) -> OperandPlan,
        mut streams: Streams,
    ) -> ColumnPlan {
        let sparse = unchanged == Unchanged::Most;
        let n = elements.len() / width;
        let model = Model {
            width,
            len: n,
            prediction: x.prediction,
            contexts: c.contexts.as_ref(),
            terms: c.terms.as_ref().map(|(rows, terms)| RowTerms { rows: *rows, terms }),
        };
        let counts = if sparse {
            let counts = sparse::list(self.isa, &model, &self.changes, &mut self.lists);
            streams.reset(counts.iter().map(|_| (0, width)));
            counts
        } else {
            // The sample gives the sizes of the contexts; where it is wrong, they are counted.
            streams.reset(c.rooms(n, width));
            if self.isa.partition(&model, elements, &mut streams) {
                streams.widen(width);
            } else {
                streams.reset(self.isa.count_contexts(&model).into_iter().map(|n| (n, width)));
                assert!(self.isa.partition(&model, elements, &mut streams), "contexts have room for their counts");
            }
            streams.counts()
        };
        let (mut of_contexts, mut body, mut estimate) = (Vec::with_capacity(counts.len()), Vec::new(), 16);
        let together = unchanged == Unchanged::Together;
        for (context, &count) in counts.iter().enumerate() {
            if count == 0 {
                estimate += 1;
                of_contexts.push((0, None));
                continue;
            }
            let plan = if sparse {
                StreamPlan::sparse(width, Map::Identity, &mut self.lists[context])
            } else if x.clusters && counts.len() == 1 {
                self.plan(width, Map::Identity, streams.get(context))
            } else {
                self.plan_residuals(streams.width(context), streams.get_mut(context), n, together)
            };
            estimate += plan.estimate;
            of_contexts.push((count, Some(plan.stream.widened(width))));
            body.extend(plan.of(&Elements::Context(context)).body);
        }
        let terms = c.terms.map(|(rows, terms)| {
            let of = self.plan(1, Map::Identity, &terms).owning(terms);
            estimate += of.estimate;
            body.splice(..0, of.body);
            Terms { rows, stream: of.stream }
        });
        let operand = operand(self);
        body.splice(..0, operand.body);
        estimate += operand.estimate;
        let predicted =
            Predicted { width, operand: operand.operand, contexts: c.contexts, terms, streams: of_contexts };
        ColumnPlan { body, residuals: streams, estimate, ..ColumnPlan::of(Method::Predicted(Box::new(predicted))) }
    }
}

/// Whether unchanged runs are frequent and adjacent enough not to be chance gaps between sparse changes.
fn worth_mapping(map: &[u8]) -> bool {
    let unchanged = map.iter().filter(|&&u| u == 1).count();
    let beside = map.windows(2).filter(|w| w == &[1, 1]).count();
    unchanged >= 16.max(map.len() / 64) && 2 * beside >= unchanged
}
