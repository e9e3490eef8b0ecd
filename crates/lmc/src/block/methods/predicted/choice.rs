//! Estimates from a sample the cost of predicting a column.

use super::histograms::{ContextHistograms, ContextStats, Limits, bucket, buckets_cost, rest_bits};
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{Element, extend};
use lmc_kernels::cluster::runs::Effort;
use lmc_kernels::entropy::cost;
use lmc_kernels::entropy::histogram::{Histogram, histogram};
use lmc_kernels::map::Map;
use lmc_kernels::predict::{Contexts, Predictor};

/// Least number of sampled elements (if there are as many).
const SAMPLE: usize = 8192;
/// Bits that a further context costs: its head, its table, and the padding of its last chunk.
const CONTEXT_BITS: u64 = 700;

/// The prediction of a column.
pub(in crate::block) struct PredictionInput<'a> {
    /// An element for each of the column.
    pub(in crate::block) prediction: &'a [u8],
    /// The map of the column's elements without prediction.
    pub(in crate::block) map: Map,
}

/// A predictor with contexts, and its cost for the sample in 1/256 bit.
pub(in crate::block) struct PredictorChoice {
    pub(in crate::block) predictor: Predictor,
    pub(in crate::block) contexts: Option<Contexts>,
    /// Statistics of each context; empty if there is one.
    pub(in crate::block) stats: Vec<ContextStats>,
    pub(in crate::block) bits: u64,
    pub(in crate::block) sure: bool,
}

impl PredictorChoice {
    /// All elements in one context.
    pub(in crate::block) fn whole(predictor: Predictor, bits: u64) -> Self {
        Self { predictor, contexts: None, stats: vec![], bits, sure: false }
    }

    /// Elements in the contexts that [`ContextHistograms::contexts`] found, if any.
    fn scattered(predictor: Predictor, (contexts, stats, bits): (Option<Contexts>, Vec<ContextStats>, u64)) -> Self {
        Self { contexts, stats, ..Self::whole(predictor, bits) }
    }

    /// For each context, of `n` elements of `width` bytes in all: room in elements, most likely enough, and bytes of each.
    pub(in crate::block) fn rooms(&self, n: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
        let all: u64 = self.stats.iter().map(|g| g.elements).sum();
        let likely = move |g: &ContextStats| n.min((2 * n as u64 * g.elements / all.max(1)) as usize + n / 16);
        let whole = self.contexts.is_none().then_some((n, width));
        self.stats.iter().map(move |g| (likely(g), if g.single { 1 } else { width })).chain(whole)
    }
}

/// The best predictor by a sample of runs that `map` does not mark as unchanged; `None` where no prediction promises a gain.
pub(in crate::block) fn choose_predictor<E: Element>(
    elements: &[u8],
    x: &PredictionInput<'_>,
    map: Option<&[u8]>,
    effort: Effort,
) -> Option<PredictorChoice> {
    let n = elements.len() / E::BYTES;
    let runs: Vec<usize> = (0..n.div_ceil(RUN)).filter(|&r| map.is_none_or(|map| map[r] == 0)).collect();
    // With a map of unchanged runs, few elements of the changed ones differ: sample more.
    let size = if map.is_some() { 4 * SAMPLE } else { SAMPLE };
    let stride = (runs.len() / (size / RUN)).max(1);
    let sample: Vec<E> = sampled(elements, &runs, stride);
    let seen = sample.len() as u64;
    // A context saves bits in changed runs only.
    let n = n.min(runs.len() * RUN);
    // The cost of a context, scaled down to the sample.
    let limits = Limits {
        context_cost: CONTEXT_BITS * cost::BIT * seen / n.max(1) as u64,
        share: effort.context_share,
        rare: (seen / 256).max(24),
    };
    // The cost without prediction: the exponent's entropy, and the other varying bits raw.
    let plain = {
        let h: Histogram = histogram(&sample, |v| Contexts::key(v).into());
        let all = (E::default(), E::cut(u64::MAX));
        let (or, and) = sample.iter().fold(all, |(or, and), v| (or.or(v.rotl1()), and.and(v.rotl1())));
        // Bits below the exponent that vary.
        let varying = or.xor(and).and(E::cut(u64::MAX).shr(8)).wide().count_ones();
        cost::entropy(&h) + seen * u64::from(varying) * cost::BIT
    };
    let float = x.map == Map::Rotate;
    let predictor = if float { Predictor::Float } else { Predictor::Integer };
    let predictions: Vec<E> = sampled(x.prediction, &runs, stride);
    let mut histograms = ContextHistograms::new(|h: &[u32]| buckets_cost(h, rest_bits));
    let pairs = sample.iter().zip(&predictions);
    pairs.for_each(|(&v, &p)| histograms.add(Contexts::key(p), bucket(predictor.residual(v, p).wide()), 1));
    // Integers have no exponent as a key.
    let mut best = if float {
        PredictorChoice::scattered(predictor, histograms.contexts(limits))
    } else {
        PredictorChoice::whole(predictor, histograms.whole())
    };
    // The two estimates are rough: where they are close, the column is planned both ways.
    if best.bits >= plain + plain / 32 {
        return None;
    }
    best.sure = best.bits < plain - plain / 5;
    Some(best)
}

/// The elements of every `stride`-th of these runs.
fn sampled<E: Element>(bytes: &[u8], runs: &[usize], stride: usize) -> Vec<E> {
    let run = RUN * E::BYTES;
    let mut sample = Vec::with_capacity(runs.len().div_ceil(stride) * RUN);
    for &r in runs.iter().step_by(stride) {
        let of_run = &bytes[r * run..bytes.len().min((r + 1) * run)];
        extend(&mut sample, of_run);
    }
    sample
}
