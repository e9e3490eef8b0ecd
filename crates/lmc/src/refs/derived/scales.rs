//! The scales of codes: tensors beside them, and what these follow from.

use std::collections::BTreeMap;

use super::trial::{Outcome, Trial};
use crate::block::{DerivedFrom, Recipe, Reference};
use crate::refs::base::Base;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::derived::{Codes, Measure, Number, Scales, Scaling};
use lmc_kernels::predict::grid::Groups;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::segment::Segment;

/// Rows and columns of groups that formats have.
const SIDES: [u64; 7] = [128, 32, 16, 64, 256, 512, 1024];
/// Most bytes that one scale is computed from.
const MOST_OF_ONE: u64 = 1 << 16;
/// What the largest magnitude is divided by: the largest code, or half of the range of codes.
pub const LARGEST_CODES: [(Number, &[f32]); 4] = [
    (Number::I8, &[127.0, 127.5, 128.0]),
    (Number::E4m3, &[448.0, 240.0]),
    (Number::E5m2, &[57344.0]),
    (Number::F4, &[6.0, 4.0]),
];

/// The tensors that may be scales, by the names of what they belong to.
pub(super) struct OfCodes<'s> {
    segments: &'s [Segment],
    by_stem: BTreeMap<&'s str, Vec<usize>>,
}

impl<'s> OfCodes<'s> {
    pub(super) fn new(segments: &'s [Segment]) -> Self {
        let mut by_stem: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, s) in segments.iter().enumerate() {
            if let Some(name) = s.name.as_deref().filter(|_| number_of_scales(s).is_some()) {
                by_stem.entry(stem(name)).or_default().push(i);
            }
        }
        Self { segments, by_stem }
    }

    /// The tensor that begins at this offset.
    pub(super) fn segment_at(&self, offset: u64) -> Option<usize> {
        let i = self.segments.partition_point(|s| s.offset < offset);
        self.segments.get(i).filter(|s| s.offset == offset).map(|_| i)
    }

    /// The recipes for codes of a type, of which a tensor has `n`, with the scales beside it. What they are made from is to be set.
    pub(super) fn of(
        &self,
        segment: &Segment,
        to: Number,
        n: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Vec<Recipe> {
        if !LARGEST_CODES.iter().any(|l| l.0 == to) {
            return vec![];
        }
        let Some(beside) = segment.name.as_deref().and_then(|name| self.by_stem.get(stem(name))) else { return vec![] };
        // A scale of scales.
        let common = beside.iter().find_map(|&i| value(&self.segments[i], read)).filter(|f| f.is_finite() && *f != 0.0);
        let mut recipes = vec![];
        for &i in beside {
            let scales = &self.segments[i];
            let (Some(number), Some(groups)) = (number_of_scales(scales), groups(segment, to, n, scales)) else {
                continue;
            };
            let scales = Reference { source: 0, offset: scales.offset, conversion: Conversion::None };
            let factors = [
                Some(1.0),
                common.filter(|_| groups.count(n) > 1),
                common.filter(|_| groups.count(n) > 1).map(|f| 1.0 / f),
            ];
            for factor in factors.into_iter().flatten().filter(|f| f.is_finite()) {
                for precision in Number::FLOATS.into_iter().rev() {
                    for scaling in Scaling::ALL {
                        let codes = Codes { from: Number::F32, to, scaling, precision, scales: number, factor };
                        recipes.push(Recipe::Codes { codes, groups, scales, in_column: false });
                    }
                }
            }
        }
        recipes
    }
}

/// What scales a tensor may have.
fn number_of_scales(segment: &Segment) -> Option<Number> {
    match segment.dtype? {
        // Exponents.
        Dtype::U8 => Some(Number::E8m0),
        dtype => Number::of(dtype).filter(|n| crate::block::methods::predicted::derived::SCALES.contains(n)),
    }
}

/// The value of a tensor of one binary32.
fn value(segment: &Segment, read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>) -> Option<f32> {
    if segment.dtype != Some(Dtype::F32) || segment.len != 4 {
        return None;
    }
    let mut bytes = [0; 4];
    read(segment.offset, &mut bytes).ok()?;
    Some(f32::from_le_bytes(bytes))
}

