//! Which bits change: a heat map for each dtype.

use std::collections::BTreeMap;

use lmc::Dtype;

use crate::analyze::fields::Fields;
use crate::analyze::result::{Analysis, Tensor};
use crate::analyze::sums::Moves;
use crate::kind::Kind;
use crate::page::chart::{HeatMap, HeatRow};
use crate::text::{name, pattern};

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
    HeatRow { name, rates: flips.iter().map(|&n| n as f64 / compared.max(1) as f64).collect() }
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
        HeatMap { title: format!("{dtype}: {grouped} × bit"), fields: fields(dtype), rows }
    });
    maps.filter(|map| map.bits() > 0).collect()
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
