//! Estimates from a sample the cost of predicting a column.

use super::histograms::{ContextHistograms, ContextStats, Limits, bucket, buckets_cost, rest_bits};
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{Element, extend};
use lmc_kernels::cluster::runs::Effort;
use lmc_kernels::entropy::cost;
use lmc_kernels::entropy::histogram::{Histogram, histogram};
use lmc_kernels::map::Map;
use lmc_kernels::predict::optimizer::Rows;
use lmc_kernels::predict::{Contexts, residual};

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
    /// Rows of a matrix that the elements are in, if they may have terms.
    pub(in crate::block) rows: Option<Rows>,
    /// Whether residuals of some runs may be larger than those of others, so that clusters code them.
    pub(in crate::block) clusters: bool,
}

/// Contexts of residuals, and their cost for the sample in 1/256 bit.
pub(in crate::block) struct ContextChoice {
    pub(super) contexts: Option<Contexts>,
    /// Terms of rows, subtracted from the keys; only with contexts.
    pub(in crate::block) terms: Option<(Rows, Vec<u8>)>,
    /// Statistics of each context; empty if there is one.
    pub(in crate::block) stats: Vec<ContextStats>,
    pub(in crate::block) bits: u64,
    pub(in crate::block) sure: bool,
}

impl ContextChoice {
    /// All elements in one context.
    pub(in crate::block) fn whole(bits: u64) -> Self {
        Self { contexts: None, terms: None, stats: vec![], bits, sure: false }
    }

    /// Elements in the contexts that [`ContextHistograms::contexts`] found, if any.
    fn scattered((contexts, stats, bits): (Option<Contexts>, Vec<ContextStats>, u64)) -> Self {
        Self { contexts, stats, ..Self::whole(bits) }
    }

    /// For each context, of `n` elements of `width` bytes in all: room in elements, most likely enough, and bytes of each.
    pub(in crate::block) fn rooms(&self, n: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
        let all: u64 = self.stats.iter().map(|g| g.elements).sum();
        let likely = move |g: &ContextStats| n.min((2 * n as u64 * g.elements / all.max(1)) as usize + n / 16);
        let whole = self.contexts.is_none().then_some((n, width));
        self.stats.iter().map(move |g| (likely(g), if g.single { 1 } else { width })).chain(whole)
    }
}

/// The best contexts by a sample of runs that `map` does not mark as unchanged; `None` where no prediction promises a gain.
pub(in crate::block) fn choose_contexts<E: Element>(
    elements: &[u8],
    x: &PredictionInput<'_>,
    map: Option<&[u8]>,
    effort: Effort,
) -> Option<ContextChoice> {
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
    let predictions: Vec<E> = sampled(x.prediction, &runs, stride);
    let mut histograms = ContextHistograms::new(|h: &[u32]| buckets_cost(h, rest_bits));
    let pairs = sample.iter().zip(&predictions);
    pairs.for_each(|(&v, &p)| histograms.add(Contexts::key(p), bucket(residual::of(v, p).wide()), 1));
    // Integers have no exponent as a key.
    let mut best = if x.map == Map::Rotate {
        ContextChoice::scattered(histograms.contexts(limits))
    } else {
        ContextChoice::whole(histograms.whole())
    };
    if let Some(rows) = x.rows.filter(|_| best.contexts.is_some() && matches!(E::BYTES, 2 | 4)) {
        let terms = row_terms::<E>(elements, x.prediction, rows);
        let mut histograms = ContextHistograms::new(|h: &[u32]| buckets_cost(h, rest_bits));
        let of_sample =
            runs.iter().step_by(stride).flat_map(|&r| r * RUN..(r * RUN + RUN).min(elements.len() / E::BYTES));
        for (i, (&v, &p)) in of_sample.zip(sample.iter().zip(&predictions)) {
            let term = terms[((rows.position + i as u64) / rows.len) as usize];
            let key = Contexts::key(p).wrapping_sub(term);
            histograms.add(key, bucket(residual::of(v, p).wide()), 1);
        }
        let with_terms = ContextChoice::scattered(histograms.contexts(limits));
        let cost = TERM_BITS * terms.len() as u64 * cost::BIT * seen / n.max(1) as u64 + limits.context_cost;
        if with_terms.contexts.is_some() && with_terms.bits + cost < best.bits {
            best = ContextChoice { terms: Some((rows, terms)), bits: with_terms.bits + cost, ..with_terms };
        }
    }
    // The two estimates are rough: where they are close, the column is planned both ways.
    if best.bits >= plain + plain / 32 {
        return None;
    }
    best.sure = best.bits < plain - plain / 5;
    Some(best)
}

/// The largest term of a row.
const MOST: u8 = 40;
/// Elements of a row that its term is computed from, at most.
const OF_ROW: usize = 256;
/// Bits of a term, roughly.
const TERM_BITS: u64 = 3;

/// For each row the exponent of the mean change of its elements, rounded, less that of the row that changes least: how many bits
/// the differences of the row are longer than those of other rows with the same exponents.
fn row_terms<E: Element>(elements: &[u8], prediction: &[u8], rows: Rows) -> Vec<u8> {
    let n = elements.len() / E::BYTES;
    let (elements, predictions) = (E::all(elements), E::all(prediction));
    let value = |e: &E::Bytes| f32::from_bits((E::from_bytes(*e).wide() << (32 - 8 * E::BYTES.min(4))) as u32);
    let mut exponents: Vec<Option<i32>> = vec![None; rows.count(n)];
    rows.each(0, n, |row, _, range| {
        let step = range.len().div_ceil(OF_ROW);
        let (mut sum, mut seen) = (0.0f64, 0u32);
        for i in range.step_by(step) {
            let change = f64::from(value(&elements[i])) - f64::from(value(&predictions[i]));
            if change.is_finite() {
                sum += change.abs();
                seen += 1;
            }
        }
        if sum > 0.0 {
            // The exponent of the mean times the root of two is its logarithm, rounded: without functions that machines round
            // differently.
            let mean = sum / f64::from(seen) * std::f64::consts::SQRT_2;
            exponents[row] = Some((mean.to_bits() >> 52) as i32);
        }
    });
    let least = exponents.iter().flatten().min().copied().unwrap_or(0);
    let mut last = 0;
    let term = |exponent: &Option<i32>| {
        // Rows in which nothing changed cost least like the row before.
        last = exponent.map_or(last, |exponent| (exponent - least).clamp(0, MOST.into()) as u8);
        last
    };
    exponents.iter().map(term).collect()
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
