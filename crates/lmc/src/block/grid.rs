//! Finds grids: elements that are products of few levels and the scales of groups, as dequantised weights are (`docs/format.md` §3.8).
//!
//! Files do not say which format the weights had, or how they were grouped: windows of elements show whether a format is possible, samples of
//! groups which shape they have, and then each group is fitted. What does not fit is left to the residuals.

mod codebook;
mod fit;
mod lattice;
mod shape;
mod values;

use std::cmp::Reverse;
use std::ops::Range;

use codebook::Codebook;
#[cfg(feature = "internals")]
pub use codebook::name_of;
use fit::{Bounded, fit, fit_most};
use lattice::Lattice;
use values::{Value, Values};

use super::Matrix;
use super::plan::{Planner, coding_of};
use super::planned::{ColumnPlan, Elements as Coded};
use super::predictor_choice::PredictionInput;
use crate::cluster::element::{Element, with_element};
use crate::dtype::Dtype;
use crate::entropy::cost;
use crate::format::block_head::{Grid, Method, Operand};
use crate::map::Map;
use crate::predict::Conversion;
use crate::predict::grid::{GridModel, Groups, is_finite};
use crate::predict::job::Streams;

/// A grid, and the elements that it predicts.
pub(super) struct Found {
    pub(super) conversion: Conversion,
    pub(super) levels: Vec<u32>,
    pub(super) groups: Groups,
    /// Elements of four bytes.
    pub(super) scales: Vec<u8>,
    /// The level of each element.
    pub(super) indices: Vec<u8>,
    pub(super) prediction: Vec<u8>,
}

/// Windows of neighbours that are looked at to see whether a format is possible, elements of each, and how many must fit.
const WINDOWS: u64 = 8;
const WINDOW: u64 = 16;
const WINDOWS_FIT: usize = 2;
/// Groups of a shape that are looked at, of which one may be on no grid, and elements of each: at least so many of a group if some of its
/// elements may not be on it.
const SAMPLES: u64 = 8;
const SAMPLE: usize = 96;
const SAMPLE_LEAST: usize = 24;
/// The largest elements that a sample has.
const LARGEST: usize = 6;
/// The part of elements that may not be on it.
const MISFITS: (usize, usize) = (1, 6);
/// Bits of a scale and of an element that is not on the grid, roughly.
const SCALE_BITS: f64 = 20.0;
const MISFIT_BITS: f64 = 12.0;
/// Bits that a format with more levels must save: it explains more that is on no grid.
const LARGER: f64 = 0.25;
/// Bits that smaller groups must save: estimates differ by chance.
const SMALLER: f64 = 0.1;
/// Values of a group that its scale is fitted to at first, those that are added where they do not fit, and how often.
const FITTED: usize = 256;
const ADDED: usize = 32;
const ROUNDS: usize = 6;

/// What elements of a dtype are, as a conversion from F32.
pub(crate) fn conversion_of(dtype: Dtype) -> Option<Conversion> {
    match dtype {
        Dtype::F32 => Some(Conversion::None),
        Dtype::Bf16 => Some(Conversion::NarrowBf16),
        Dtype::F16 => Some(Conversion::NarrowF16),
        _ => None,
    }
}

