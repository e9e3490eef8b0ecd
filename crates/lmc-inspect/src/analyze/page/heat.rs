//! Which bits change: a heat map for each dtype.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::analyze::result::{Analysis, Tensor};
use crate::kind::Kind;
use crate::page::html::escaped;
use crate::page::svg::{HeatRow, SHADES, heat_map};
use crate::spelled::{name, pattern, share};

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

pub(super) fn write(a: &Analysis, out: &mut String) {
    let mut by_dtype: BTreeMap<&str, u64> = BTreeMap::new();
    for g in a.changes.iter().filter(|g| g.kind != Kind::Other && g.change.changed > 0) {
        *by_dtype.entry(&g.dtype).or_default() += g.change.raw_size;
    }
    if by_dtype.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Which bits change</h2><p class=dim>The part of all elements in which a bit is not what it was one checkpoint before, \
         over all pairs of neighbours. Half is what chance gives. Behind each row stands its highest rate.</p><p class=k>",
    );
    for (i, from) in SHADES.iter().enumerate() {
        let from =
            if i == 0 { "above 0".to_owned() } else { format!("{} and more", share(*from).replace(".0 %", " %")) };
        let _ =
            write!(out, "<span><svg viewBox=\"0 0 11 11\"><rect class=h{i} width=11 height=11 /></svg>{from}</span> ");
    }
    out.push_str("</p>");
    let mut dtypes: Vec<_> = by_dtype.into_iter().collect();
    dtypes.sort_by_key(|&(dtype, size)| (std::cmp::Reverse(size), dtype));
    for (dtype, _) in dtypes.into_iter().take(MAPS) {
        let (rows, grouped) = rows(a, dtype);
        let title = format!("{dtype}: {grouped} × bit");
        heat_map(&title, &rows, fields(dtype), out);
    }
    let _ = write!(
        out,
        "<div class=t0><table><thead><tr><th class=l>kind<th class=l>dtype<th>compared<th>changed<th>of it<th>largest distance<th>delta bytes<th>without base"
    );
    out.push_str("</thead><tbody>");
    for g in &a.changes {
        let c = &g.change;
        let part = if c.compared > 0 { share(c.changed as f64 / c.compared as f64) } else { "–".to_owned() };
        let _ = write!(
            out,
            "<tr><td class=l>{}<td class=l>{}<td>{}<td>{}<td>{part}<td>{}<td>{}<td>{}",
            g.kind.name(),
            escaped(&g.dtype),
            c.compared,
            c.changed,
            c.largest_distance,
            c.delta_size,
            c.lmc_size
        );
    }
    out.push_str("</tbody></table></div>");
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
