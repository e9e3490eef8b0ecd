//! Clusters of runs: runs of a column that share a table.
//!
//! Rows and tensors differ in scale, so a run's mean exponent selects its table: a one-dimensional k-means over the means, then
//! neighbours are merged while a table costs more than it saves. Constant runs, and runs with more trailing zero bits than the rest
//! (float32 rows unchanged since they were cast from a narrower type), get clusters of their own first: whole bits are dropped there.

use std::iter::repeat_n;
use std::ops::RangeInclusive;

use super::RUN;
use super::element::Element;
use crate::entropy::histogram::{Histogram, histogram, sum_of};
use crate::entropy::{cost, merge};
use crate::inline::{array, zip};
use crate::map::Map;

/// Statistics of every run. Bits are those of mapped elements.
#[derive(Default)]
pub struct RunStats {
    /// Sum of the top bytes of the run's 128 elements (scaled up for a partial run).
    pub(crate) sum: Vec<u16>,
    /// OR of the elements.
    pub or: Vec<u64>,
    /// AND of the elements.
    pub and: Vec<u64>,
}

impl RunStats {
    /// Forgets all runs.
    pub fn clear(&mut self) {
        self.sum.clear();
        self.or.clear();
        self.and.clear();
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.sum.len()
    }

    /// Number of runs whose elements are all equal.
    pub fn constant(&self) -> usize {
        let and = &self.and[..self.or.len()];
        self.or.iter().enumerate().fold(0, |n, (i, or)| n + usize::from(*or == and[i]))
    }
}

/// Appends the statistics of all runs of `elements`, a partial one too.
#[inline(always)]
pub fn run_stats<E: Element>(map: Map, elements: &[u8], stats: &mut RunStats) {
    for run in elements.chunks(RUN * E::BYTES) {
        let (mut or, mut and, mut sum) = (E::default(), E::cut(u64::MAX), 0u32);
        for e in E::all(run) {
            let v = E::from_bytes(*e).map(map);
            or = or.or(v);
            and = and.and(v);
            sum += v.shr(E::BITS - 8).wide() as u32;
        }
        let t = (run.len() / E::BYTES) as u32;
        stats.sum.push((if t == RUN as u32 { sum } else { sum * RUN as u32 / t }) as u16);
        stats.or.push(or.wide());
        stats.and.push(and.wide());
    }
}

/// Appends the OR of each run of `elements`, a partial one too.
#[inline(always)]
pub(crate) fn run_ors<E: Element>(elements: &[u8], ors: &mut Vec<u64>) {
    for run in elements.chunks(RUN * E::BYTES) {
        let (words, rest) = run.as_chunks::<8>();
        let mut or = words.iter().fold(0, |or, w| or | u64::from_le_bytes(*w));
        for bits in [32, 16, 8] {
            or |= if bits >= E::BITS { or >> bits } else { 0 };
        }
        let or = E::all(rest).iter().fold(E::cut(or), |or, e| or.or(E::from_bytes(*e)));
        ors.push(or.wide());
    }
}

/// Adds the symbols `(v >> shift) & 255` of a run.
#[inline(always)]
pub fn count_run<E: Element>(map: Map, shift: u32, run: &[u8], hist: &mut [Histogram; 4]) {
    // First the symbols, in a loop that the compiler vectorises.
    let mut symbols = [0u8; RUN];
    let symbols = &mut symbols[..run.len() / E::BYTES];
    zip(symbols, E::all(run), |s, e| *s = E::from_bytes(*e).map(map).shr(shift).wide() as u8);
    // Four histograms, so that increments for equal neighbours do not depend on each other.
    let (quads, rest) = symbols.as_chunks::<4>();
    for quad in quads {
        zip(hist, quad, |h, &s| h[usize::from(s)] += 1);
    }
    zip(hist, rest, |h, &s| h[usize::from(s)] += 1);
}

