//! Plans predicted columns with few changed elements.

use super::choice::ContextChoice;
use super::histograms::{BUCKETS, Buckets, ContextHistograms, Limits, bucket, buckets_cost, rest_bits};
use crate::block::stream::patches::PatchList;
use crate::settings::level::Level;
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::entropy::cost;
use lmc_kernels::isa::Isa;
use lmc_kernels::map::Map;
use lmc_kernels::predict::changes::Changes;
use lmc_kernels::predict::job::{Model, Rank};
use lmc_kernels::predict::{Contexts, residual};

/// Changed elements in the sample.
const SAMPLE: usize = 8192;
/// Sampled elements that estimate the frequency of each key.
const KEYS: usize = 1 << 16;
/// Bits that a further context costs: its head, with the hybrid integer codes of gaps and changes.
const CONTEXT_BITS: u64 = 220;
/// log2(e) in 1/256 bit: a gap costs log2(elements / changes) + log2(e) bits.
const LOG2_E: u64 = 369;

/// The contexts of a column with these changes. `Fast` has one context: a list in the order of elements
/// is restored by a copy of the predictions, without looking at their keys.
pub(super) fn choose_contexts(level: Level, width: usize, base: &[u8], map: Map, changes: &Changes) -> ContextChoice {
    with_element!(width, E => choose_for::<E>(base, map == Map::Rotate, level != Level::Fast, changes))
}

fn choose_for<E: Element>(base: &[u8], float: bool, by_context: bool, changes: &Changes) -> ContextChoice {
    let n = base.len() / E::BYTES;
    let changed = changes.at().len();
    let step = changed.div_ceil(SAMPLE).max(1);
    let sampled = || {
        let pairs = E::all(changes.elements()).iter().zip(E::all(changes.predictions()));
        pairs.step_by(step).map(move |(u, p)| {
            let p = E::from_bytes(*p);
            (p, bucket(residual::of(E::from_bytes(*u), p).wide()))
        })
    };
    let mut h: Buckets = [0; BUCKETS];
    sampled().for_each(|(_, bucket)| h[bucket] += 1);
    let bits = buckets_cost(&h, rest_bits);
    let mut best = ContextChoice { sure: true, ..ContextChoice::whole(bits) };
    // Integers have no exponent to go by.
    if float && by_context && changed > 0 {
        let mut histograms = ContextHistograms::new(sparse_cost);
        // Frequencies of keys from a sample of runs, and of residuals from a sample of changes.
        let stride = (n / KEYS).max(1);
        let mut keys = [0u32; 256];
        for run in base.chunks(RUN * E::BYTES).step_by(stride) {
            for p in E::all(run) {
                keys[usize::from(Contexts::key(E::from_bytes(*p)))] += 1;
            }
        }
        for (key, &n) in (0..=u8::MAX).zip(&keys).filter(|(_, n)| **n > 0) {
            histograms.add(key, 0, n * stride as u32);
        }
        for (p, bucket) in sampled() {
            histograms.add(Contexts::key(p), bucket, step as u32);
        }
        let limits = Limits { context_cost: CONTEXT_BITS * cost::BIT, share: u64::MAX, rare: 1 };
        if let (Some(contexts), stats, _) = histograms.contexts(limits) {
            (best.contexts, best.stats) = (Some(contexts), stats);
        }
    }
    best
}

/// Lists the residuals of the changed elements by context; returns the number of elements of each context.
pub(super) fn list(isa: Isa, m: &Model<'_>, changes: &Changes, lists: &mut Vec<PatchList>) -> Vec<usize> {
    let mut residuals = vec![0; changes.elements().len()];
    residual::residuals(m.width, changes.elements(), changes.predictions(), &mut residuals);
    let mut ranks = Vec::new();
    let counts = if m.contexts.is_none() {
        ranks.extend(changes.at().iter().map(|&before| Rank { context: 0, before }));
        vec![m.len]
    } else {
        ranks.reserve(changes.at().len());
        isa.rank_in_contexts(m, changes.at(), &mut ranks)
    };
    lists.resize_with(lists.len().max(counts.len()), PatchList::default);
    lists.iter_mut().for_each(PatchList::clear);
    with_element!(m.width, E => {
        for (e, r) in E::all(&residuals).iter().zip(&ranks) {
            lists[usize::from(r.context)].push(r.before as usize, E::from_bytes(*e).wide());
        }
    });
    counts
}

/// Cost in 1/256 bit of a list of changes. The first bucket counts the unchanged elements.
fn sparse_cost(h: &[u32]) -> u64 {
    let (unchanged, values) = h.split_first().expect("histograms have at least one bucket");
    let changed: u32 = values.iter().sum();
    if changed == 0 {
        return 0;
    }
    let place = u64::from(cost::log2(changed + unchanged) - cost::log2(changed)) + LOG2_E;
    u64::from(changed) * place + buckets_cost(values, |b| rest_bits(b + 1))
}
