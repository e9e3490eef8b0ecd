//! Plans a stream of residuals: mostly small numbers, and a few large ones.

use super::mask::Selected;
use super::patches::PatchList;
use super::plan::{Planner, Sample as Basis};
use super::planned::StreamPlan;
use super::sparse::few_of;
use super::{Cluster, Mask};
use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::{Element, extend, with_element};
use lmc_kernels::cluster::runs::Effort;
use lmc_kernels::entropy::cost;
use lmc_kernels::entropy::histogram::{Histogram, histogram};
use lmc_kernels::map::Map;
use lmc_kernels::predict::changes::Compared;

/// Sampled elements of a column, shared by its streams in proportion, and the least of a stream.
const SAMPLE: u64 = 32 * 1024;
const SAMPLE_LEAST: usize = 1024;
/// Bits that a patch costs beside its element's symbol: its gap and its high bits.
const PATCH_BITS: u64 = 12;
/// Largest shares of patched elements that are tried: 1/512 and 1/64.
const SHARES: [usize; 2] = [512, 64];
/// Splits whose estimates are within 1/32 of the lowest are decided by building their tables.
const CLOSE: u64 = 32;
/// Bits that a further cluster costs: its head and table.
const CLUSTER_BITS: u64 = 400;

/// A sample of a stream without its runs of zeros.
struct Sample {
    /// Sampled elements.
    seen: usize,
    /// Low bits that are zero in all elements of the stream.
    low: u32,
    /// Bits of the stream's largest element.
    top: u32,
    /// The cuts to try, most kept bits first.
    cuts: Vec<Cut>,
}

/// A number of low bits that elements keep; patches hold the bits above.
struct Cut {
    /// Low bits that elements keep.
    kept: u32,
    /// Sampled elements that are patched.
    patched: usize,
    /// Histogram of the topmost kept bits, up to eight.
    symbols: Histogram,
}

impl Planner {
    /// Plans a stream of residuals, under [`Map::Identity`]. The high bits of the few large elements are moved from `elements` to
    /// patches; if a mask selects some, these are moved to the front. `column` is the number of elements of all streams of the column;
    /// `together` says that many zeros are next to each other.
    pub(in crate::block) fn plan_residuals(
        &mut self,
        width: usize,
        elements: &mut [u8],
        column: usize,
        together: bool,
    ) -> StreamPlan {
        let n = elements.len() / width;
        if together && let Some(selected) = Selected::of_residuals(width, elements) {
            selected.compact(width, elements);
            let mut plan = self.plan_residuals(width, &mut elements[..selected.count * width], column, false);
            let ((bytes, item), bits) = self.plan_cluster_map(selected.bits);
            plan.estimate += bits / (8 * cost::BIT) + 8;
            plan.set_mask(Mask::Bits { selected: selected.count, signs: false, bytes: Box::new(bytes) }, [item]);
            return plan;
        }
        let mut or = std::mem::take(&mut self.stats.or);
        or.clear();
        self.isa.run_ors(width, elements, &mut or);
        let zero: Vec<bool> = or.iter().map(|&o| o == 0).collect();
        let zeros = zero.iter().filter(|z| **z).count();
        let plan = if self.isa.changes(&Compared::with_zero(width, elements), few_of(n), &mut self.changes) {
            let mut patches = PatchList::of(width, Map::Identity, &self.changes);
            StreamPlan::sparse(width, Map::Identity, &mut patches)
        } else {
            // Of 64 bits, so that all machines choose the same.
            let size = ((SAMPLE * n as u64 / column as u64) as usize).max(SAMPLE_LEAST);
            self.plan_nonzero(width, elements, &or, &zero, zeros, size)
        };
        self.stats.or = or;
        plan
    }

