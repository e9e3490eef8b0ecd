//! Plans a stream: clusters of runs, the split of each into symbol and raw bits, tables.

use super::Cluster;
use super::patches::PatchList;
use super::planned::{Elements, Item, PlannedCluster, StreamPlan};
use super::sparse;
use crate::settings::level::Level;
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{with_element, zeros_in};
use lmc_kernels::cluster::runs::{Effort, RunCluster, RunStats, cluster_runs, count_run, trailing_zeros};
use lmc_kernels::entropy::coder::Coder;
use lmc_kernels::entropy::histogram::{Histogram, sum_of};
use lmc_kernels::entropy::rans::{COARSE_BITS, FINE_BITS};
use lmc_kernels::entropy::{cost, huffman, rans};
use lmc_kernels::inline::array;
use lmc_kernels::isa::Isa;
use lmc_kernels::map::Map;
use lmc_kernels::predict::changes::{Changes, Compared};
use lmc_layout::dtype::Dtype;
use std::rc::Rc;

/// A sparse list must beat the *estimated* size of clusters by 1/32: its own size is exact, and it decodes more slowly.
const SPARSE_MARGIN: u64 = 32;

/// Plans streams, keeping its working memory.
pub struct Planner {
    pub(in crate::block) isa: Isa,
    pub(in crate::block) level: Level,
    pub(in crate::block) stats: RunStats,
    /// Elements that differ from their predictions.
    pub(in crate::block) changes: Box<Changes>,
    /// Their residuals, by context.
    pub(in crate::block) lists: Vec<PatchList>,
}

impl Planner {
    /// Nothing planned yet.
    pub fn new(isa: Isa, level: Level) -> Self {
        Self { isa, level, stats: RunStats::default(), changes: Box::default(), lists: Vec::new() }
    }

    pub(in crate::block) fn effort(&self) -> Effort {
        let coarse = Effort {
            clusters: 8,
            stride: 12,
            table_stride: 12,
            slot_bits: COARSE_BITS,
            cluster_bits: 400,
            plane_penalty: 2,
            context_share: 1024,
            residuals: false,
        };
        match self.level {
            Level::Fast => {
                Effort { clusters: 4, stride: 24, table_stride: 24, plane_penalty: 24, context_share: 128, ..coarse }
            }
            Level::Default => coarse,
            Level::Max => Effort {
                table_stride: 1,
                slot_bits: FINE_BITS,
                cluster_bits: 1000,
                plane_penalty: 0,
                context_share: u64::MAX,
                ..coarse
            },
        }
    }

    /// Takes the statistics of the runs of a column.
    pub(in crate::block) fn run_stats(&mut self, width: usize, map: Map, elements: &[u8]) {
        self.stats.clear();
        self.isa.run_stats(width, map, elements, &mut self.stats);
    }

    /// Plans a stream of whole `elements`, at least one.
    pub(crate) fn plan(&mut self, width: usize, map: Map, elements: &[u8]) -> StreamPlan {
        let plan = self.plan_clusters(width, map, elements);
        // A cluster spends as many raw bits on a zero as on other elements; a sparse list spends none.
        if !sparse::is_mostly_zero(width, elements) {
            return plan;
        }
        let n = elements.len() / width;
        let most = sparse::most_sparse(n, self.level);
        if n - zeros_in(width, elements) > most {
            return plan;
        }
        if !self.isa.changes(&Compared::with_zero(width, elements), most, &mut self.changes) {
            return plan;
        }
        let sparse = StreamPlan::sparse(width, map, &mut PatchList::of(width, map, &self.changes));
        if sparse.estimate + sparse.estimate / SPARSE_MARGIN < plan.estimate { sparse } else { plan }
    }