/// The grid that elements of a matrix are on, all but some.
pub(super) fn find(dtype: Dtype, matrix: &Matrix, bytes: &[u8]) -> Option<Found> {
    let lattice = Lattice(conversion_of(dtype)?);
    let elements: Vec<u32> = with_element!(dtype.coding_width(), E => {
        E::all(bytes).iter().map(|e| E::from_bytes(*e).wide() as u32).collect()
    });
    let column = Elements { lattice, elements: &elements };
    let books: Vec<&Codebook> = codebook::ALL.iter().filter(|book| column.is_possible(book, matrix)).collect();
    if books.is_empty() {
        return None;
    }
    let shapes = shape::candidates(matrix, elements.len() as u64);
    let mut samples: Vec<Option<Vec<Sample>>> = shapes.iter().map(|_| None).collect();
    let mut best: Option<(Cost, &Codebook, Groups, bool)> = None;
    let mut work = Work::new();
    // Some elements of any group may not be on it, but that takes longer to find.
    for is_strict in [true, false] {
        for (groups, samples) in shapes.iter().zip(&mut samples) {
            let least = column.scale_bits(groups);
            if best.as_ref().is_some_and(|b| b.0.besides_levels <= least) {
                continue;
            }
            let samples = samples.get_or_insert_with(|| column.samples(groups, &mut work.values));
            let mut of_shape: Option<(Cost, &Codebook)> = None;
            for book in &books {
                if let Some(cost) = column.cost(book, groups, samples, is_strict)
                    && of_shape.as_ref().is_none_or(|b| cost.all() + LARGER < b.0.all())
                {
                    of_shape = Some((cost, book));
                }
            }
            if let Some((cost, book)) = of_shape
                && best.as_ref().is_none_or(|b| cost.all() + SMALLER < b.0.all())
            {
                best = Some((cost, book, *groups, is_strict));
            }
        }
    }
    let (_, book, groups, is_strict) = best?;
    column.fit_all(book, is_strict, groups, &mut work)
}

/// Bits of an element, roughly. Without functions that machines round differently, such as logarithms.
struct Cost {
    levels: f64,
    /// Scales, and elements that are not on the grid.
    besides_levels: f64,
}

impl Cost {
    fn all(&self) -> f64 {
        self.levels + self.besides_levels
    }
}

/// The values of some elements of a group, and what bounds its scale.
struct Sample {
    values: Vec<Value>,
    bounds: Vec<Bounded>,
}

/// Memory that is used for one group after the other.
struct Work {
    values: Values,
    /// The values in the order in which the scale is fitted to them.
    order: Vec<Value>,
    bounds: Vec<Bounded>,
    /// The level of each value, and whether it gives the value back.
    fits: Vec<(LevelIndex, bool)>,
}

impl Work {
    fn new() -> Self {
        Self { values: Values::new(), order: vec![], bounds: vec![], fits: vec![] }
    }
}

/// The elements of a column.
struct Elements<'a> {
    lattice: Lattice,
    elements: &'a [u32],
}

