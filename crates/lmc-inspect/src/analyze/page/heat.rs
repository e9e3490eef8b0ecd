//! Which bits change, and how many elements.

use std::fmt::Write;

use crate::analyze::charts::Charts;
use crate::analyze::result::Analysis;
use crate::kind::Kind;
use crate::page::chart::SHADES;
use crate::page::html::escaped;
use crate::page::svg::heat_map;
use crate::spelled::share;

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