    /// Plans a stream in clusters, never sparse.
    pub(in crate::block) fn plan_clusters(&mut self, width: usize, map: Map, elements: &[u8]) -> StreamPlan {
        let n = elements.len() / width;
        assert!(n > 0 && elements.len().is_multiple_of(width));
        let bits = 8 * width as u32;
        let effort = self.effort();
        self.run_stats(width, map, elements);
        let run_bytes = |r: u32| {
            let run = &elements[r as usize * RUN * width..];
            &run[..run.len().min(RUN * width)]
        };
        let run_clusters = cluster_runs(&self.stats, map, bits, effort, |r, h| {
            with_element!(width, E => count_run::<E>(map, bits - 8, run_bytes(r), h));
        });
        let mut plan = StreamPlan::empty(width, map);
        let mut cluster_of = vec![0u8; if run_clusters.len() > 1 { n.div_ceil(RUN) } else { 0 }];
        for (i, members) in run_clusters.into_iter().enumerate() {
            if !cluster_of.is_empty() {
                members.runs.iter().for_each(|&r| cluster_of[r as usize] = i as u8);
            }
            let (cluster, bits) = self.plan_cluster(map, bits, &members, effort, |shift, r, h| {
                with_element!(width, E => count_run::<E>(map, shift, run_bytes(r), h));
            });
            plan.estimate += bits;
            plan.push(cluster, members.runs, n);
        }
        if !cluster_of.is_empty() {
            let (map, bits) = self.plan_cluster_map(cluster_of);
            plan.estimate += bits;
            plan.set_cluster_map(map);
        }
        plan.estimate = plan.estimate / (8 * cost::BIT) + 8;
        plan
    }

    /// Splits the elements of a cluster and builds its table. Also returns the cost in 1/256 bit.
    fn plan_cluster(
        &self,
        map: Map,
        bits: u32,
        members: &RunCluster,
        effort: Effort,
        mut count: impl FnMut(u32, u32, &mut [Histogram; 4]),
    ) -> (Cluster, u64) {
        let elements = members.runs.len() as u64 * RUN as u64;
        // Zeros below the mantissa are dropped even where the sign, which the map puts at bit 0, varies: it gets its own bit plane.
        let sign_plane = members.varying & 1 == 1 && trailing_zeros(map, members.varying) >= 3 && members.varying != 1;
        let low = if sign_plane { 1 + trailing_zeros(map, members.varying) } else { members.varying.trailing_zeros() };
        let low = low.min(bits);
        let high = if members.varying == 0 { 0 } else { members.varying.leading_zeros() - (64 - bits) };
        // The exponent of a float is its top byte: dropping fewer than eight constant high bits would split it.
        let whole_exponent = self.level != Level::Max && map == Map::Rotate && bits > 8;
        let high = if whole_exponent && high < 8 && low + 8 <= bits { 0 } else { high };
        let dropped = if low == bits { u64::MAX } else { !(u64::MAX >> (64 - (bits - high)) >> low << low) };
        let constant = members.ones & dropped & (u64::MAX >> (64 - bits)) & !u64::from(sign_plane);
        let mut cluster = Cluster { low, high, raw_bits: 0, sign_plane, constant, coder: Coder::None };
        let left = bits - low - high;
        if left == 0 {
            return (cluster, 64 * cost::BIT);
        }
        let symbol_bits = left.min(8);
        let shift = low + left - symbol_bits;
        let (mut h, exact): (Histogram, bool) = match &members.top {
            Some(top) if shift + 8 == bits && effort.table_stride >= effort.stride => (**top, false),
            _ => {
                let stride = effort.table_stride.min(members.runs.len().div_ceil(48)).max(1);
                let mut hist = [[0u32; 256]; 4];
                for &r in members.runs.iter().step_by(stride) {
                    count(shift, r, &mut hist);
                }
                (array(|s| sum_of(&hist, s)), stride == 1)
            }
        };
        if symbol_bits < 8 {
            // The bits above the symbol are constant: they are removed.
            for s in 1 << symbol_bits..256 {
                h[s & ((1 << symbol_bits) - 1)] += std::mem::take(&mut h[s]);
            }
        }
        let sampled = h.iter().map(|&c| u64::from(c)).sum::<u64>().max(1);
        let sample = Sample { exact, sampled, elements };
        let estimates = self.fold_estimates(&h, left, symbol_bits, effort);
        let (fold, coder, bits_per_sample) = self.choose_fold(&h, &estimates, left, &sample, effort);
        cluster.raw_bits = left - symbol_bits + fold;
        cluster.coder = coder;
        let bits_per_sample = bits_per_sample + u64::from(sign_plane) * cost::BIT * sampled;
        (cluster, bits_per_sample / sampled * elements + 300 * cost::BIT)
    }