/// A cluster of runs.
#[derive(Default)]
pub struct RunCluster {
    /// Places of the cluster's runs in the column, in order.
    pub runs: Vec<u32>,
    /// Bits that differ between elements.
    pub varying: u64,
    /// Bits that are one in all elements.
    pub ones: u64,
    /// Top bytes of a sample of the cluster, if one was taken.
    pub top: Option<Box<Histogram>>,
}

/// Runs with their sample.
struct Sampled {
    runs: Vec<u32>,
    top: Option<Box<Histogram>>,
}

impl Sampled {
    fn without(runs: Vec<u32>) -> Self {
        Self { runs, top: None }
    }
}

/// Limits of the search, and properties of the tables.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Most clusters by mean.
    pub clusters: usize,
    /// One run in this many is sampled for the clusters.
    pub stride: usize,
    /// One run in this many is sampled for a table.
    pub table_stride: usize,
    /// log2 of the slots of a table.
    pub slot_bits: u32,
    /// Bits that a further cluster costs: its head and table.
    pub cluster_bits: u64,
    /// Saving required of bit planes, in 1/256 bit per element.
    pub plane_penalty: u64,
    /// A further context, which takes time, must save 1/`context_share` of the cost in one context.
    pub context_share: u64,
    /// Whether symbols are residuals, which may be nearly constant: then coders above the level's own are allowed.
    pub residuals: bool,
}

/// Fewest runs that can pay for their own table.
const MIN_RUNS: usize = 32;
/// Means are binned in steps of 1/4: a sum is divided by this.
const BIN: u16 = RUN as u16 / 4;
const BINS: usize = 4 * 256;

/// Puts every run into a cluster. `top_bytes` counts the top bytes of one run's elements.
pub fn cluster_runs(
    stats: &RunStats,
    map: Map,
    width_bits: u32,
    effort: Effort,
    mut top_bytes: impl FnMut(u32, &mut [Histogram; 4]),
) -> Vec<RunCluster> {
    let n = stats.runs();
    assert!(n > 0, "a column has elements");
    let mask = u64::MAX >> (64 - width_bits);
    let varying = |r: usize| stats.or[r] ^ stats.and[r];
    let mut rest: Vec<u32> = (0..n as u32).collect();
    let mut out: Vec<Sampled> = Vec::new();

    // Constant runs of the same value. Most columns have none, which the vectorised count shows.
    let constant = stats.constant();
    if constant > 0 {
        let first = (0..n).find(|&r| varying(r) == 0).expect("the count is above 0");
        let value = stats.or[first];
        let same = (0..n).filter(|&r| varying(r) == 0 && stats.or[r] == value).count();
        if same == n || same >= 4 {
            let apart;
            (apart, rest) = rest.into_iter().partition(|&r| varying(r as usize) == 0 && stats.or[r as usize] == value);
            out.push(Sampled::without(apart));
        }
    }
    // Runs with more trailing zeros than the others.
    let zeros = |r: u32| trailing_zeros(map, stats.or[r as usize] & mask).min(width_bits);
    if stats.or.iter().any(|&or| or & 0b1110 == 0)
        && let Some(line) = trailing_zero_line(rest.iter().map(|&r| zeros(r)), effort)
    {
        let untouched;
        (untouched, rest) = rest.into_iter().partition(|&r| zeros(r) >= line);
        out.extend(by_mean(stats, untouched, Effort { clusters: effort.clusters.min(3), ..effort }, &mut top_bytes));
    }
    if !rest.is_empty() {
        out.extend(by_mean(stats, rest, effort, &mut top_bytes));
    }
    out.into_iter()
        .filter(|s| !s.runs.is_empty())
        .map(|Sampled { runs, top }| {
            let or = runs.iter().fold(0, |a, &r| a | stats.or[r as usize]);
            let and = runs.iter().fold(u64::MAX, |a, &r| a & stats.and[r as usize]);
            RunCluster { runs, varying: (or ^ and) & mask, ones: and & mask, top }
        })
        .collect()
}