/// The groups of the `n` codes of a tensor that have these scales; `None` if there are too many or too few.
fn groups(codes: &Segment, to: Number, n: u64, scales: &Segment) -> Option<Groups> {
    let count = scales.len / number_of_scales(scales)?.width() as u64;
    let packed = if to == Number::F4 && codes.dtype != Some(Dtype::F4) { 2 } else { 1 };
    let row = codes.shape.last()? * packed;
    if row == 0 || count == 0 || count >= n || !n.is_multiple_of(row) {
        return None;
    }
    let rows = n / row;
    let last = scales.shape.last().copied().unwrap_or(1).max(1);
    // The side of groups of which so many cover a length.
    let side = |len: u64, count: u64| match count {
        _ if count == len => Some(1),
        1 => Some(len),
        _ => SIDES.into_iter().chain([len.div_ceil(count)]).find(|side| len.div_ceil(*side) == count),
    };
    let of = |rows: u64, columns: u64| Groups { row, rows, columns, position: 0 };
    let groups = match count {
        1 => of(rows, row),
        _ if count == rows => of(1, row),
        _ if count == row && last == row => of(rows, 1),
        _ => of(side(rows, count / last)?, side(row, last)?),
    };
    (groups.are_valid(n) && groups.count(n) == count).then_some(groups)
}

/// Codes whose scales are to be found.
pub(super) struct Scaled {
    from: DerivedFrom,
    codes: Codes,
    groups: Groups,
    scales: Reference,
}

impl Scaled {
    /// A tensor with scales, if it is one.
    pub(super) fn of(from: DerivedFrom) -> Option<Self> {
        let Recipe::Codes { codes, groups, scales, .. } = from.recipe else { return None };
        Some(Self { from, codes, groups, scales })
    }

    pub(super) fn scales_at(&self) -> u64 {
        self.scales.offset
    }

    /// How the scales, which are segment `i`, follow from the elements: where each is of consecutive ones.
    pub(super) fn find(
        &self,
        segments: &[Segment],
        i: usize,
        bases: &[&Base<'_>],
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Option<DerivedFrom> {
        let Groups { row, rows, columns, .. } = self.groups;
        let Codes { from, to, scales, factor, .. } = self.codes;
        let group = columns * rows;
        let consecutive = rows == 1 && row.is_multiple_of(columns) || columns == row;
        if !consecutive || group * from.width() as u64 > MOST_OF_ONE {
            return None;
        }
        let mut trial = Trial::new(&segments[i], bases, read);
        let mut best: Option<(u64, DerivedFrom)> = None;
        let largest = LARGEST_CODES.iter().find(|l| l.0 == to).map_or(&[][..], |l| l.1);
        for (measure, by) in largest.iter().flat_map(|&by| measures(by, factor, scales)) {
            for precision in Number::FLOATS.into_iter().rev().filter(|&p| p == Number::F32 || p == from) {
                let recipe =
                    Recipe::Scales(Scales { from, to: scales, measure, precision, factor: by, group: group as usize });
                let from = DerivedFrom { recipe, ..self.from };
                match trial.compare(&from) {
                    Outcome::Same => return Some(from),
                    Outcome::Near(apart) if best.is_none_or(|b| apart < b.0) => best = Some((apart, from)),
                    _ => {}
                }
            }
        }
        best.map(|b| b.1)
    }
}

/// How a scale may follow from the largest magnitude of its group, if the largest code is `by` and scales have the factor in common.
fn measures(by: f32, factor: f32, scales: Number) -> Vec<(Measure, f32)> {
    if scales == Number::E8m0 {
        // The exponent of the largest magnitude less that of the largest code.
        let exponent = f32::from_bits(by.to_bits() & 0x7f80_0000);
        return vec![(Measure::Divide, exponent), (Measure::Divide, by)];
    }
    let all = [
        (Measure::Divide, by * factor),
        (Measure::Inverse, by * factor),
        (Measure::Multiply, 1.0 / (by * factor)),
        (Measure::Multiply, by / factor),
        (Measure::Divide, factor / by),
    ];
    all.into_iter().filter(|m| m.1.is_finite() && m.1 != 0.0).collect()
}

/// A name without its last part.
pub fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