    fn plan_nonzero(
        &mut self,
        width: usize,
        elements: &mut [u8],
        or: &[u64],
        zero: &[bool],
        zeros: usize,
        size: usize,
    ) -> StreamPlan {
        let n = elements.len() / width;
        let bits = 8 * width as u32;
        let sample = with_element!(width, E => sample::<E>(elements, zero, zeros, or, size));
        let rest = (zero.len() - zeros) * RUN;
        // Runs of zeros in their own cluster cost only the cluster map.
        let best = self.best_split(&sample, rest, 0);
        let mut apart = false;
        let mut chosen = best;
        if zeros > 0 {
            let together = self.best_split(&sample, rest, zeros * RUN);
            let side = cost::of_two(zeros as u32, (zero.len() - zeros) as u32);
            apart = chosen.bits + side + CLUSTER_BITS * cost::BIT < together.bits;
            if !apart {
                chosen = together;
            }
        }
        let mut plan = StreamPlan::empty(width, Map::Identity);
        let kept = chosen.cluster.low + chosen.left;
        let mut patches = (kept < sample.top).then(|| self.take_patches(width, elements, kept));
        let mut cluster = chosen.cluster;
        cluster.high = bits - kept;
        plan.estimate = chosen.bits;
        if apart {
            let (mut empty, mut filled) = (Vec::with_capacity(zeros), Vec::with_capacity(zero.len() - zeros));
            zero.iter().zip(0u32..).for_each(|(&z, r)| if z { empty.push(r) } else { filled.push(r) });
            plan.push(Cluster::zero(bits), empty, n);
            plan.push(cluster, filled, n);
            let map = zero.iter().map(|&z| u8::from(!z)).collect();
            let (map, bits) = self.plan_cluster_map(map);
            plan.estimate += bits;
            plan.set_cluster_map(map);
        } else {
            plan.push(cluster, (0..zero.len() as u32).collect(), n);
        }
        plan.estimate = plan.estimate / (8 * cost::BIT) + 8;
        if let Some(patches) = &mut patches {
            plan.estimate += plan.set_patches(patches, kept);
        }
        plan
    }

    /// Removes the bits from `kept` on of all elements that have any.
    fn take_patches(&mut self, width: usize, elements: &mut [u8], kept: u32) -> PatchList {
        let (n, bits) = (elements.len() / width, u64::MAX << kept);
        // Few, as in the sample, unless the sample is not representative.
        let compared = Compared { bits, ..Compared::with_zero(width, elements) };
        let found = [n / 16, n].into_iter().any(|most| self.isa.changes(&compared, most, &mut self.changes));
        assert!(found, "no more than all elements differ");
        let mut patches = PatchList::with_capacity(self.changes.at().len());
        with_element!(width, E => {
            for (&at, e) in self.changes.at().iter().zip(E::all(self.changes.elements())) {
                let v = E::from_bytes(*e).wide();
                patches.push(at as usize, v & bits);
                E::cut(v & !bits).store(&mut elements[at as usize * E::BYTES..]);
            }
        });
        patches
    }

    /// Chooses the numbers of raw and of symbol bits, and the table, for `elements` elements like the sample and `zeros` zeros.
    fn best_split(&self, sample: &Sample, elements: usize, zeros: usize) -> Split {
        let &Sample { seen, low, .. } = sample;
        let effort = Effort { slot_bits: 12, residuals: true, ..self.effort() };
        let trial = |cut: &Cut| {
            let left = cut.kept - low;
            let mut h = cut.symbols;
            // The zeros were counted exactly: scale them down to the sample.
            h[0] += (zeros as u64 * seen as u64 / elements.max(1) as u64) as u32;
            let total: u64 = h.iter().map(|&c| u64::from(c)).sum();
            let estimates = self.fold_estimates(&h, left, left.min(8), effort);
            // For the sample, as the estimates.
            let patches = cut.patched as u64 * PATCH_BITS * cost::BIT;
            Trial { left, patches, h, total, estimates }
        };
        let mut trials: Vec<Trial> = sample.cuts.iter().map(trial).collect();
        trials.sort_by_key(Trial::estimate);
        let least = trials[0].estimate();
        let whole = (elements + zeros) as u64;
        let fixed = |t: &Trial| CLUSTER_BITS * cost::BIT + t.patches * elements as u64 / seen as u64;
        let mut best: Option<Split> = None;
        for t in trials.into_iter().filter(|t| t.estimate() <= least + least / CLOSE) {
            // No table costs less than its estimate.
            if best.as_ref().is_some_and(|b| t.least() * whole / t.total + fixed(&t) >= b.bits) {
                continue;
            }
            let basis = Basis { exact: seen == elements, sampled: t.total, elements: whole };
            let (fold, coder, bits) = self.choose_fold(&t.h, &t.estimates, t.left, &basis, effort);
            let bits = bits * whole / t.total + fixed(&t);
            if best.as_ref().is_none_or(|b| bits < b.bits) {
                let raw_bits = t.left - t.estimates.len() as u32 + fold;
                let cluster = Cluster { low, high: 0, raw_bits, sign_plane: false, constant: 0, coder };
                best = Some(Split { cluster, left: t.left, bits });
            }
        }
        best.expect("the lowest estimate is within the limit")
    }
}