impl Elements<'_> {
    /// What bounds a scale: a value other than 0 that has neighbours.
    fn bounded(&self, Value { bits, count }: Value) -> Option<Bounded> {
        let magnitude = self.lattice.magnitude(bits);
        (magnitude > 0 && self.lattice.is_inside(magnitude)).then(|| {
            let (lo, hi) = self.lattice.interval(magnitude);
            Bounded { lo, hi, negative: self.lattice.is_negative(bits), count }
        })
    }

    /// Whether some windows of neighbours, along rows or down columns, can have these levels.
    fn is_possible(&self, book: &Codebook, matrix: &Matrix) -> bool {
        let n = self.elements.len() as u64;
        let Matrix { row, position } = *matrix;
        // Windows begin where groups do, and do not go on in the next row.
        let along = |at: u64| {
            let column = (position + at) % row;
            let begin = column.next_multiple_of(WINDOW);
            if begin + WINDOW <= row { at + begin - column } else { at + row - column }
        };
        let down = |at: u64| {
            let of_row = (position + at) / row;
            at + (of_row.next_multiple_of(WINDOW) - of_row) * row
        };
        let fit = |window: Vec<Bounded>, top: &mut usize| {
            2 * window.len() as u64 >= WINDOW && fit(book, &window, top).is_some()
        };
        let is_possible = |begin: &dyn Fn(u64) -> u64, step: u64| {
            let (mut fitting, mut top) = (0, usize::MAX);
            (0..WINDOWS).any(|w| {
                let start = begin(n / WINDOWS * w + w * 37);
                let end = start + step * (WINDOW - 1);
                let window = (start..=end).step_by(step as usize);
                let value = |i: u64| self.bounded(Value { bits: self.elements[i as usize], count: 1 });
                fitting += usize::from(end < n && fit(window.filter_map(value).collect(), &mut top));
                fitting >= WINDOWS_FIT
            })
        };
        row >= WINDOW && is_possible(&along, 1) || row < n / WINDOW && is_possible(&down, row)
    }

    /// Bits of an element that the scales take, roughly.
    fn scale_bits(&self, groups: &Groups) -> f64 {
        let n = self.elements.len() as u64;
        SCALE_BITS * groups.count(n) as f64 / n as f64
    }

    /// Some groups, evenly spread. Of small ones more, so that the estimates of shapes are of as many elements.
    fn samples(&self, groups: &Groups, values: &mut Values) -> Vec<Sample> {
        let n = self.elements.len() as u64;
        let of_group = groups.columns.saturating_mul(groups.rows).min(SAMPLE as u64);
        let count = groups.count(n);
        let step = count.div_ceil(SAMPLES * SAMPLE as u64 / of_group).max(1);
        let sample = |group| {
            let at = self.sample(shape::pieces(groups, group, n), SAMPLE);
            let values = values.collect(self.elements, at.into_iter().map(|i| i..i + 1)).to_vec();
            Sample { bounds: values.iter().filter_map(|&v| self.bounded(v)).collect(), values }
        };
        (step / 2..count).step_by(step as usize).map(sample).collect()
    }

    /// The cost of an element, if nearly all groups of a sample have these levels: all of their elements, or most.
    fn cost(&self, book: &Codebook, groups: &Groups, samples: &[Sample], is_strict: bool) -> Option<Cost> {
        let (mut seen, mut strange, mut misfits, mut top) = (0, 0, 0, usize::MAX);
        let mut used = [[0u32; 256]; 2];
        for Sample { values, bounds } in samples {
            // Any few elements are on some grid.
            if bounds.is_empty() || !is_strict && fit::count(bounds) < SAMPLE_LEAST {
                continue;
            }
            let scales = match fit(book, bounds, &mut top) {
                None if !is_strict => fit_most(book, bounds, &mut top),
                found => found,
            };
            let of_sample: u32 = values.iter().map(|v| v.count).sum();
            seen += of_sample as usize;
            let Some(scales) = scales else {
                (strange, misfits) = (strange + 1, misfits + of_sample as usize);
                if strange * SAMPLES as usize > samples.len() {
                    return None;
                }
                continue;
            };
            let scale = scales.shortest();
            for &Value { bits, count } in values {
                let (level, fits) = self.level(book, scale, bits);
                used[usize::from(level.negative)][usize::from(level.at)] += count;
                misfits += if fits { 0 } else { count as usize };
            }
            if misfits * MISFITS.1 > (seen + SAMPLE) * MISFITS.0 {
                return None;
            }
        }
        if seen == 0 || misfits * MISFITS.1 > seen * MISFITS.0 {
            return None;
        }
        let counts = || used.iter().flatten().filter(|&&count| count > 0);
        let all: u32 = counts().sum();
        let bits: u64 = counts().map(|&n| u64::from(n) * u64::from(cost::log2(all) - cost::log2(n))).sum();
        let levels = bits as f64 / (cost::BIT * u64::from(all).max(1)) as f64;
        let besides_levels = self.scale_bits(groups) + MISFIT_BITS * misfits as f64 / seen as f64;
        Some(Cost { levels, besides_levels })
    }

    /// Some elements of a group, evenly spread, and the largest ones.
    fn sample(&self, pieces: impl Iterator<Item = Range<usize>> + Clone, most: usize) -> Vec<usize> {
        let n: usize = pieces.clone().map(|p| p.len()).sum();
        if n <= most {
            return pieces.flatten().collect();
        }
        let mut largest = [(0, usize::MAX); LARGEST];
        for i in pieces.clone().flatten() {
            let magnitude = self.lattice.magnitude(self.elements[i]);
            if magnitude > largest[0].0 && self.lattice.is_inside(magnitude) {
                largest[0] = (magnitude, i);
                largest.sort_unstable();
            }
        }
        let largest = largest.into_iter().map(|(_, i)| i).filter(|&i| i < usize::MAX);
        pieces.flatten().step_by(n.div_ceil(most - LARGEST)).chain(largest).collect()
    }

    /// The level of an element that is nearest for a scale, and whether their product is the element.
    #[inline(always)]
    fn level(&self, book: &Codebook, scale: u32, bits: u32) -> (LevelIndex, bool) {
        let l = self.lattice;
        let (magnitude, negative) = (l.magnitude(bits), l.is_negative(bits));
        let side = book.side(negative);
        let at = side.nearest(l.value(magnitude) / f32::from_bits(scale));
        let level = side.level(at).to_bits();
        (LevelIndex { at: at as u8, negative }, GridModel::element(l.0, scale, level) == magnitude)
    }

    /// Fits all groups; `is_strict` if nearly all of those of a sample have only elements that are on the grid.
    fn fit_all(&self, book: &Codebook, is_strict: bool, groups: Groups, work: &mut Work) -> Option<Found> {
        let n = self.elements.len();
        let mut scales = vec![0u32; groups.count(n as u64) as usize];
        let mut levels = vec![LevelIndex::default(); n];
        let (mut top, mut last, mut misfits) = (usize::MAX, 1.0f32.to_bits(), 0);
        let mut known = vec![false; scales.len()];
        for group in 0..scales.len() {
            let pieces = shape::pieces(&groups, group as u64, n as u64);
            if pieces.clone().next().is_none() {
                continue;
            }
            let (scale, of_group) = self.fit_group((book, is_strict), pieces, &mut top, last, work, &mut levels);
            (last, misfits) = (scale, misfits + of_group);
            (scales[group], known[group]) = (scale, true);
            // No grid: most groups would be like this one.
            if misfits * 4 > n {
                return None;
            }
        }
        // Groups that the column has no elements of cost least like their neighbours.
        let first = known.iter().position(|&is_known| is_known)?;
        let scale = scales[first];
        scales[..first].fill(scale);
        for i in first + 1..scales.len() {
            if !known[i] {
                scales[i] = scales[i - 1];
            }
        }
        assert!(scales.iter().all(|&scale| is_finite(scale)), "the format has no others");
        Some(self.found(book, groups, scales, &levels))
    }

    /// The scale of a group and the number of elements that it does not give back; fills in the levels of all.
    fn fit_group(
        &self,
        (book, is_strict): (&Codebook, bool),
        group: impl Iterator<Item = Range<usize>> + Clone,
        top: &mut usize,
        last: u32,
        work: &mut Work,
        levels: &mut [LevelIndex],
    ) -> (u32, usize) {
        let Work { values, order, bounds, fits } = work;
        let of_group = values.collect(self.elements, group.clone());
        order.clear();
        order.extend(of_group.iter().filter(|v| self.bounded(**v).is_some()));
        if order.len() > FITTED {
            // The largest ones show what the scale may be.
            order.select_nth_unstable_by_key(LARGEST, |v| (Reverse(self.lattice.magnitude(v.bits)), v.bits));
            order[LARGEST..].sort_unstable_by_key(|v| (Reverse(v.count), v.bits));
        }
        bounds.clear();
        bounds.extend(order.iter().take(FITTED).filter_map(|&v| self.bounded(v)));
        let try_scale = |fits: &mut Vec<_>, scale| {
            fits.clear();
            fits.extend(of_group.iter().map(|v| self.level(book, scale, v.bits)));
        };
        let mut best: Option<(u32, u32)> = None;
        let mut tried = None;
        for _ in 0..ROUNDS {
            let strict = if is_strict { fit(book, bounds, top) } else { None };
            let Some(scales) = strict.or_else(|| fit_most(book, bounds, top)) else { break };
            let scale = scales.shortest();
            try_scale(fits, scale);
            tried = Some(scale);
            let wrong = || of_group.iter().zip(&*fits).filter(|(_, (_, fits))| !fits).map(|(v, _)| v);
            let misfits = wrong().map(|v| v.count).sum();
            if best.is_none_or(|b| misfits < b.1) {
                best = Some((scale, misfits));
            }
            if strict.is_none() || misfits == 0 {
                break;
            }
            // They narrow the scales.
            bounds.extend(wrong().filter_map(|&v| self.bounded(v)).take(ADDED));
        }
        let scale = best.map_or(last, |b| b.0);
        if tried != Some(scale) {
            try_scale(fits, scale);
        }
        let mut misfits = 0;
        values.each(group, |i, value| {
            let (level, fits) = value.map_or_else(|| self.level(book, scale, self.elements[i]), |value| fits[value]);
            levels[i] = level;
            misfits += usize::from(!fits);
        });
        (scale, misfits)
    }

    /// The grid with these scales, and the levels that occur.
    fn found(&self, book: &Codebook, groups: Groups, scales: Vec<u32>, levels: &[LevelIndex]) -> Found {
        // By magnitude: neighbours are about as frequent, so that the low bits of indices can be raw.
        let mut used = [[0u32; 256]; 2];
        levels.iter().for_each(|level| used[usize::from(level.negative)][usize::from(level.at)] += 1);
        let mut all: Vec<(u32, bool, usize)> = Vec::new();
        for negative in [true, false] {
            let side = book.side(negative);
            let of_side = (0..=side.levels.len()).filter(|&at| used[usize::from(negative)][at] > 0);
            all.extend(of_side.map(|at| (used[usize::from(negative)][at], negative, at)));
        }
        if all.len() > 256 {
            // The rarest are left out.
            all.sort_unstable_by(|a, b| b.cmp(a));
            all.truncate(256);
        }
        let value = |&(_, negative, at): &(u32, bool, usize)| {
            let level = book.side(negative).level(at);
            if negative { -level } else { level }
        };
        all.sort_by(|a, b| value(a).abs().total_cmp(&value(b).abs()).then(a.1.cmp(&b.1)));
        let mut index = [[0u8; 256]; 2];
        for (i, &(_, negative, at)) in all.iter().enumerate() {
            index[usize::from(negative)][at] = i as u8;
        }
        let indices: Vec<u8> =
            levels.iter().map(|level| index[usize::from(level.negative)][usize::from(level.at)]).collect();
        let levels: Vec<u32> = all.iter().map(|level| value(level).to_bits()).collect();
        let scales: Vec<u8> = scales.iter().flat_map(|s| s.to_le_bytes()).collect();
        let conversion = self.lattice.0;
        let model = GridModel { conversion, levels: &levels, groups, scales: &scales, indices: &indices };
        let mut prediction = vec![0; self.elements.len() * conversion.width_of_f32()];
        model.predict(&mut prediction);
        Found { conversion, levels, groups, scales, indices, prediction }
    }
}

