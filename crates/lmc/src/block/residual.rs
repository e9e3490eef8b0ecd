//! How a section of residuals is coded: small numbers, most of them, and a few large ones.

use super::head::{Group, Grouped, Patches};
use super::patches::PatchList;
use super::plan::{GroupedPlan, Planner, Sample as Basis};
use super::sparse::few_of;
use crate::entropy::coder::Coder;
use crate::entropy::{Histogram, cost};
use crate::group::RUN;
use crate::group::classes::Effort;
use crate::group::element::{Element, with_element};
use crate::map::Map;

/// Elements of a part that decide how the others are split; each section has its share, but not less than some.
const SAMPLE: usize = 32 * 1024;
const SAMPLE_LEAST: usize = 1024;
/// Bits that a patch costs, its element's symbol left out: what separates it from the one before, and its high bits.
const PATCH_BITS: u64 = 12;
/// Ways to split whose estimates differ by a share of one in so many are told apart by their tables.
const CLOSE: u64 = 32;
/// Bits that a further group costs: its head and table.
const GROUP_BITS: u64 = 400;

/// Values of a section, for all its runs that are not zero.
struct Sample {
    values: Vec<u64>,
    /// Bits that one of them is set anywhere.
    or: u64,
}

impl Planner {
    /// Plans a section of residuals, under map [`Map::Identity`]. Elements that would make all others expensive lose their high bits to
    /// patches. `part` is the number of elements of all sections.
    pub(super) fn plan_residuals(&mut self, width: usize, elements: &mut [u8], part: usize) -> GroupedPlan {
        let n = elements.len() / width;
        let mut or = std::mem::take(&mut self.stats.or);
        or.clear();
        self.isa.run_ors(width, elements, &mut or);
        let zero: Vec<bool> = or.iter().map(|&o| o == 0).collect();
        let zeros = zero.iter().filter(|z| **z).count();
        let plan = if self.isa.changes(width, elements, &[], few_of(n), &mut self.changes) {
            let mut patches = PatchList::of(width, Map::Identity, &self.changes);
            GroupedPlan::listed(width, Map::Identity, &mut patches)
        } else {
            let size = (SAMPLE * n / part).max(SAMPLE_LEAST);
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
    ) -> GroupedPlan {
        let n = elements.len() / width;
        let bits = 8 * width as u32;
        let sample = with_element!(width, E => sample::<E>(elements, zero, zeros, or, size));
        let low = sample.or.trailing_zeros();
        let top = 64 - sample.or.leading_zeros();
        let rest = (zero.len() - zeros) * RUN;
        // Runs of zeros in a group of their own cost nothing but being told apart.
        let best = self.best_split(&sample, low, top, rest, 0);
        let mut apart = false;
        let mut chosen = best;
        if zeros > 0 {
            let together = self.best_split(&sample, low, top, rest, zeros * RUN);
            let side = {
                let (a, b) = (zeros as u32, (zero.len() - zeros) as u32);
                let whole = cost::log2(a + b);
                u64::from(a) * u64::from(whole - cost::log2(a)) + u64::from(b) * u64::from(whole - cost::log2(b))
            };
            apart = chosen.bits + side + GROUP_BITS * cost::BIT < together.bits;
            if !apart {
                chosen = together;
            }
        }
        let mut plan = GroupedPlan::empty(width, Map::Identity);
        let kept = chosen.group.low + chosen.left;
        if kept < top {
            let mut patches = with_element!(width, E => take_patches::<E>(elements, or, kept));
            plan.set_patches(&mut patches, kept);
        }
        let mut group = chosen.group;
        group.high = bits - kept;
        plan.estimate = chosen.bits;
        if apart {
            let (mut empty, mut filled) = (Vec::with_capacity(zeros), Vec::with_capacity(zero.len() - zeros));
            zero.iter().zip(0u32..).for_each(|(&z, r)| if z { empty.push(r) } else { filled.push(r) });
            plan.push(zero_group(bits), empty, n);
            plan.push(group, filled, n);
            let map = zero.iter().map(|&z| u8::from(!z)).collect();
            let (group, planned, bits) = self.plan_class_map(map);
            plan.estimate += bits;
            plan.grouped.class_map = Some(group);
            plan.class_map = Some(planned);
        } else {
            plan.push(group, (0..zero.len() as u32).collect(), n);
        }
        plan.estimate = plan.estimate / (8 * cost::BIT) + 8 + plan.patches.len() as u64;
        plan
    }

    /// Chooses how many low bits go out raw, how many bits are a symbol, and its table, for `elements` elements that are like the sample and
    /// `zeros` more that are zero.
    fn best_split(&self, sample: &Sample, low: u32, top: u32, elements: usize, zeros: usize) -> Split {
        let lengths = histogram::<65>(&sample.values, |v| 64 - v.leading_zeros() as usize);
        let seen = sample.values.len();
        let effort = Effort { slot_bits: 12, residuals: true, ..self.effort() };
        let mut trials: Vec<Trial> = Vec::with_capacity(3);
        // Shares of the elements that may be patched.
        for share in [usize::MAX, 512, 64] {
            let mut patched = 0;
            let mut kept = top;
            while share < usize::MAX
                && kept > low + 1
                && (patched + lengths[kept as usize] as usize).saturating_mul(share) <= seen
            {
                patched += lengths[kept as usize] as usize;
                kept -= 1;
            }
            let left = kept - low;
            if trials.last().is_some_and(|t| t.left == left) {
                continue;
            }
            let symbol_bits = left.min(8);
            let shift = kept - symbol_bits;
            let mask = (1u64 << symbol_bits) - 1;
            let mut h: Histogram = histogram(&sample.values, |v| (v >> shift & mask) as usize);
            // A sample that is smaller than what it stands for is scaled where zeros join it that were counted exactly.
            h[0] += (zeros * seen / elements.max(1)) as u32;
            let total: u64 = h.iter().map(|&c| u64::from(c)).sum();
            let estimates = self.fold_estimates(&h, left, symbol_bits, effort);
            // Of the sample, as the estimates are.
            let patches = patched as u64 * PATCH_BITS * cost::BIT;
            trials.push(Trial { left, patches, h, total, estimates });
        }
        trials.sort_by_key(Trial::estimate);
        let least = trials[0].estimate();
        let whole = (elements + zeros) as u64;
        let fixed = |t: &Trial| GROUP_BITS * cost::BIT + t.patches * elements as u64 / seen as u64;
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
                let group = Group { low, high: 0, raw_bits, sign_plane: false, constant: 0, coder };
                best = Some(Split { group, left: t.left, bits });
            }
        }
        best.expect("the least is close to itself")
    }
}

