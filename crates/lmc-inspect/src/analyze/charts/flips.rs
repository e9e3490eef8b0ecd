//! Which bits change: a heat map for each dtype.

use std::collections::BTreeMap;

use crate::analyze::result::{Analysis, Tensor};
use crate::kind::Kind;
use crate::page::chart::{HeatMap, HeatRow};
use crate::spelled::{name, pattern};

/// Rows of a heat map at most.
const ROWS: usize = 40;
/// Heat maps at most.
const MAPS: usize = 6;

/// Bits of sign and exponent, where they are known.
fn fields(dtype: &str) -> (u32, u32) {
    match dtype {
        "F64" => (1, 11),
        "F32" | "C64" | "BF16" => (1, 8),
        "F16" | "F8_E5M2" => (1, 5),
        "F8_E4M3" => (1, 4),
        _ => (0, 0),
    }
}

/// Flips added up, and the elements that were compared.
#[derive(Default)]
struct Sum {
    flips: Vec<u64>,
    compared: u64,
}

impl Sum {
    fn add(&mut self, flips: &[u64], compared: u64) {
        if self.flips.len() < flips.len() {
            self.flips.resize(flips.len(), 0);
        }
        self.flips.iter_mut().zip(flips).for_each(|(a, b)| *a += b);
        self.compared += compared;
    }

    fn row(&self, name: String) -> HeatRow {
        let rates = self.flips.iter().map(|&n| n as f64 / self.compared.max(1) as f64).collect();
        HeatRow { name, rates }
    }
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
        let mut sums: BTreeMap<(Kind, String), Sum> = BTreeMap::new();
        for t in &of_dtype {
            if let Some(c) = &t.change {
                sums.entry(key(t)).or_default().add(&c.flips, c.compared);
            }
        }
        sums
    };
    if of_dtype.len() <= ROWS {
        let row = |t: &&Tensor| {
            let mut sum = Sum::default();
            t.change.iter().for_each(|c| sum.add(&c.flips, c.compared));
            sum.row(name(&t.name))
        };
        return (of_dtype.iter().map(row).collect(), "tensor");
    }
    let by_pattern = sums(&|t| (t.kind, pattern(&name(&t.name))));
    if by_pattern.len() <= ROWS {
        let rows = by_pattern.into_iter().map(|((_, name), sum)| sum.row(name));
        return (rows.collect(), "tensors of the same name in all layers");
    }
    // Tensors that are not listed are counted in groups.
    let groups = a.changes.iter().filter(|g| g.dtype == dtype && g.change.compared > 0);
    let rows = groups.map(|g| {
        let mut sum = Sum::default();
        sum.add(&g.flips, g.change.compared);
        sum.row(g.kind.name().to_owned())
    });
    (rows.collect(), "tensors of a kind")
}
