//! Files that were compared, as a page of the pieces that studies have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use lmc::{Dtype, Level, Segment};

use super::SegmentDiff;
use super::compared::{Compared, DiffSums};
use crate::kind::Kind;
use crate::page::chart::{Bar, Bars, Lines};
use crate::page::html::{escaped, table, written_within};
use crate::page::svg::bars;
use crate::page::{ROOM, ROWS, TABLE, begin, begin_table, card, cell, end, part};
use crate::text::{agreeing, bytes, count, name, percent};

/// The figures of tensors by kind and dtype.
type Groups = BTreeMap<(Kind, Option<Dtype>), DiffSums>;

/// The page of a comparison: charts, a table of tensors, and the comparison as JSON. It is the same for the same files.
/// `names` are those of the earlier files and of the later ones; `json` writes the comparison, of all segments or
/// without them.
pub fn diff_page(
    c: &Compared<'_>,
    names: [&str; 2],
    level: Level,
    json: &dyn Fn(bool, &mut dyn io::Write) -> io::Result<()>,
) -> String {
    let mut out = String::new();
    let [old, new] = names.map(name);
    let program = concat!("lmc ", env!("CARGO_PKG_VERSION"));
    let about = format!("Tensor by tensor, as {program} compresses one given the other at level {}", level.name());
    begin(&format!("{new} since {old}"), "lmc diff", &about, &mut out);
    let groups = c.sums(|s| (Kind::of(s.segment.name.as_deref()), s.segment.dtype));
    cards(c, &groups, &mut out);
    what_it_takes(&groups, &mut out);
    how_far(&groups, &mut out);
    tensors(c, &mut out);
    missing(c, &old, &mut out);
    let whole = written_within(ROOM, |out| json(true, out));
    let left_out = if whole.is_some() { None } else { Some("single tensors") };
    let json = whole.or_else(|| written_within(ROOM, |out| json(false, out))).unwrap_or_else(|| "{}".to_owned());
    end(&json, "diff", left_out, "lmc diff", &mut out);
    out
}

/// The most important numbers.
fn cards(c: &Compared<'_>, groups: &Groups, out: &mut String) {
    let [raw, delta, alone] = c.sizes();
    let (compared, changed) = groups.values().fold((0, 0), |(n, c), s| (n + s.changes.compared, c + s.changes.changed));
    let same = c.tensors().filter(|s| s.is_unchanged()).count();
    let (states, missing) = c.states();
    out.push_str("<div class=cards>");
    card(&bytes(raw), &format!("in {}", count(c.tensors().count() as u64, "tensor")), out);
    card(&percent(delta, raw), &format!("of that as a delta: {}", bytes(delta)), out);
    card(&percent(alone, raw), &format!("of that by itself: {}", bytes(alone)), out);
    card(&percent(changed, compared), "of elements changed", out);
    card(&same.to_string(), "with all elements as they were", out);
    for (state, n) in states {
        card(&n.to_string(), &format!("in the state “{}”", state.words()), out);
    }
    if missing > 0 {
        card(&missing.to_string(), "missing: only in the earlier file", out);
    }
    out.push_str("</div>");
}

/// The name of a dtype.
fn dtype(d: Option<&Dtype>) -> &str {
    d.map_or("–", Dtype::name)
}

/// The name of a group: of its kind alone where that has one dtype.
fn group_name(groups: &Groups, (kind, d): &(Kind, Option<Dtype>)) -> String {
    match groups.keys().filter(|k| k.0 == *kind).count() {
        1 => kind.name().to_owned(),
        _ => format!("{} {}", kind.name(), dtype(d.as_ref())),
    }
}

/// Bits of an element in the delta and without it, by kind and dtype.
fn what_it_takes(groups: &Groups, out: &mut String) {
    out.push_str("<h2>What it takes</h2>");
    let rows = groups.iter().filter_map(|(key, s)| {
        let [delta, alone] = s.bits()?;
        Some(Bar {
            name: group_name(groups, key),
            label: format!("{delta:.2} of {alone:.2} bits"),
            parts: vec![delta, (alone - delta).max(0.0)],
            mark: None,
        })
    });
    let chart = Bars {
        title: "What an element takes in the delta, and what that saves (grey)",
        x: "bits an element",
        parts: vec![(Some(0), "delta"), (None, "saved")],
        mark: "",
        bars: rows.collect(),
    };
    bars(&chart, out);
    let row = |((kind, d), s): (&(Kind, Option<Dtype>), &DiffSums)| {
        vec![
            kind.name().to_owned(),
            dtype(d.as_ref()).to_owned(),
            s.elements.to_string(),
            s.raw_size.to_string(),
            s.delta_size.to_string(),
            percent(s.delta_size, s.raw_size),
            s.alone_size.to_string(),
            percent(s.alone_size, s.raw_size),
            percent(s.changes.changed, s.changes.compared),
        ]
    };
    let heads = ["elements", "raw bytes", "delta bytes", "of raw", "bytes alone", "of raw", "changed"];
    table("By kind and dtype", &["kind", "dtype"], &heads, groups.iter().map(row), out);
}

