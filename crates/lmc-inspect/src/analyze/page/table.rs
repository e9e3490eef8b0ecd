//! The table of tensors.

use std::fmt::Write;

use crate::analyze::result::{Analysis, NEARLY_ALL, Tensor};
use crate::page::html::escaped;
use crate::page::{self, ROWS, TABLE, begin_table, part};
use crate::text::{agreeing, bytes, name, percent, share, significant};

const HEADS: [&str; 9] = ["size", "lmc", "exponents", "zeros", "RMS", "‖Δw‖/‖w‖", "changed", "delta", "top bit"];

pub(super) fn write(a: &Analysis, out: &mut String) {
    out.push_str("<h2>Tensors</h2><p class=dim>Of the last checkpoint, and what changed in all pairs: lmc and delta are parts of the size, ‖Δw‖/‖w‖ is that \
         of the last pair, and the top bit is the highest that ever changed. A click on a name shows the tensor’s curves and bits.</p>\
         <p class=\"dim hint\">The table is wider than the screen: scroll it sideways →</p>");
    begin_table(&["tensor", "kind", "dtype", "shape"], &HEADS, Some("notes"), out);
    let (start, mut rows) = (out.len(), 0);
    for t in a.tensors.iter().take(ROWS) {
        if out.len() - start > TABLE {
            break;
        }
        row(a, rows, t, out);
        rows += 1;
    }
    out.push_str("</tbody></table></div>");
    let missing = a.tensors.len() - rows + a.tensors_left_out as usize;
    if missing > 0 {
        let left_out = agreeing(missing as u64, "more tensor", "is", "are");
        let _ = write!(out, "<p class=dim>{left_out} not listed here, but counted above.</p>");
    }
}

fn row(a: &Analysis, number: usize, t: &Tensor, out: &mut String) {
    let f = &t.figures;
    let shape: Vec<String> = t.shape.iter().map(u64::to_string).collect();
    let _ = write!(
        out,
        "<tr data-i={number}><td class=\"l o\">{}<td class=l>{}<td class=l>{}<td class=l>{}",
        escaped(&name(&t.name)),
        t.kind.name(),
        escaped(&t.dtype),
        shape.join("×")
    );
    let mut cell = |value: Option<f64>, text: String| page::cell(value, &text, out);
    cell(Some(f.raw_size as f64), bytes(f.raw_size));
    cell(part(f.lmc_size, f.raw_size), percent(f.lmc_size, f.raw_size));
    cell(Some(f.distinct_exponents as f64), f.distinct_exponents.to_string());
    cell(part(f.zeros, f.elements), percent(f.zeros, f.elements));
    let last = |of: &[Option<f32>]| of.last().copied().flatten().map(f64::from);
    for x in [last(&t.course.rms), last(&t.course.ratio)] {
        cell(x, x.map_or(String::new(), significant));
    }
    let c = t.change.as_ref();
    cell(c.and_then(|c| part(c.changed, c.compared)), c.map_or(String::new(), |c| percent(c.changed, c.compared)));
    cell(
        c.and_then(|c| part(c.delta_size, c.raw_size)),
        c.map_or(String::new(), |c| percent(c.delta_size, c.raw_size)),
    );
    let top = c.and_then(|c| c.flips.iter().rposition(|&n| n > 0));
    cell(top.map(|b| b as f64), top.map_or(String::new(), |b| b.to_string()));
    let mut notes = Vec::new();
    if let Some(of) = t.duplicate_of.and_then(|i| a.tensors.get(i)) {
        notes.push(format!("equals {}", name(&of.name)));
    }
    if let Some(fits) = &t.fits {
        notes.push(format!("fits {fits}"));
    }
    if let Some(format) = &t.quantised {
        let part = if t.quantised_part < NEARLY_ALL { share(t.quantised_part) + " " } else { String::new() };
        notes.push(format!("{part}dequantised {format}"));
    }
    if c.is_some_and(|c| c.never_changes(a.pairs.len())) {
        notes.push("never changes".to_owned());
    }
    if f.not_finite > 0 {
        notes.push(format!("{} of elements not finite", share(f.not_finite as f64 / f.elements.max(1) as f64)));
    }
    let _ = write!(out, "<td class=l>{}", escaped(&notes.join(", ")));
}
