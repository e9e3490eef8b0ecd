//! Finds grids: elements that are products of few levels and the scales of groups, perhaps with offsets, as dequantised weights are
//! (`docs/format.md` §3.8).
//!
//! Files do not say which format the weights had, or how they were grouped. Windows of elements show whether a format
//! is possible; samples of groups show the shape of the groups; then each group is fitted. Residuals code the elements
//! that do not fit.

use std::cmp::Reverse;
use std::ops::Range;

use super::affine::AffineFit;
use super::codebook::Codebook;
use super::fit::{Bounded, fit, fit_most};
use super::form::{Form, LevelIndex};
use super::lattice::Lattice;
use super::values::{Value, Values};

use super::{fit, shape};
use crate::block::Matrix;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::entropy::cost;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::grid::{GridModel, Groups, Terms, is_finite};
use lmc_layout::dtype::Dtype;

/// A grid, and the elements that it predicts.
pub(in crate::block) struct Found {
    pub(in crate::block) conversion: Conversion,
    pub(in crate::block) levels: Vec<u32>,
    pub(in crate::block) groups: Groups,
    /// Elements of four bytes.
    pub(in crate::block) scales: Vec<u8>,
    /// The same, or none.
    pub(in crate::block) offsets: Vec<u8>,
    /// The level of each element.
    pub(in crate::block) indices: Vec<u8>,
    pub(in crate::block) prediction: Vec<u8>,
}

/// Windows of neighbours that show whether a format is possible: their number, the elements of each, and how many must
/// fit.
const WINDOWS: u64 = 8;
const WINDOW: u64 = 16;
const WINDOWS_FIT: usize = 2;
/// Groups that are sampled for a shape (one may be on no grid), the elements of each, and the least elements of a
/// sample that counts if some may be off the grid.
const SAMPLES: u64 = 8;
const SAMPLE: usize = 96;
const SAMPLE_LEAST: usize = 24;
/// The largest elements that a sample has.
const LARGEST: usize = 6;
/// The share of elements that may be off the grid.
const MISFITS: (usize, usize) = (1, 6);
/// Of windows and samples, how unlikely it is that values on no grid have an offset and a scale: any few do.
const EVIDENCE: i32 = 12;
/// Bits of a scale or an offset, and of an element that is not on the grid, roughly.
const SCALE_BITS: f64 = 20.0;
const MISFIT_BITS: f64 = 12.0;
/// Bits that a format with more levels must save: it fits more elements by chance.
const LARGER: f64 = 0.25;
/// Bits that smaller groups must save: estimates differ by chance.
const SMALLER: f64 = 0.1;
/// Values of a group that its scale is fitted to at first, those that are added where they do not fit, and how often.
const FITTED: usize = 256;
const ADDED: usize = 32;
const ROUNDS: usize = 6;
/// The scale of groups that may have any, before there is another.
const ONE: u32 = 1.0f32.to_bits();

/// The conversion from F32 that gives elements of a dtype.
pub(crate) fn conversion_of(dtype: Dtype) -> Option<Conversion> {
    match dtype {
        Dtype::F32 => Some(Conversion::None),
        Dtype::Bf16 => Some(Conversion::NarrowBf16),
        Dtype::F16 => Some(Conversion::NarrowF16),
        _ => None,
    }
}