/// Trailing zero bits of a mapped element; above the sign where the map puts that at bit 0.
#[inline(always)]
pub fn trailing_zeros(map: Map, bits: u64) -> u32 {
    match map {
        Map::Rotate => (bits >> 1).trailing_zeros(),
        _ => bits.trailing_zeros(),
    }
}

/// The least number of trailing zero bits of runs that get clusters of their own, if that pays.
fn trailing_zero_line(zeros: impl Iterator<Item = u32>, effort: Effort) -> Option<u32> {
    let mut count = [0u64; 65];
    for z in zeros {
        count[z as usize] += 1;
    }
    let base = count.iter().position(|&c| c > 0)?;
    let mut best = None;
    let mut at_least = 0;
    for t in (base + 3..65).rev() {
        at_least += count[t];
        let saved = at_least * (t - base) as u64 * RUN as u64;
        if count[t] > 0 && saved > 4 * effort.cluster_bits && best.is_none_or(|(s, _)| saved > s) {
            best = Some((saved, t as u32));
        }
    }
    best.map(|b| b.1)
}

fn by_mean(
    stats: &RunStats,
    runs: Vec<u32>,
    effort: Effort,
    top_bytes: &mut impl FnMut(u32, &mut [Histogram; 4]),
) -> Vec<Sampled> {
    let k = effort.clusters.min(runs.len() / MIN_RUNS);
    if k < 2 {
        return vec![Sampled::without(runs)];
    }
    let bin_of: Vec<u16> = runs.iter().map(|&r| stats.sum[r as usize] / BIN).collect();
    let bins: [u32; BINS] = histogram(&bin_of, usize::from);
    let lo = bins.iter().position(|&n| n > 0).expect("there are runs");
    let hi = bins.iter().rposition(|&n| n > 0).expect("there are runs");
    let cluster_of = k_means(&bins, lo..=hi, k, runs.len());
    let clusters = usize::from(cluster_of[BINS - 1]) + 1;
    if clusters < 2 {
        return vec![Sampled::without(runs)];
    }
    let mut candidates: Vec<Candidate> = (0..clusters).map(|_| Candidate::default()).collect();
    bins[lo..=hi].iter().zip(&cluster_of[lo..=hi]).for_each(|(&n, &c)| candidates[usize::from(c)].runs += n as usize);
    let cluster_of_run: Vec<u8> = bin_of.iter().map(|&b| cluster_of[usize::from(b)]).collect();
    sample(&mut candidates, &runs, &cluster_of_run, effort, top_bytes);
    let mut candidates = merge_neighbours(candidates, effort);
    if let [only] = &mut candidates[..] {
        return vec![Sampled { runs, top: Some(std::mem::take(only).top) }];
    }
    let mut merged = [0; 64];
    let members = candidates.iter().zip(0..).flat_map(|(c, i)| repeat_n(i, c.members));
    merged[..clusters].iter_mut().zip(members).for_each(|(to, i)| *to = i);
    let counts = candidates.iter().map(|c| c.runs);
    let by_cluster = distribute(&runs, cluster_of_run.iter().map(|&c| merged[usize::from(c)]), counts);
    candidates.into_iter().zip(by_cluster).map(|(c, runs)| Sampled { runs, top: Some(c.top) }).collect()
}

/// The runs of each cluster, in order; each has as many as `counts` says. A counting sort.
fn distribute(
    runs: &[u32],
    cluster_of_run: impl Iterator<Item = u8>,
    counts: impl Iterator<Item = usize>,
) -> Vec<Vec<u32>> {
    let counts: Vec<usize> = counts.collect();
    // Where each cluster begins; where it ends, once its runs are placed.
    let mut ends = [0; 64];
    let mut first = 0;
    for (end, count) in ends.iter_mut().zip(&counts) {
        *end = first;
        first += count;
    }
    let mut sorted = vec![0; runs.len()];
    for (&r, c) in runs.iter().zip(cluster_of_run) {
        let at = &mut ends[usize::from(c)];
        sorted[*at] = r;
        *at += 1;
    }
    counts.iter().zip(ends).map(|(count, end)| sorted[end - count..end].to_vec()).collect()
}