/// The level of an element: its index among those of its sign.
#[derive(Clone, Copy, Default)]
struct LevelIndex {
    at: u8,
    negative: bool,
}

impl Planner {
    /// A plan of elements that a grid predicts.
    ///
    /// # Errors
    /// `streams`, if it promises no gain.
    pub(super) fn plan_grid(
        &mut self,
        dtype: Dtype,
        bytes: &[u8],
        found: Found,
        streams: Streams,
    ) -> Result<ColumnPlan, Streams> {
        let (width, map) = coding_of(dtype);
        let Found { conversion, levels, groups, scales, indices, prediction } = found;
        let input = PredictionInput { prediction: &prediction, conversion, map };
        let (mut plan, _) = self.plan_predicted(width, bytes, &input, streams)?;
        let of_scales = self.plan(4, Map::Identity, &scales);
        let of_indices = self.plan(1, Map::Identity, &indices);
        plan.estimate += 4 * levels.len() as u64 + of_scales.estimate + of_indices.estimate;
        let Method::Predicted(predicted) = &mut plan.method else { unreachable!("it has predictions") };
        predicted.operand = Operand::Grid(Box::new(Grid {
            conversion,
            levels,
            groups,
            scales: of_scales.stream.clone(),
            indices: of_indices.stream.clone(),
        }));
        let items = of_scales.body_of(|| Coded::Scales).chain(of_indices.body_of(|| Coded::Indices));
        plan.body.splice(..0, items);
        plan.grid = [scales, indices];
        Ok(plan)
    }
}