/// The grid that elements of a matrix are on, all but some.
pub(in crate::block) fn find(dtype: Dtype, matrix: &Matrix, bytes: &[u8]) -> Option<Found> {
    let lattice = Lattice(conversion_of(dtype)?);
    let elements: Vec<u32> = with_element!(dtype.coding_width(), E => {
        E::all(bytes).iter().map(|e| E::from_bytes(*e).wide() as u32).collect()
    });
    let column = Elements { lattice, elements: &elements };
    let mut work = Work::new();
    let forms: Vec<Form> = Form::all().filter(|&form| column.is_possible(form, matrix, &mut work)).collect();
    if forms.is_empty() {
        return None;
    }
    let shapes = shape::candidates(matrix, elements.len() as u64);
    let mut samples: Vec<Option<Vec<Sample>>> = shapes.iter().map(|_| None).collect();
    let mut best: Option<(Cost, Form, Groups, bool)> = None;
    // Some elements of any group may not be on it, but that takes longer to find.
    for is_strict in [true, false] {
        for (groups, samples) in shapes.iter().zip(&mut samples) {
            let least = column.scale_bits(groups);
            if best.as_ref().is_some_and(|b| b.0.besides_levels <= least) {
                continue;
            }
            let samples = samples.get_or_insert_with(|| column.samples(groups, &mut work.values));
            let mut of_shape: Option<(Cost, Form)> = None;
            for &form in &forms {
                if let Some(cost) = column.cost(form, groups, samples, is_strict, &mut work.affine)
                    && of_shape.as_ref().is_none_or(|b| cost.all() + LARGER < b.0.all())
                {
                    of_shape = Some((cost, form));
                }
            }
            if let Some((cost, form)) = of_shape
                && best.as_ref().is_none_or(|b| cost.all() + SMALLER < b.0.all())
            {
                best = Some((cost, form, *groups, is_strict));
            }
        }
    }
    let (_, form, groups, is_strict) = best?;
    column.fit_all(form, is_strict, groups, &mut work)
}

/// Bits of an element, roughly. Without functions that machines round differently, such as logarithms.
struct Cost {
    levels: f64,
    /// Scales and offsets, and elements that are not on the grid.
    besides_levels: f64,
}

impl Cost {
    fn all(&self) -> f64 {
        self.levels + self.besides_levels
    }
}

/// The values of some elements of a group, and the bounds that they set on its scale.
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
    affine: AffineFit,
    /// The level of each value, and whether it gives the value back.
    fits: Vec<(LevelIndex, bool)>,
}

impl Work {
    fn new() -> Self {
        Self { values: Values::new(), order: vec![], bounds: vec![], affine: AffineFit::default(), fits: vec![] }
    }
}

/// The elements of a column.
struct Elements<'a> {
    lattice: Lattice,
    elements: &'a [u32],
}