/// A cut, with its estimates.
struct Trial {
    /// Raw and symbol bits.
    left: u32,
    /// Cost of the patches in 1/256 bit, for the sample.
    patches: u64,
    h: Histogram,
    /// Elements in `h`.
    total: u64,
    /// By the number of the symbol's bits that are raw, in 1/256 bit, for `h`.
    estimates: Vec<u64>,
}

impl Trial {
    /// The lowest estimate, without patches.
    fn least(&self) -> u64 {
        *self.estimates.iter().min().expect("a symbol has at least one bit")
    }

    fn estimate(&self) -> u64 {
        self.patches + self.least()
    }
}

struct Split {
    /// Its dropped high bits are not set yet.
    cluster: Cluster,
    /// Raw and symbol bits.
    left: u32,
    /// Cost of all elements in 1/256 bit.
    bits: u64,
}

/// About `size` elements of runs that are not all zero, evenly spread.
fn sample<E: Element>(elements: &[u8], zero: &[bool], zeros: usize, or: &[u64], size: usize) -> Sample {
    let runs = zero.len() - zeros;
    let stride = (runs * RUN / size).max(1);
    let mut values: Vec<E> = Vec::with_capacity(runs.div_ceil(stride) * RUN);
    let filled = elements.chunks(RUN * E::BYTES).zip(zero).filter(|(_, z)| !**z);
    for (run, _) in filled.step_by(stride) {
        extend(&mut values, run);
    }
    let or = or.iter().fold(0, |a, &o| a | o);
    let (low, top) = (or.trailing_zeros(), 64 - or.leading_zeros());
    Sample { seen: values.len(), low, top, cuts: cuts(&values, low, top) }
}

/// The cuts to try for elements with bits from `low` up to `top`.
fn cuts<E: Element>(values: &[E], low: u32, top: u32) -> Vec<Cut> {
    let symbols_of = |kept: u32| {
        let symbol_bits = (kept - low).min(8);
        let mask = (1u64 << symbol_bits) - 1;
        histogram(values, |v| (v.shr(kept - symbol_bits).wide() & mask) as usize)
    };
    let all = Cut { kept: top, patched: 0, symbols: symbols_of(top) };
    // The topmost symbol gives the counts of elements by length, except for lengths up to `below`.
    let below = top - (top - low).min(8);
    let mut short: Option<[u32; 65]> = None;
    let mut of_length = |bits: u32| {
        if bits > below {
            let symbol = 1usize << (bits - below - 1);
            return all.symbols[symbol..2 * symbol].iter().sum::<u32>() as usize;
        }
        let counts = short.get_or_insert_with(|| histogram(values, |v| 64 - v.wide().leading_zeros() as usize));
        counts[bits as usize] as usize
    };
    let (mut kept, mut patched) = (top, 0);
    let mut found: Vec<Cut> = Vec::with_capacity(1 + SHARES.len());
    for share in SHARES {
        while kept > low + 1 {
            let with = patched + of_length(kept);
            if with.saturating_mul(share) > values.len() {
                break;
            }
            (patched, kept) = (with, kept - 1);
        }
        if kept < found.last().map_or(top, |c| c.kept) {
            let symbols = if top - low <= 8 { cut_short(&all.symbols, kept - low) } else { symbols_of(kept) };
            found.push(Cut { kept, patched, symbols });
        }
    }
    found.insert(0, all);
    found
}