    /// The cost of a sample in 1/256 bit, by the number of a symbol's bits that are raw; with raw bits, without tables.
    pub(in crate::block) fn fold_estimates(
        &self,
        h: &Histogram,
        left: u32,
        symbol_bits: u32,
        effort: Effort,
    ) -> Vec<u64> {
        let mut folded = *h;
        let sampled = h.iter().map(|&c| u64::from(c)).sum();
        let estimate = |fold: u32| {
            let symbols = 1 << (symbol_bits - fold);
            if fold > 0 {
                fold_once(&mut folded, symbols);
            }
            cost::estimate(&folded[..symbols], effort.slot_bits) + raw_cost(left, symbol_bits - fold, sampled, effort)
        };
        (0..symbol_bits).map(estimate).collect()
    }

    /// The number of a symbol's bits that are best raw, the coder for the rest, and the cost of the sample in 1/256 bit, with raw
    /// bits. `estimates` are those of [`Self::fold_estimates`].
    pub(in crate::block) fn choose_fold(
        &self,
        h: &Histogram,
        estimates: &[u64],
        left: u32,
        sample: &Sample,
        effort: Effort,
    ) -> (u32, Coder, u64) {
        let (sampled, symbol_bits) = (sample.sampled, estimates.len() as u32);
        let raw_cost = |fold: u32| raw_cost(left, symbol_bits - fold, sampled, effort);
        let least = *estimates.iter().min().expect("a symbol has at least one bit");
        // An estimate omits most of the cost of 128 slots; where several are close, tables decide.
        let close = least + sampled * cost::BIT / if effort.residuals { 16 } else { 6 };
        // A table that saves next to nothing is not worth its lanes.
        let lanes = sampled * cost::BIT / 64;
        let mut folds: Vec<u32> = (0..symbol_bits).filter(|&fold| estimates[fold as usize] <= close).collect();
        folds.sort_by_key(|&fold| estimates[fold as usize]);
        let mut best = (symbol_bits, Coder::None, raw_cost(symbol_bits));
        for fold in folds {
            let estimate = estimates[fold as usize];
            // No table costs less than its estimate, and the estimates rise.
            if estimate + lanes >= best.2 {
                break;
            }
            let mut folded = *h;
            (1..=fold).for_each(|fold| fold_once(&mut folded, 1 << (symbol_bits - fold)));
            // A sample may miss symbols that occur.
            let complete = sample.exact || folded[..1 << (symbol_bits - fold)].iter().all(|&c| c > 0);
            let (coder, bits) = self.build(&folded, complete, estimate, raw_cost(fold), effort);
            let total = bits + coder_bits(&coder) * sampled / sample.elements + raw_cost(fold) + lanes;
            if total < best.2 {
                best = (fold, coder, total);
            }
        }
        best.2 -= plane_penalty(left, symbol_bits - best.0, sampled, effort);
        best
    }