impl Elements<'_> {
    /// The bounds that a value sets on a scale: it must not be 0, and must have neighbours.
    fn bounded(&self, Value { bits, count }: Value) -> Option<Bounded> {
        let magnitude = self.lattice.magnitude(bits);
        (magnitude > 0 && self.lattice.is_inside(magnitude)).then(|| {
            let (lo, hi) = self.lattice.interval(magnitude);
            Bounded { lo, hi, negative: self.lattice.is_negative(bits), count }
        })
    }

    /// Whether some windows of neighbours, along rows or down columns, can have this form.
    fn is_possible(&self, form: Form, matrix: &Matrix, work: &mut Work) -> bool {
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
        let mut fits = |window: std::iter::StepBy<std::ops::RangeInclusive<u64>>, top: &mut usize| match form {
            Form::Scaled(book) => {
                let value = |i: u64| self.bounded(Value { bits: self.elements[i as usize], count: 1 });
                let window: Vec<Bounded> = window.filter_map(value).collect();
                2 * window.len() as u64 >= WINDOW && fit(book, &window, top).is_some()
            }
            Form::Affine => {
                let values = work.values.collect(self.elements, window.map(|i| i as usize..i as usize + 1));
                work.affine.fit(self.lattice, values, ONE).is_some_and(|found| found.evidence >= EVIDENCE)
            }
        };
        let mut is_possible = |begin: &dyn Fn(u64) -> u64, step: u64| {
            let (mut fitting, mut top) = (0, usize::MAX);
            (0..WINDOWS).any(|w| {
                let start = begin(n / WINDOWS * w + w * 37);
                let end = start + step * (WINDOW - 1);
                fitting += usize::from(end < n && fits((start..=end).step_by(step as usize), &mut top));
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

    /// The cost of an element, if nearly all groups of a sample have this form: all of their elements, or most.
    fn cost(
        &self,
        form: Form,
        groups: &Groups,
        samples: &[Sample],
        is_strict: bool,
        affine: &mut AffineFit,
    ) -> Option<Cost> {
        let (mut seen, mut strange, mut misfits, mut top) = (0, 0, 0, usize::MAX);
        let mut used = [[0u32; 256]; 2];
        for Sample { values, bounds } in samples {
            // Any few elements are on some grid.
            if bounds.is_empty() || !is_strict && fit::count(bounds) < SAMPLE_LEAST {
                continue;
            }
            let terms = match form {
                Form::Scaled(book) => match fit(book, bounds, &mut top) {
                    None if !is_strict => fit_most(book, bounds, &mut top),
                    found => found,
                }
                .map(|scales| Terms { scale: scales.shortest(), offset: None }),
                Form::Affine => match affine.fit(self.lattice, values, ONE) {
                    Some(found) if found.evidence < EVIDENCE => continue,
                    found => found.map(|found| found.terms),
                },
            };
            let of_sample: u32 = values.iter().map(|v| v.count).sum();
            seen += of_sample as usize;
            let Some(terms) = terms else {
                (strange, misfits) = (strange + 1, misfits + of_sample as usize);
                if strange * SAMPLES as usize > samples.len() {
                    return None;
                }
                continue;
            };
            for &Value { bits, count } in values {
                let (level, fits) = form.level(self.lattice, terms, bits);
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
        let besides_levels = form.terms() as f64 * self.scale_bits(groups) + MISFIT_BITS * misfits as f64 / seen as f64;
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

    /// Fits all groups; `is_strict` if nearly all of those of a sample have only elements that are on the grid.
    fn fit_all(&self, form: Form, is_strict: bool, groups: Groups, work: &mut Work) -> Option<Found> {
        let n = self.elements.len();
        let mut last = Terms { scale: ONE, offset: matches!(form, Form::Affine).then_some(0) };
        let mut terms = vec![last; groups.count(n as u64) as usize];
        let mut levels = vec![LevelIndex::default(); n];
        let (mut top, mut misfits) = (usize::MAX, 0);
        let mut known = vec![false; terms.len()];
        for group in 0..terms.len() {
            let pieces = shape::pieces(&groups, group as u64, n as u64);
            if pieces.clone().next().is_none() {
                continue;
            }
            let of_group;
            (last, of_group) = match form {
                Form::Scaled(book) => self.fit_scaled((book, is_strict), pieces, &mut top, last, work, &mut levels),
                Form::Affine => self.fit_affine(pieces, last, work, &mut levels),
            };
            misfits += of_group;
            (terms[group], known[group]) = (last, true);
            // No grid: most groups would be like this one.
            if misfits * 4 > n {
                return None;
            }
        }
        // Groups that the column has no elements of cost least like their neighbours.
        let first = known.iter().position(|&is_known| is_known)?;
        let of_first = terms[first];
        terms[..first].fill(of_first);
        for i in first + 1..terms.len() {
            if !known[i] {
                terms[i] = terms[i - 1];
            }
        }
        Some(self.found(form, groups, &terms, &levels))
    }

    /// The terms of a group and the number of elements that they do not give back; fills in the levels of all.
    fn fit_affine(
        &self,
        group: impl Iterator<Item = Range<usize>> + Clone,
        last: Terms,
        work: &mut Work,
        levels: &mut [LevelIndex],
    ) -> (Terms, usize) {
        let Work { values, affine, fits, .. } = work;
        let of_group = values.collect(self.elements, group.clone());
        let terms = affine.fit(self.lattice, of_group, last.scale).map_or(last, |found| found.terms);
        fits.clear();
        fits.extend(of_group.iter().map(|v| Form::Affine.level(self.lattice, terms, v.bits)));
        (terms, self.set_levels(Form::Affine, terms, group, (values, fits), levels))
    }

    /// Fills in the levels of a group's elements, those of its values first; returns how many are not on the grid.
    fn set_levels(
        &self,
        form: Form,
        terms: Terms,
        group: impl Iterator<Item = Range<usize>>,
        (values, fits): (&Values, &[(LevelIndex, bool)]),
        levels: &mut [LevelIndex],
    ) -> usize {
        let mut misfits = 0;
        values.each(group, |i, value| {
            let (level, fits) =
                value.map_or_else(|| form.level(self.lattice, terms, self.elements[i]), |value| fits[value]);
            levels[i] = level;
            misfits += usize::from(!fits);
        });
        misfits
    }

    /// The same for a scale without an offset.
    fn fit_scaled(
        &self,
        (book, is_strict): (&'static Codebook, bool),
        group: impl Iterator<Item = Range<usize>> + Clone,
        top: &mut usize,
        last: Terms,
        work: &mut Work,
        levels: &mut [LevelIndex],
    ) -> (Terms, usize) {
        let Work { values, order, bounds, fits, .. } = work;
        let form = Form::Scaled(book);
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
        let try_terms = |fits: &mut Vec<_>, terms| {
            fits.clear();
            fits.extend(of_group.iter().map(|v| form.level(self.lattice, terms, v.bits)));
        };
        let mut best: Option<(Terms, u32)> = None;
        let mut tried = None;
        for _ in 0..ROUNDS {
            let strict = if is_strict { fit(book, bounds, top) } else { None };
            let Some(scales) = strict.or_else(|| fit_most(book, bounds, top)) else { break };
            let terms = Terms { scale: scales.shortest(), offset: None };
            try_terms(fits, terms);
            tried = Some(terms);
            let wrong = || of_group.iter().zip(&*fits).filter(|(_, (_, fits))| !fits).map(|(v, _)| v);
            let misfits = wrong().map(|v| v.count).sum();
            if best.is_none_or(|b| misfits < b.1) {
                best = Some((terms, misfits));
            }
            if strict.is_none() || misfits == 0 {
                break;
            }
            // They narrow the scales.
            bounds.extend(wrong().filter_map(|&v| self.bounded(v)).take(ADDED));
        }
        let terms = best.map_or(last, |b| b.0);
        if tried != Some(terms) {
            try_terms(fits, terms);
        }
        (terms, self.set_levels(form, terms, group, (values, fits), levels))
    }

    /// The grid with these terms, and the levels that occur.
    fn found(&self, form: Form, groups: Groups, terms: &[Terms], levels: &[LevelIndex]) -> Found {
        assert!(terms.iter().all(|t| is_finite(t.scale) && t.offset.is_none_or(is_finite)), "the format has no others");
        let mut used = [[0u32; 256]; 2];
        levels.iter().for_each(|level| used[usize::from(level.negative)][usize::from(level.at)] += 1);
        let mut all: Vec<(u32, LevelIndex)> = Vec::new();
        for negative in [true, false] {
            let of_side = used[usize::from(negative)].iter().enumerate().filter(|(_, used)| **used > 0);
            all.extend(of_side.map(|(at, &used)| (used, LevelIndex { at: at as u8, negative })));
        }
        if all.len() > 256 {
            // The rarest are left out.
            all.sort_unstable_by_key(|&(used, level)| Reverse((used, level.negative, level.at)));
            all.truncate(256);
        }
        // By magnitude: neighbours are about as frequent, so that the low bits of indices can be raw.
        let value = |level| form.value(level);
        all.sort_by(|(_, a), (_, b)| value(*a).abs().total_cmp(&value(*b).abs()).then(a.negative.cmp(&b.negative)));
        let mut index = [[0u8; 256]; 2];
        for (i, (_, level)) in all.iter().enumerate() {
            index[usize::from(level.negative)][usize::from(level.at)] = i as u8;
        }
        let indices: Vec<u8> =
            levels.iter().map(|level| index[usize::from(level.negative)][usize::from(level.at)]).collect();
        let levels: Vec<u32> = all.iter().map(|(_, level)| value(*level).to_bits()).collect();
        let scales: Vec<u8> = terms.iter().flat_map(|t| t.scale.to_le_bytes()).collect();
        let offsets: Vec<u8> = terms.iter().filter_map(|t| t.offset).flat_map(u32::to_le_bytes).collect();
        let conversion = self.lattice.0;
        let model =
            GridModel { conversion, levels: &levels, groups, scales: &scales, offsets: &offsets, indices: &indices };
        let mut prediction = vec![0; self.elements.len() * conversion.width_of_f32()];
        model.predict(&mut prediction);
        Found { conversion, levels, groups, scales, offsets, indices, prediction }
    }
}