/// Symbols without their bits from `bits` on.
fn cut_short(symbols: &Histogram, bits: u32) -> Histogram {
    let mut short = [0; 256];
    let mask = (1 << bits) - 1;
    symbols.iter().enumerate().for_each(|(s, &n)| short[s & mask] += n);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::level::Level;
    use lmc_kernels::isa::Isa;
    use lmc_test_inputs::Random;

    /// The cuts by plain counting.
    fn plain_cuts(values: &[u32], low: u32, top: u32) -> Vec<(u32, usize, Histogram)> {
        let longer = |bits: u32| values.iter().filter(|v| 32 - v.leading_zeros() > bits).count();
        let mut kept: Vec<u32> = vec![top];
        for share in SHARES {
            let least = (low + 1..=top).rev().take_while(|&k| longer(k) * share <= values.len()).last();
            kept.push(least.expect("no value is longer than the top"));
        }
        kept.dedup();
        let of = |kept: u32| {
            let symbol_bits = (kept - low).min(8);
            let mut h = [0; 256];
            values.iter().for_each(|v| h[(v >> (kept - symbol_bits)) as usize & ((1 << symbol_bits) - 1)] += 1);
            (kept, longer(kept), h)
        };
        kept.into_iter().map(of).collect()
    }

    #[test]
    fn cuts_are_where_few_elements_are_longer() {
        let mut r = Random::new(23);
        let mut several = 0;
        for _ in 0..300 {
            // Most of a typical length, a few of any other, and all with `low` zeros below.
            let (typical, low) = (1 + r.below(20) as u32, r.below(5) as u32);
            let one_in = 1 + r.below(300);
            let mut values: Vec<u32> = (0..1 + r.below(4000))
                .map(|_| {
                    let bits = if r.below(one_in) == 0 { 1 + r.below(27) as u32 } else { typical };
                    (r.u64() as u32) >> (32 - bits) << low
                })
                .collect();
            values[0] |= 1 << low;
            let or = values.iter().fold(0, |a, v| a | v);
            let (low, top) = (or.trailing_zeros(), 32 - or.leading_zeros());
            let found: Vec<_> = cuts(&values, low, top).into_iter().map(|c| (c.kept, c.patched, c.symbols)).collect();
            assert_eq!(found, plain_cuts(&values, low, top), "{low} {top}");
            several += usize::from(found.len() > 2);
        }
        assert!(several > 20, "{several} have several cuts");
    }

    /// Also where a sample shows few.
    #[test]
    fn all_patches_are_taken() {
        for isa in Isa::available() {
            let mut planner = Planner::new(isa, Level::Default);
            for (n, of) in [(1000, 1), (5000, 3), (5000, 100)] {
                let values: Vec<u32> =
                    (0..n).map(|i| if i % of == 0 { i << 8 | 0x8000_0001 } else { i & 0xff }).collect();
                let mut elements: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let mut patches = planner.take_patches(4, &mut elements, 8);
                let short: Vec<u8> = values.iter().flat_map(|v| (v & 0xff).to_le_bytes()).collect();
                assert_eq!(elements, short, "{}", isa.name());
                let (head, bytes) = patches.encode(8);
                let mut taken = vec![];
                head.expect("there are patches").each(&bytes, n as usize, 4, |i, x| taken.push((i, x))).unwrap();
                let expected = (0..n).step_by(of as usize).map(|i| (i as usize, u64::from(values[i as usize] & !0xff)));
                assert_eq!(taken, expected.collect::<Vec<_>>(), "{}", isa.name());
            }
        }
    }
}
