//! Whether the scales of codes follow from the elements that the codes are computed from, too.

use std::collections::BTreeMap;

use lmc::Result;
use lmc::internals::{LARGEST_CODES, Recipe, read_base, stem};
use lmc_kernels::predict::derived::{Codes, Measure, Number, Scales};
use lmc_kernels::predict::grid::Groups;

use super::changes::Changes;
use super::pieces::Comparison;

/// Elements, and scales, that are looked at together.
const ELEMENTS: u64 = 1 << 20;
const SCALES: usize = 1 << 12;

/// How public quantisers compute a scale from the largest magnitude of its group, the largest code, and the factor that
/// all scales have in common.
const WAYS: [fn(f32, f32, f32) -> f32; 7] = [
    |a, most, factor| a / (most * factor),
    |a, most, factor| (a / most) / factor,
    |a, most, factor| (a / most) * (1.0 / factor),
    |a, most, factor| a * (1.0 / (most * factor)),
    |a, most, factor| 1.0 / ((most * factor) / a),
    // Of elements that are multiplied with their scales.
    |a, most, factor| (most / a) / factor,
    |a, most, factor| 1.0 / ((a / most) * factor),
];

/// The scales of some codes.
pub(crate) struct OfCodes {
    /// What they follow from: which base, and which of its segments.
    pub(crate) place: (usize, usize),
    /// The segments of the file that have them, each with how they differ from what the weights give.
    pub(crate) scales: BTreeMap<usize, Changes>,
}

/// Compares the scales of each segment of the file that has codes, if they are in the file, with what public quantisers make of the weights: one
/// way for all scales of a tensor. Where all weights of a group are 0, so are its codes, whatever the scale, if
/// it is finite.
///
/// # Errors
/// Those of reading the file and its bases.
pub(crate) fn compare(c: &Comparison<'_>) -> Result<BTreeMap<usize, OfCodes>> {
    let mut found = BTreeMap::new();
    for (i, counterpart) in c.counterparts.iter().enumerate() {
        let Some(counterpart) = counterpart else { continue };
        let Some(derived) = counterpart.derived.filter(|d| d.scales(1).is_some_and(|range| range.source == 0)) else {
            continue;
        };
        let Recipe::Codes { codes, groups, scales, .. } = derived.recipe else { continue };
        let at = |offset| c.segments.partition_point(|s| s.end() <= offset);
        let n = c.segments[i].len * codes.of_byte() as u64;
        let read = |element, to: &mut [u8]| {
            read_base(&c.bases[derived.source as usize - 1], derived.offset + element * codes.from.width() as u64, to)
        };
        let largest = largest(codes.from, groups, n, read)?;
        let own = |offset: u64, number: Number| {
            move |scale: usize, to: &mut [u8]| read_base(c.own, offset + (scale * number.width()) as u64, to)
        };
        let most = LARGEST_CODES.iter().find(|l| l.0 == codes.to).map_or(&[][..], |l| l.1);
        let mut all = BTreeMap::new();
        all.insert(at(scales.offset), follow(&codes, most, &largest, own(scales.offset, codes.scales))?);
        if let Some((common, offset)) = common(c, i, codes.factor)? {
            let a = largest.iter().fold(0.0, |a, &b| larger(a, b));
            let of_scales = if codes.scales == Number::E4m3 { 448.0 } else { 1.0 };
            let most: Vec<f32> = most.iter().map(|most| most * of_scales).collect();
            let one = Codes { scales: Number::F32, factor: 1.0, ..codes };
            all.insert(common, follow(&one, &most, &[a], own(offset, Number::F32))?);
        }
        found.insert(i, OfCodes { place: counterpart.place, scales: all });
    }
    Ok(found)
}

/// The segment beside this one that has the factor of all scales, or its inverse, and where it begins.
fn common(c: &Comparison<'_>, codes: usize, factor: f32) -> Result<Option<(usize, u64)>> {
    let of = |i: usize| c.segments[i].name.as_deref().map(stem);
    for (i, s) in c.segments.iter().enumerate().filter(|&(i, s)| factor != 1.0 && s.len == 4 && of(i) == of(codes)) {
        let mut bytes = [0; 4];
        read_base(c.own, s.offset, &mut bytes)?;
        let value = f32::from_le_bytes(bytes);
        if value == factor || 1.0 / value == factor {
            return Ok(Some((i, s.offset)));
        }
    }
    Ok(None)
}

/// The larger of two magnitudes; a NaN is larger than any.
fn larger(a: f32, b: f32) -> f32 {
    if b.to_bits() > a.to_bits() { b } else { a }
}

