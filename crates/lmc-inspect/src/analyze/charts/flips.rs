//! Which bits change: a heat map for each dtype.

use std::collections::BTreeMap;

use lmc::Dtype;

use crate::analyze::fields::Fields;
use crate::analyze::result::{Analysis, Tensor};
use crate::analyze::sums::Moves;
use crate::kind::Kind;
use crate::page::chart::{HeatMap, HeatRow, SHADES};
use crate::text::{name, pattern, share};

/// Rows of a heat map at most.
const ROWS: usize = 40;
/// Heat maps at most.
const MAPS: usize = 6;

/// Bits of sign and exponent, where they are known.
fn fields(dtype: &str) -> (u32, u32) {
    let fields = dtype.parse::<Dtype>().ok().map(|d| Fields::of(Some(d))).filter(Fields::is_float);
    fields.map_or((0, 0), |f| (f.sign, f.exponent))
}

fn row(name: String, flips: &[u64], compared: u64) -> HeatRow {
    let rates: Vec<f64> = flips.iter().map(|&n| n as f64 / compared.max(1) as f64).collect();
    let most =
        rates.iter().enumerate().fold((0, 0.0), |most, (bit, &rate)| if rate > most.1 { (bit, rate) } else { most });
    let title = match rates.iter().rposition(|&rate| rate > 0.0) {
        None => "no bit changed".to_owned(),
        Some(top) => format!("bit {} most: {}; highest that changed: {top}", most.0, share(most.1)),
    };
    let shade = |&rate: &f64| SHADES.iter().rposition(|&s| rate >= s).or((rate > 0.0).then_some(0));
    HeatRow { name, note: share(most.1), title, cells: rates.iter().rev().map(shade).collect() }
}

/// Heat maps of the bits that changed between neighbours, by dtype, the largest first.
pub(super) fn maps(a: &Analysis) -> Vec<HeatMap> {
    let mut by_dtype: BTreeMap<&str, u64> = BTreeMap::new();
    for g in a.changes.iter().filter(|g| g.kind != Kind::Other && g.change.changed > 0) {
        *by_dtype.entry(&g.dtype).or_default() += g.change.raw_size;
    }
    let mut dtypes: Vec<_> = by_dtype.into_iter().collect();
    dtypes.sort_by_key(|&(dtype, size)| (std::cmp::Reverse(size), dtype));
    let maps = dtypes.into_iter().take(MAPS).map(|(dtype, _)| {
        let (rows, grouped) = rows(a, dtype);
        map(format!("{dtype}: {grouped} × bit"), fields(dtype), rows)
    });
    maps.filter(|map| map.columns > 0).collect()
}

/// A map of rows of bits, the highest bit first.
fn map(title: String, (sign, exponent): (u32, u32), rows: Vec<HeatRow>) -> HeatMap {
    let columns = rows.iter().map(|r| r.cells.len()).max().unwrap_or(0);
    let mantissa = (columns as u32).saturating_sub(sign + exponent);
    let are_fields = sign > 0 && mantissa > 0;
    let fields = [("exponent", sign, exponent), ("mantissa", sign + exponent, mantissa)];
    let middle = |(name, first, width): (&str, u32, u32)| (f64::from(first) + f64::from(width) / 2.0, name.to_owned());
    let every = if columns > 16 { 4 } else { 2 };
    let labelled = (0..columns).filter(|c| (columns - 1 - c).is_multiple_of(every) || *c == 0);
    let from = |(i, from): (usize, &f64)| match i {
        0 => "above 0".to_owned(),
        _ => format!("{} and more", share(*from).replace(".0 %", " %")),
    };
    HeatMap {
        title,
        about: "The part of all elements in which a bit is not what it was one checkpoint before, over all pairs of \
                neighbours; behind each row its highest rate. Half is what chance gives. Low bits change often, exponents \
                seldom; a sign that changes often is a weight near zero."
            .to_owned(),
        columns,
        labels: labelled.map(|c| (c as f64 + 0.5, (columns - 1 - c).to_string())).collect(),
        heads: fields.into_iter().filter(|_| are_fields).map(middle).collect(),
        splits: [sign, sign + exponent].into_iter().filter(|_| are_fields).map(|at| at as usize).collect(),
        shades: SHADES.iter().enumerate().map(from).collect(),
        rows,
    }
}

/// A row for each tensor of a dtype; for each pattern of names where there are many; for each kind where there are too many of these.
fn rows(a: &Analysis, dtype: &str) -> (Vec<HeatRow>, &'static str) {
    let bits = a.changes.iter().filter(|g| g.dtype == dtype).map(|g| g.flips.len()).max().unwrap_or(0);
    let has_bits = |t: &&Tensor| t.dtype == dtype && t.change.as_ref().is_some_and(|c| c.flips.len() == bits);
    let of_dtype: Vec<&Tensor> = a.tensors.iter().filter(has_bits).collect();
    let sums = |key: &dyn Fn(&Tensor) -> (Kind, String)| {
        let mut sums: BTreeMap<(Kind, String), Moves> = BTreeMap::new();
        for t in &of_dtype {
            if let Some(c) = &t.change {
                let sum = sums.entry(key(t)).or_default();
                sum.add_flips(&c.flips);
                sum.changes.compared += c.compared;
            }
        }
        sums
    };
    if of_dtype.len() <= ROWS {
        let row = |t: &&Tensor| t.change.as_ref().map(|c| row(name(&t.name), &c.flips, c.compared));
        return (of_dtype.iter().filter_map(row).collect(), "tensor");
    }
    let by_pattern = sums(&|t| (t.kind, pattern(&name(&t.name))));
    if by_pattern.len() <= ROWS {
        let rows = by_pattern.into_iter().map(|((_, name), sum)| row(name, &sum.flips, sum.changes.compared));
        return (rows.collect(), "tensors of the same name in all layers");
    }
    // Tensors that are not listed are counted in groups.
    let groups = a.changes.iter().filter(|g| g.dtype == dtype && g.change.compared > 0);
    let rows = groups.map(|g| row(g.kind.name().to_owned(), &g.flips, g.change.compared));
    (rows.collect(), "tensors of a kind")
}