/// How far elements moved, by kind and dtype.
fn how_far(groups: &Groups, out: &mut String) {
    let each =
        groups.iter().map(|((kind, d), s)| (*kind, dtype(d.as_ref()), &s.changes.levels[..], s.changes.compared));
    let lines = Lines::of_distances(each);
    if !lines.show_something() {
        return;
    }
    out.push_str("<h2>How far elements moved</h2><div class=charts>");
    lines.write(out);
    out.push_str("</div>");
}

const NUMBERS: [&str; 8] =
    ["size", "changed", "median distance", "90 %", "99 %", "largest", "delta, bits", "alone, bits"];

/// The table of tensors.
fn tensors(c: &Compared<'_>, out: &mut String) {
    out.push_str(
        "<h2>Tensors</h2><p class=dim>Distances are powers of two: that which half, 90 % and 99 % of the changed elements do not \
         exceed, and the largest. Bits are those of an element.</p>",
    );
    begin_table(&["tensor", "dtype", "shape", "state"], &NUMBERS, Some("predicted by"), out);
    let (start, mut rows) = (out.len(), 0);
    let all = c.tensors().count();
    for s in c.tensors().take(ROWS) {
        if out.len() - start > TABLE {
            break;
        }
        row(c, s, out);
        rows += 1;
    }
    out.push_str("</tbody></table></div>");
    not_listed(all - rows, out);
}

fn not_listed(n: usize, out: &mut String) {
    if n > 0 {
        let left_out = agreeing(n as u64, "more tensor", "is", "are");
        let _ = write!(out, "<p class=dim>{left_out} not listed here, but counted above.</p>");
    }
}

/// The cells of a tensor's name, dtype and shape.
fn begin_row(s: &Segment, out: &mut String) {
    let _ = write!(
        out,
        "<tr><td class=\"l o\">{}<td class=l>{}<td class=l>{}",
        escaped(&name(s.name.as_deref().unwrap_or_default())),
        escaped(dtype(s.dtype.as_ref())),
        shape(&s.shape),
    );
}

fn row(c: &Compared<'_>, s: &SegmentDiff, out: &mut String) {
    let changes = &s.changes;
    begin_row(&s.segment, out);
    let _ = write!(out, "<td class=l>{}", escaped(&c.state(s, shape)));
    cell(Some(s.segment.len as f64), &bytes(s.segment.len), out);
    cell(part(changes.changed, changes.compared), &percent(changes.changed, changes.compared), out);
    for q in [0.5, 0.9, 0.99, 1.0] {
        let level = changes.quantile(q);
        cell(level.map(|l| l as f64), &level.map_or(String::new(), |l| format!("2^{l}")), out);
    }
    for bits in s.bits().map_or([None; 2], |bits| bits.map(Some)) {
        cell(bits, &bits.map_or(String::new(), |b| format!("{b:.3}")), out);
    }
    let by = s.coded.first().map_or("–".to_owned(), |coded| {
        let from = if coded.from_itself { " (this file)" } else { "" };
        format!("{}{from}", coded.predictor.unwrap_or("–"))
    });
    let _ = write!(out, "<td class=l>{}", escaped(&by));
}

fn shape(shape: &[u64]) -> String {
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join("×")
}

/// Tensors that are gone.
fn missing(c: &Compared<'_>, old: &str, out: &mut String) {
    if c.missing.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>Missing</h2><p class=dim>Tensors of {} that are gone.</p>", escaped(old));
    begin_table(&["tensor", "dtype", "shape"], &["size"], None, out);
    let (start, mut rows) = (out.len(), 0);
    for &place in c.missing.iter().take(ROWS) {
        if out.len() - start > TABLE {
            break;
        }
        let s = c.old_segment(place);
        begin_row(s, out);
        cell(Some(s.len as f64), &bytes(s.len), out);
        rows += 1;
    }
    out.push_str("</tbody></table></div>");
    not_listed(c.missing.len() - rows, out);
}