    /// A table of the level's coder, or of a finer one that saves enough, and the cost of the sample with it. `estimate` is the cost
    /// without rounding to slots; it includes `raw` for the raw bits.
    fn build(&self, h: &Histogram, complete: bool, estimate: u64, raw: u64, effort: Effort) -> (Coder, u64) {
        let rans = |log_slots: u32| {
            let (table, bits) = rans::build(h, complete, log_slots);
            (Coder::Rans(Box::new(table)), bits)
        };
        // Finer coders are slower: they must save a share of all bits.
        let saves = |share: u64, bits: u64, less: u64| bits > less && (bits - less) * share > bits + raw;
        let least = estimate.saturating_sub(raw);
        let mut best = match self.level {
            Level::Max => return rans(FINE_BITS),
            Level::Default => rans(COARSE_BITS),
            Level::Fast => {
                let (e, bits) = huffman::build(h, complete);
                if !effort.residuals {
                    return (Coder::Huffman(Box::new(e)), bits);
                }
                if saves(24, bits, least) { rans(COARSE_BITS) } else { (Coder::Huffman(Box::new(e)), bits) }
            }
        };
        // Dominant symbols lose much with 128 slots.
        if saves(50, best.1, least) {
            let finer = rans(FINE_BITS);
            if saves(50, best.1, finer.1) {
                best = finer;
            }
        }
        best
    }

    /// Plans a map of runs. Also returns the cost in 1/256 bit.
    pub(in crate::block) fn plan_cluster_map(&self, map: Vec<u8>) -> ((Cluster, Item), u64) {
        let (or, and) = map.iter().fold((0, 255), |(or, and), &b| (or | b, and & b));
        let members = RunCluster {
            runs: (0..map.len().div_ceil(RUN) as u32).collect(),
            varying: u64::from(or ^ and),
            ones: u64::from(and),
            top: None,
        };
        let (cluster, bits) = self.plan_cluster(
            Map::Identity,
            8,
            &members,
            Effort { table_stride: 1, plane_penalty: 0, ..self.effort() },
            |shift, r, h| {
                let run = &map[r as usize * RUN..];
                count_run::<u8>(Map::Identity, shift, &run[..run.len().min(RUN)], h);
            },
        );
        let n = map.len();
        let planned = PlannedCluster::new(&cluster, Elements::Own(Rc::new(map)), (1, Map::Identity), members.runs, n);
        ((cluster, Item::Cluster(Box::new(planned))), bits)
    }
}

/// The cost of the raw bits of a sample in 1/256 bit, if `symbol_bits` of `left` bits are the symbol.
fn raw_cost(left: u32, symbol_bits: u32, sampled: u64, effort: Effort) -> u64 {
    let bits = u64::from(left - symbol_bits) * cost::BIT * sampled;
    bits + plane_penalty(left, symbol_bits, sampled, effort)
}

/// Bit planes are slower than byte planes: the penalty makes them earn it.
fn plane_penalty(left: u32, symbol_bits: u32, sampled: u64, effort: Effort) -> u64 {
    let slow = !(left - symbol_bits).is_multiple_of(8) && left.is_multiple_of(8) && left > 8;
    if slow { effort.plane_penalty * sampled } else { 0 }
}

/// The sample of a cluster's histogram.
pub(in crate::block) struct Sample {
    /// Whether the sample is the whole cluster.
    pub(in crate::block) exact: bool,
    pub(in crate::block) sampled: u64,
    /// Elements of the cluster.
    pub(in crate::block) elements: u64,
}

/// Size of a coder's table in 1/256 bit.
fn coder_bits(coder: &Coder) -> u64 {
    let mut table = Vec::new();
    coder.put(&mut table);
    8 * table.len() as u64 * cost::BIT
}

/// Joins symbols that differ in their lowest bit, so that `symbols` are left.
fn fold_once(h: &mut Histogram, symbols: usize) {
    for i in 0..symbols {
        h[i] = h[2 * i] + h[2 * i + 1];
    }
    h[symbols..2 * symbols].fill(0);
}

/// Width and map of a dtype's elements.
pub fn coding_of(dtype: Dtype) -> (usize, Map) {
    (dtype.coding_width(), Map::of(dtype))
}
