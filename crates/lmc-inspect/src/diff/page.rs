//! Files that were compared, as a page of the pieces that studies have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use lmc::{Base, Dtype, Level};

use super::changes::Changes;
use super::counterparts::Relation;
use super::{Diff, SegmentDiff};
use crate::kind::Kind;
use crate::page::chart::{Axis, Bar, Bars, Line, Lines, Unit};
use crate::page::html::{escaped, written_within};
use crate::page::svg::bars;
use crate::page::{ROOM, ROWS, TABLE, begin, begin_table, card, cell, end, part};
use crate::spelled::{agreeing, bytes, count, name, percent};

/// Files that were compared.
pub struct Compared<'a> {
    /// The name of the earlier ones, and those.
    pub old: (&'a str, &'a [Base<'a>]),
    /// The name of the later ones, and how each differs.
    pub new: (&'a str, &'a [(Base<'a>, Diff)]),
    /// Tensors of the earlier ones that are no counterpart: which file, which segment.
    pub missing: &'a [(usize, usize)],
    /// The level of compression of the sizes.
    pub level: Level,
    /// Writes the comparison as JSON, of all segments or without them.
    pub json: &'a dyn Fn(bool, &mut dyn io::Write) -> io::Result<()>,
}

/// The figures of one kind of tensors.
#[derive(Default)]
struct Sum {
    elements: u64,
    raw_size: u64,
    delta_size: u64,
    alone_size: u64,
    changes: Changes,
}

impl Sum {
    fn add(&mut self, s: &SegmentDiff) {
        self.elements += elements(s);
        self.raw_size += s.segment.len;
        self.delta_size += s.delta_size;
        self.alone_size += s.alone_size;
        self.changes.add(&s.changes);
    }

    fn bits(&self, size: u64) -> f64 {
        8.0 * size as f64 / self.elements.max(1) as f64
    }
}

/// Elements as the codec counts them.
fn elements(s: &SegmentDiff) -> u64 {
    s.segment.len / s.segment.dtype.map_or(1, |d| d.coding_width() as u64)
}

/// The page of a comparison: charts, a table of tensors, and the comparison as JSON. It is the same for the same files.
pub fn diff_page(c: &Compared<'_>) -> String {
    let mut out = String::new();
    let title = format!("{} since {}", name(c.new.0), name(c.old.0));
    let program = concat!("lmc ", env!("CARGO_PKG_VERSION"));
    let about = format!("Tensor by tensor, as {program} compresses one given the other at level {}", c.level.name());
    begin(&title, "lmc diff", &about, &mut out);
    let mut kinds: BTreeMap<Kind, Sum> = BTreeMap::new();
    for s in tensors(c) {
        kinds.entry(Kind::of(s.segment.name.as_deref())).or_default().add(s);
    }
    cards(c, &kinds, &mut out);
    what_it_takes(&kinds, &mut out);
    how_far(&kinds, &mut out);
    table(c, &mut out);
    missing(c, &mut out);
    let whole = written_within(ROOM, |out| (c.json)(true, out));
    let left_out = if whole.is_some() { None } else { Some("single tensors") };
    let json = whole.or_else(|| written_within(ROOM, |out| (c.json)(false, out))).unwrap_or_else(|| "{}".to_owned());
    end(&json, "diff", left_out, "lmc diff", &mut out);
    out
}

fn tensors<'a>(c: &Compared<'a>) -> impl Iterator<Item = &'a SegmentDiff> {
    c.new.1.iter().flat_map(|(_, d)| &d.segments).filter(|s| s.segment.name.is_some())
}

/// The most important numbers.
fn cards(c: &Compared<'_>, kinds: &BTreeMap<Kind, Sum>, out: &mut String) {
    let (mut raw, mut delta, mut alone) = (0, 0, 0);
    for (file, diff) in c.new.1 {
        raw += file.raw_size();
        delta += diff.delta.compressed_size;
        alone += diff.alone.compressed_size;
    }
    let mut states: BTreeMap<usize, u64> = BTreeMap::new();
    let place = |r: Relation| Relation::ALL.iter().position(|a| *a == r).unwrap_or(0);
    tensors(c).for_each(|s| *states.entry(place(s.relation)).or_default() += 1);
    let (compared, changed) = kinds.values().fold((0, 0), |(n, c), s| (n + s.changes.compared, c + s.changes.changed));
    let same = tensors(c).filter(|s| is_unchanged(s)).count() as u64;
    out.push_str("<div class=cards>");
    card(&bytes(raw), &format!("in {}", count(tensors(c).count() as u64, "tensor")), out);
    card(&percent(delta, raw), &format!("of that as a delta: {}", bytes(delta)), out);
    card(&percent(alone, raw), &format!("of that by itself: {}", bytes(alone)), out);
    card(&percent(changed, compared), "of elements changed", out);
    card(&same.to_string(), "with all elements as they were", out);
    for (place, n) in states {
        card(&n.to_string(), &format!("in the state “{}”", Relation::ALL[place].name()), out);
    }
    if !c.missing.is_empty() {
        card(&c.missing.len().to_string(), "missing: only in the earlier file", out);
    }
    out.push_str("</div>");
}

/// Whether all elements were compared, and none changed.
fn is_unchanged(s: &SegmentDiff) -> bool {
    s.changes.changed == 0 && s.changes.compared > 0 && s.changes.compared == elements(s)
}

/// Bits of an element in the delta and without it, by kind.
fn what_it_takes(kinds: &BTreeMap<Kind, Sum>, out: &mut String) {
    out.push_str("<h2>What it takes</h2>");
    let rows = kinds
        .iter()
        .filter(|(_, s)| s.elements > 0)
        .map(|(kind, s)| {
            let (delta, alone) = (s.bits(s.delta_size), s.bits(s.alone_size));
            Bar {
                name: kind.name().to_owned(),
                label: format!("{delta:.2} of {alone:.2} bits"),
                parts: vec![delta, (alone - delta).max(0.0)],
                mark: None,
            }
        })
        .collect();
    let chart = Bars {
        title: "What an element takes in the delta, and what that saves (grey)",
        x: Axis { field: "bits", title: "bits an element" },
        parts: vec![(Some(0), "delta"), (None, "saved")],
        mark: "",
        bars: rows,
    };
    bars(&chart, out);
    out.push_str("<div class=t0><table><thead><tr><th class=l>kind");
    for head in ["elements", "raw bytes", "delta bytes", "of raw", "bytes alone", "of raw", "changed"] {
        let _ = write!(out, "<th>{head}");
    }
    out.push_str("</thead><tbody>");
    for (kind, s) in kinds {
        let _ = write!(
            out,
            "<tr><td class=l>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            kind.name(),
            s.elements,
            s.raw_size,
            s.delta_size,
            percent(s.delta_size, s.raw_size),
            s.alone_size,
            percent(s.alone_size, s.raw_size),
            percent(s.changes.changed, s.changes.compared),
        );
    }
    out.push_str("</tbody></table></div>");
}

/// How far elements moved, by kind.
fn how_far(kinds: &BTreeMap<Kind, Sum>, out: &mut String) {
    let line = |(colour, kind): (usize, &Kind)| {
        let c = &kinds.get(kind)?.changes;
        let share = |(i, &n): (usize, &u64)| (i as f64, n as f64 / c.compared.max(1) as f64);
        let points: Vec<_> = c.levels.iter().enumerate().map(share).collect();
        (!points.is_empty()).then(|| Line { name: kind.name().to_owned(), colour, points })
    };
    let lines: Vec<Line> = Kind::ALL.iter().enumerate().filter_map(line).collect();
    if lines.is_empty() {
        return;
    }
    out.push_str("<h2>How far elements moved</h2><div class=charts>");
    Lines {
        title: "Elements by the distance that they moved",
        x: Axis { field: "log2_distance", title: "distance in representable values: 2^x to 2^(x+1) − 1" },
        y: Axis { field: "of_elements", title: "% of elements" },
        unit: Unit::Share,
        log: false,
        lines,
    }
    .write(out);
    out.push_str("</div>");
}

const NUMBERS: [&str; 8] =
    ["size", "changed", "median distance", "90 %", "99 %", "largest", "delta, bits", "alone, bits"];

/// The table of tensors.
fn table(c: &Compared<'_>, out: &mut String) {
    out.push_str(
        "<h2>Tensors</h2><p class=dim>Distances are powers of two: that which half, 90 % and 99 % of the changed elements do not \
         exceed, and the largest. Bits are those of an element.</p>",
    );
    begin_table(&["tensor", "dtype", "shape", "state"], &NUMBERS, "predicted by", out);
    let (start, mut rows) = (out.len(), 0);
    let all = tensors(c).count();
    for s in tensors(c).take(ROWS) {
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

fn row(c: &Compared<'_>, s: &SegmentDiff, out: &mut String) {
    let (changes, n) = (&s.changes, elements(s));
    let _ = write!(
        out,
        "<tr><td class=\"l o\">{}<td class=l>{}<td class=l>{}<td class=l>{}",
        escaped(&name(s.segment.name.as_deref().unwrap_or_default())),
        s.segment.dtype.as_ref().map_or("–", Dtype::name),
        shape(&s.segment.shape),
        escaped(&state(c, s)),
    );
    cell(Some(s.segment.len as f64), &bytes(s.segment.len), out);
    cell(part(changes.changed, changes.compared), &percent(changes.changed, changes.compared), out);
    for q in [0.5, 0.9, 0.99, 1.0] {
        let level = changes.quantile(q);
        cell(level.map(|l| l as f64), &level.map_or(String::new(), |l| format!("2^{l}")), out);
    }
    for size in [s.delta_size, s.alone_size] {
        let bits = (n > 0).then(|| 8.0 * size as f64 / n as f64);
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

/// The state of a tensor, and its earlier name, shape or dtype if that differs.
fn state(c: &Compared<'_>, s: &SegmentDiff) -> String {
    let state = s.relation.name();
    let Some(old) = s.counterpart.map(|(base, i)| &c.old.1[base].segments()[i]) else { return state.to_owned() };
    match s.relation {
        Relation::Renamed => format!("{state}, was {}", name(old.name.as_deref().unwrap_or_default())),
        Relation::Retyped => format!("{state}, was {}", old.dtype.as_ref().map_or("–", Dtype::name)),
        Relation::Reshaped | Relation::Resized => format!("{state}, was {}", shape(&old.shape)),
        _ if is_unchanged(s) => format!("{state}, unchanged"),
        _ => state.to_owned(),
    }
}

/// Tensors that are gone.
fn missing(c: &Compared<'_>, out: &mut String) {
    if c.missing.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>Missing</h2><p class=dim>Tensors of {} that are gone.</p>", escaped(&name(c.old.0)));
    out.push_str("<div class=t0><table class=s><thead><tr><th class=l>tensor<th class=l>dtype<th class=l>shape<th>size</thead><tbody>");
    let (start, mut rows) = (out.len(), 0);
    for &(base, i) in c.missing.iter().take(ROWS) {
        if out.len() - start > TABLE {
            break;
        }
        let s = &c.old.1[base].segments()[i];
        let _ = write!(
            out,
            "<tr><td class=\"l o\">{}<td class=l>{}<td class=l>{}",
            escaped(&name(s.name.as_deref().unwrap_or_default())),
            s.dtype.as_ref().map_or("–", Dtype::name),
            shape(&s.shape)
        );
        cell(Some(s.len as f64), &bytes(s.len), out);
        rows += 1;
    }
    out.push_str("</tbody></table></div>");
    not_listed(c.missing.len() - rows, out);
}