/// The largest magnitude of each group of `n` elements. `read` fills a buffer with elements from one on.
fn largest(from: Number, groups: Groups, n: u64, read: impl Fn(u64, &mut [u8]) -> Result<()>) -> Result<Vec<f32>> {
    let (width, of_rows) = (from.width(), groups.rows * groups.row);
    let mut largest = vec![0.0; groups.count(n) as usize];
    let mut elements = Vec::new();
    for at in (0..n).step_by(ELEMENTS as usize) {
        let len = ELEMENTS.min(n - at) as usize;
        elements.resize(len * width, 0);
        read(at, &mut elements)?;
        let first = (at / of_rows * groups.in_a_row()) as usize;
        let within = Groups { position: at % of_rows, ..groups };
        for (group, range) in within.of(len) {
            let (to, measure, precision) = (Number::F32, Measure::Divide, Number::F32);
            let one = Scales { from, to, measure, precision, factor: 1.0, group: range.len() };
            let mut a = [0; 4];
            one.predict(&elements[range.start * width..range.end * width], &mut a);
            let known = &mut largest[first + group];
            *known = larger(*known, f32::from_le_bytes(a));
        }
    }
    Ok(largest)
}

/// How scales differ from those that the way gives that explains most of them. `read` fills a buffer with scales from one on.
fn follow(
    codes: &Codes,
    most: &[f32],
    largest: &[f32],
    read: impl Fn(usize, &mut [u8]) -> Result<()>,
) -> Result<Changes> {
    let to = codes.scales;
    let mut recipes = Vec::new();
    for &most in most {
        // Of exponents: the exponent of the largest code counts.
        let exponent = f32::from_bits(most.to_bits() & 0x7f80_0000);
        for most in [most].into_iter().chain((to == Number::E8m0).then_some(exponent)) {
            for way in WAYS {
                for up in [false, true] {
                    let precisions = [Number::F32].into_iter().chain((codes.from != Number::F32).then_some(codes.from));
                    recipes.extend(precisions.map(|precision| (most, way, up, precision, 0u64)));
                }
            }
        }
    }
    let (mut stored, mut given, mut y) = (Vec::new(), Vec::new(), Vec::new());
    for (chunk, largest) in largest.chunks(SCALES).enumerate() {
        stored.resize(largest.len() * to.width(), 0);
        given.resize(stored.len(), 0);
        read(chunk * SCALES, &mut stored)?;
        for (most, way, up, precision, others) in &mut recipes {
            y.clear();
            for &a in largest {
                let s = way(a, *most, codes.factor);
                y.extend((if *up { power_of_two(s) } else { s }).to_le_bytes());
            }
            let rounded = Scales {
                from: Number::F32,
                to,
                measure: Measure::Divide,
                precision: *precision,
                factor: 1.0,
                group: 1,
            };
            rounded.predict(&y, &mut given);
            let each = stored.chunks(to.width()).zip(given.chunks(to.width())).zip(largest);
            let is_other = |((stored, given), a): &((&[u8], &[u8]), &f32)| {
                stored != given && (**a != 0.0 || !is_finite(to, stored))
            };
            *others += each.filter(is_other).count() as u64;
        }
        // One that explains all scales stays to the end.
        let least = recipes.iter().map(|r| r.4).min();
        recipes.retain(|r| Some(r.4) == least);
    }
    let compared = largest.len() as u64;
    let changed = recipes.first().map_or(compared, |r| r.4);
    Ok(Changes { compared, changed, ..Changes::default() })
}

/// Whether a scale is a finite number.
fn is_finite(of: Number, scale: &[u8]) -> bool {
    match of {
        Number::F32 => f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]).is_finite(),
        Number::Bf16 => scale[1] & 0x7f != 0x7f || scale[0] & 0x80 == 0,
        Number::F16 => scale[1] & 0x7c != 0x7c,
        Number::E4m3 => scale[0] & 0x7f != 0x7f,
        // An exponent alone.
        _ => scale[0] != 0xff,
    }
}

/// The least power of two that is not less.
fn power_of_two(y: f32) -> f32 {
    f32::from_bits(y.to_bits().saturating_add(0x7f_ffff) & 0xff80_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_not_less() {
        assert_eq!([1.0, 1.0f32.next_up(), 0.75, 448.0, 3e-3].map(power_of_two), [1.0, 2.0, 1.0, 512.0, 0.00390625]);
        assert_eq!(power_of_two(f32::MAX), f32::INFINITY);
    }

    #[test]
    fn groups_are_found_across_what_is_read_together() {
        // 1500 rows of 1000, in groups of 700 rows and 300 columns.
        let groups = Groups { row: 1000, rows: 700, columns: 300, position: 0 };
        let value = |i: u64| ((i * 7919 % 1_000_003) as f32) * if i.is_multiple_of(3) { -1.0 } else { 1.0 };
        let read = |at: u64, to: &mut [u8]| {
            to.chunks_exact_mut(4).zip(at..).for_each(|(to, i)| to.copy_from_slice(&value(i).to_le_bytes()));
            Ok(())
        };
        let mut expected = [0.0f32; 12];
        for i in 0..1_500_000 {
            let group = (i / 1000 / 700 * 4 + i % 1000 / 300) as usize;
            expected[group] = expected[group].max(value(i).abs());
        }
        assert_eq!(largest(Number::F32, groups, 1_500_000, read).unwrap(), expected);
    }
}