/// A number of bits that raw bits and symbols might have together, and what is known of it without tables.
struct Trial {
    left: u32,
    /// Cost of the patches in 1/256 bit, for the sample.
    patches: u64,
    h: Histogram,
    /// Elements in `h`.
    total: u64,
    /// By the number of bits of the symbol that are raw.
    estimates: Vec<u64>,
}

impl Trial {
    /// Of the sample, patches left out.
    fn least(&self) -> u64 {
        *self.estimates.iter().min().expect("a symbol has a bit at least")
    }

    fn estimate(&self) -> u64 {
        self.patches + self.least()
    }
}

/// How often each place is named. Four tables, so that equal neighbours, of which residuals have many, do not wait for each other.
fn histogram<const N: usize>(values: &[u64], place: impl Fn(u64) -> usize) -> [u32; N] {
    let mut tables = [[0u32; N]; 4];
    let (quads, rest) = values.as_chunks::<4>();
    for quad in quads {
        quad.iter().zip(&mut tables).for_each(|(&v, h)| h[place(v)] += 1);
    }
    rest.iter().for_each(|&v| tables[0][place(v)] += 1);
    std::array::from_fn(|i| tables.iter().map(|h| h[i]).sum())
}

struct Split {
    /// Without its dropped high bits.
    group: Group,
    /// Raw and symbol bits.
    left: u32,
    /// Cost of all elements in 1/256 bit.
    bits: u64,
}

fn zero_group(bits: u32) -> Group {
    Group { low: bits, high: 0, raw_bits: 0, sign_plane: false, constant: 0, coder: Coder::None }
}

/// About `size` elements of runs that are not all zero, evenly spread.
fn sample<E: Element>(elements: &[u8], zero: &[bool], zeros: usize, or: &[u64], size: usize) -> Sample {
    let runs = zero.len() - zeros;
    let stride = (runs * RUN / size).max(1);
    let mut values = Vec::with_capacity(runs.div_ceil(stride) * RUN);
    let filled = elements.chunks(RUN * E::BYTES).zip(zero).filter(|(_, z)| !**z);
    for (run, _) in filled.step_by(stride) {
        values.extend(run.chunks_exact(E::BYTES).map(|e| E::load(e).wide()));
    }
    Sample { values, or: or.iter().fold(0, |a, &o| a | o) }
}

/// Removes the bits from `kept` on of all elements that have any.
fn take_patches<E: Element>(elements: &mut [u8], or: &[u64], kept: u32) -> PatchList {
    let mut patches = PatchList::default();
    for (r, run) in elements.chunks_mut(RUN * E::BYTES).enumerate() {
        if or[r] >> kept == 0 {
            continue;
        }
        for (i, e) in run.chunks_exact_mut(E::BYTES).enumerate() {
            let v = E::load(e).wide();
            let high = v >> kept << kept;
            if high != 0 {
                patches.push(r * RUN + i, high);
                E::cut(v ^ high).store(e);
            }
        }
    }
    patches
}

impl GroupedPlan {
    pub(super) fn empty(width: usize, map: Map) -> Self {
        GroupedPlan {
            grouped: Grouped { width, map, patches: None, class_map: None, groups: Vec::new() },
            groups: Vec::new(),
            class_map: None,
            patches: Vec::new(),
            estimate: 0,
        }
    }

    /// A section without groups: all that are not zero are listed.
    pub(super) fn listed(width: usize, map: Map, patches: &mut PatchList) -> Self {
        let mut plan = Self::empty(width, map);
        let float = map == Map::Rotate;
        (plan.grouped.patches, plan.patches) = if float { patches.encode_floats(width) } else { patches.encode(0) };
        let head = plan.grouped.patches.as_ref().map_or(0, Patches::head_len);
        plan.estimate = (8 + head + plan.patches.len()) as u64;
        plan
    }

    fn set_patches(&mut self, patches: &mut PatchList, low: u32) {
        (self.grouped.patches, self.patches) = patches.encode(low);
    }
}