/// A cluster before neighbours are merged.
struct Candidate {
    /// Clusters of the k-means in it.
    members: usize,
    runs: usize,
    /// Top bytes of a sample, scaled to the whole cluster.
    top: Box<Histogram>,
    cost: u64,
}

impl Default for Candidate {
    fn default() -> Self {
        Self { members: 1, runs: 0, top: Box::new([0; 256]), cost: 0 }
    }
}

/// Fewest runs of a cluster in its sample.
const SAMPLE_RUNS: usize = 16;

/// Counts one run in `stride`, and more of clusters with fewer than `SAMPLE_RUNS` then.
fn sample(
    clusters: &mut [Candidate],
    runs: &[u32],
    cluster_of_run: &[u8],
    effort: Effort,
    top_bytes: &mut impl FnMut(u32, &mut [Histogram; 4]),
) {
    let mut picked: Vec<Vec<u32>> = vec![Vec::new(); clusters.len()];
    for (&r, &c) in runs.iter().zip(cluster_of_run).step_by(effort.stride) {
        picked[usize::from(c)].push(r);
    }
    if picked.iter().any(|picked| picked.len() < SAMPLE_RUNS) {
        let counts = clusters.iter().map(|cluster| cluster.runs);
        for (picked, all) in picked.iter_mut().zip(distribute(runs, cluster_of_run.iter().copied(), counts)) {
            if picked.len() < SAMPLE_RUNS {
                let stride = (all.len() / SAMPLE_RUNS).max(1);
                *picked = all.into_iter().step_by(stride).collect();
            }
        }
    }
    for (cluster, picked) in clusters.iter_mut().zip(&picked) {
        let mut hist = [[0u32; 256]; 4];
        picked.iter().for_each(|&r| top_bytes(r, &mut hist));
        // In 1/16, so that clusters with a denser sample do not appear larger.
        let scale = (16 * cluster.runs as u32).checked_div(picked.len() as u32).unwrap_or(0);
        *cluster.top = array(|s| ((u64::from(sum_of(&hist, s)) * u64::from(scale)).div_ceil(16)) as u32);
        cluster.cost = cost::estimate(&cluster.top[..], effort.slot_bits);
    }
}

/// One-dimensional k-means over binned means. Clusters are intervals, so the answer is a rising map from bin to cluster.
/// The runs are in the bins `used`.
fn k_means(bins: &[u32; BINS], used: RangeInclusive<usize>, k: usize, total: usize) -> [u8; BINS] {
    let (lo, hi) = used.into_inner();
    let mut cluster_of = [0u8; BINS];
    // Begin with quantiles.
    let mut seen = 0usize;
    for b in lo..=hi {
        cluster_of[b] = (seen * k / total) as u8;
        seen += bins[b] as usize;
    }
    for _ in 0..6 {
        let (mut sum, mut n) = ([0u64; 64], [0u64; 64]);
        for b in lo..=hi {
            sum[usize::from(cluster_of[b])] += u64::from(bins[b]) * b as u64;
            n[usize::from(cluster_of[b])] += u64::from(bins[b]);
        }
        // Twice the centres; an empty cluster takes its left neighbour's.
        let centres: Vec<u64> = (0..k).filter(|&c| n[c] > 0).map(|c| 2 * sum[c] / n[c]).collect();
        let mut c = 0;
        for (b, cluster) in cluster_of.iter_mut().enumerate().take(hi + 1).skip(lo) {
            while c + 1 < centres.len() && 4 * b as u64 > centres[c] + centres[c + 1] {
                c += 1;
            }
            *cluster = c as u8;
        }
    }
    let last = cluster_of[hi];
    cluster_of[hi + 1..].fill(last);
    cluster_of
}

