//! A study as a page: one HTML file that needs nothing else, and no script to be read.

mod brief;
mod charts;
mod engines;
mod heat;
mod html;
mod svg;
mod table;

use std::fmt::Write;

use self::html::escaped;
use super::result::Analysis;
use super::spelled::{bytes, count, name, percent};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
/// Nothing is loaded from anywhere.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page of a study: charts, tables, and the study as JSON. Names are text that anyone may have written, and do nothing. It is the same for
/// the same study.
pub fn page(a: &Analysis) -> String {
    let mut out = String::new();
    let (Some(first), Some(last)) = (a.checkpoints.first(), a.checkpoints.last()) else { return out };
    let title = match a.checkpoints.len() {
        1 => name(&last.name),
        n => format!("{n} checkpoints, {} to {}", name(&first.name), name(&last.name)),
    };
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>\
         <meta http-equiv=Content-Security-Policy content=\"{POLICY}\">\
         <meta name=viewport content=\"width=device-width,initial-scale=1\"><title>{0} – lmc analyze</title>\
         <style>{STYLE}</style></head><body><main><h1>{0}</h1><p class=dim>How it compresses, by {1} at level {2}{3}.</p>",
        escaped(&title),
        escaped(&a.program),
        escaped(&a.level),
        if a.independent { ", no tensor predicted from another one of its checkpoint" } else { "" },
    );
    out.push_str("<div class=cards>");
    cards(a, &mut out);
    out.push_str("</div>");
    out.push_str("<ul class=said>");
    for sentence in &a.advice {
        let _ = write!(out, "<li>{}", escaped(sentence));
    }
    out.push_str("</ul>");
    charts::write(a, &mut out);
    heat::write(a, &mut out);
    engines::write(a, &mut out);
    table::write(a, &mut out);
    let (json, left_out) = brief::brief(a);
    out.push_str("<h2>Data</h2><p class=dim>The figures of this page are in it as JSON, in the element with the id <code>study</code>");
    if let Some(left_out) = left_out {
        let _ = write!(out, ", without {left_out}: <code>lmc analyze --json</code> has them all");
    }
    let _ = writeln!(
        out,
        ".</p><script type=\"application/json\" id=study>{json}</script></main><script>{SCRIPT}</script></body></html>"
    );
    out
}

/// What matters most, in numbers.
fn cards(a: &Analysis, out: &mut String) {
    let mut card = |number: String, what: String| {
        let _ = write!(out, "<div><b>{}</b><span>{}</span></div>", escaped(&number), escaped(&what));
    };
    let Some(last) = a.checkpoints.last() else { return };
    card(bytes(last.all.raw_size), format!("{} in the last checkpoint", count(last.all.tensors, "tensor")));
    card(percent(last.all.lmc_size, last.all.raw_size), format!("of that by itself: {}", bytes(last.all.lmc_size)));
    if let (Some(near), Some(first)) = (a.distances.first(), a.checkpoints.first()) {
        card(percent(near.delta_size, near.raw_size), format!("as deltas over {}", count(near.steps, "step")));
        let (changed, compared) =
            a.changes.iter().fold((0, 0), |(c, n), g| (c + g.change.changed, n + g.change.compared));
        card(percent(changed, compared), "of elements change from checkpoint to checkpoint".to_owned());
        let never = a.tensors.iter().filter_map(|t| t.change.as_ref()).filter(|c| c.compared > 0 && c.changed == 0);
        card(never.count().to_string(), "tensors never change".to_owned());
        card(format!("{} – {}", first.step, last.step), "steps".to_owned());
    }
    let twice = a.tensors.iter().filter(|t| t.duplicate_of.is_some()).count();
    card(twice.to_string(), "tensors equal an earlier one".to_owned());
}
