//! Which bits change, and how many elements.

use std::fmt::Write;

use crate::analyze::charts::Charts;
use crate::analyze::result::{Analysis, GroupChange};
use crate::kind::Kind;
use crate::page::chart::SHADES;
use crate::page::html::table;
use crate::page::svg::heat_map;
use crate::text::{percent, share};

pub(super) fn write(a: &Analysis, charts: &Charts, out: &mut String) {
    if !a.changes.iter().any(|g| g.kind != Kind::Other && g.change.changed > 0) {
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
    charts.flips.iter().for_each(|map| heat_map(map, out));
    let row = |g: &GroupChange| {
        let c = &g.change;
        vec![
            g.kind.name().to_owned(),
            g.dtype.clone(),
            c.compared.to_string(),
            c.changed.to_string(),
            percent(c.changed, c.compared),
            c.largest_distance.to_string(),
            c.delta_size.to_string(),
            c.lmc_size.to_string(),
        ]
    };
    let heads = ["compared", "changed", "of it", "largest distance", "delta bytes", "without base"];
    let all = match a.pairs.len() {
        1 => "The pair of checkpoints".to_owned(),
        n => format!("All {n} pairs of neighbours together: a tensor counts once in each"),
    };
    table(&all, &["kind", "dtype"], &heads, a.changes.iter().map(row), out);
}