/// Merges clusters next to each other while a common table is cheaper.
fn merge_neighbours(mut clusters: Vec<Candidate>, effort: Effort) -> Vec<Candidate> {
    // Merging also saves the entropy of the cluster map; without that, random differences between similar runs look like a gain.
    let side = |a: usize, b: usize| cost::of_two(a.max(1) as u32, b.max(1) as u32);
    // The gain of merging each cluster with its right neighbour.
    let gain = |a: &Candidate, b: &Candidate| -> i64 {
        let joined: Histogram = array(|s| a.top[s] + b.top[s]);
        let apart = a.cost + b.cost + side(a.runs, b.runs) + effort.cluster_bits * cost::BIT;
        apart as i64 - cost::estimate(&joined, effort.slot_bits) as i64
    };
    let join = |left: &mut Candidate, right: Candidate, _| {
        left.members += right.members;
        left.runs += right.runs;
        zip(&mut left.top[..], &right.top[..], |a, b| *a += b);
        left.cost = cost::estimate(&left.top[..], effort.slot_bits);
    };
    merge::merge_neighbours(&mut clusters, gain, |gain, _| gain > 0, join);
    clusters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters_of(elements: &[u8], width: usize) -> Vec<RunCluster> {
        let mut stats = RunStats::default();
        match width {
            2 => run_stats::<u16>(Map::Rotate, elements, &mut stats),
            _ => run_stats::<u32>(Map::Rotate, elements, &mut stats),
        }
        let effort = Effort {
            clusters: 8,
            stride: 1,
            table_stride: 1,
            slot_bits: 7,
            cluster_bits: 400,
            plane_penalty: 0,
            context_share: u64::MAX,
            residuals: false,
        };
        cluster_runs(&stats, Map::Rotate, 8 * width as u32, effort, |r, h| {
            let run = &elements[r as usize * RUN * width..];
            let run = &run[..run.len().min(RUN * width)];
            match width {
                2 => count_run::<u16>(Map::Rotate, 8, run, h),
                _ => count_run::<u32>(Map::Rotate, 24, run, h),
            }
        })
    }

    #[test]
    fn every_run_is_in_one_cluster() {
        let mut data = Vec::new();
        for r in 0..1000u32 {
            for e in 0..RUN as u32 {
                let exponent = 100 + 10 * (r % 3) + (e * 7 + r) % 4;
                let mantissa = (e.wrapping_mul(2654435761) ^ (r * 40503)) & 0x7fffff;
                let zeros = if r % 10 == 0 { !0x1fff } else { !0 };
                data.extend_from_slice(&((exponent << 23 | mantissa) & zeros).to_le_bytes());
            }
        }
        data.extend_from_slice(&[0; 512 * 40]);
        data.extend_from_slice(&[1; 44]);
        let clusters = clusters_of(&data, 4);
        let mut all: Vec<u32> = clusters.iter().flat_map(|c| c.runs.iter().copied()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..1041).collect::<Vec<_>>());
        assert!(clusters.iter().all(|c| c.runs.is_sorted()));
        assert!(clusters.iter().any(|c| c.varying == 0 && c.runs.len() == 40), "the zero runs are apart");
        let untouched: usize = clusters
            .iter()
            .filter(|c| c.varying != 0 && trailing_zeros(Map::Rotate, c.varying) >= 13)
            .map(|c| c.runs.len())
            .sum();
        assert_eq!(untouched, 100, "runs that end in zeros are apart");
        assert!(
            clusters.len() >= 5 && clusters.len() <= 12,
            "three scales get clusters of their own: {}",
            clusters.len()
        );
    }

    #[test]
    fn one_scale_is_one_cluster() {
        let noise = |i: u64| {
            (i ^ i << 31).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
        };
        let data: Vec<u8> =
            (0..RUN as u64 * 2000).flat_map(|i| (noise(i) as u16 & 0x81ff | 0x3e00).to_le_bytes()).collect();
        assert_eq!(clusters_of(&data, 2).len(), 1);
    }
}
