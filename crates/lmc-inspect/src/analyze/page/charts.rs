//! The charts of a page.

use std::fmt::Write;

use crate::analyze::result::{Analysis, Figures, GroupChange, GroupDelta};
use crate::kind::Kind;
use crate::page::svg::{Bar, Chart, Line, bars, legend};
use crate::spelled::{percent, share, two_decimals};

/// The colour of what is of all kinds.
const ALL: usize = 7;

pub(super) fn write(a: &Analysis, out: &mut String) {
    out.push_str("<h2>Where the bits go</h2>");
    where_bits_go(a, out);
    if a.checkpoints.len() < 2 {
        return;
    }
    out.push_str("<h2>From step to step</h2><div class=charts>");
    Chart {
        title: "Size of deltas by distance",
        x: "distance in steps, log scale",
        y: "% of raw size",
        log: true,
        lines: by_kind_of_deltas(a),
        spell: share,
    }
    .write(out);
    Chart {
        title: "Elements that changed since the checkpoint before",
        x: "step",
        y: "% of elements",
        log: spans(a),
        lines: by_kind(|kind| {
            a.pairs.iter().filter_map(move |p| {
                let of = p.groups.iter().filter(|g| g.kind == kind);
                let (n, of) = of.fold((0, 0), |(c, n), g| (c + g.change.changed, n + g.change.compared));
                Some((a.checkpoints[p.to].step as f64, part(n, of)?))
            })
        }),
        spell: share,
    }
    .write(out);
    Chart {
        title: "Size by itself",
        x: "step",
        y: "lmc, bits an element",
        log: spans(a),
        lines: of_kinds(a, |f| f.lmc_bits),
        spell: |bits| two_decimals(bits).to_string(),
    }
    .write(out);
    Chart {
        title: "Entropy of exponents",
        x: "step",
        y: "bits an element",
        log: spans(a),
        lines: of_kinds(a, |f| f.exponent_entropy),
        spell: |bits| two_decimals(bits).to_string(),
    }
    .write(out);
    how_far(a, out);
    out.push_str("</div>");
    distances(a, out);
}

fn part(n: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| n as f64 / of as f64)
}

/// Whether steps are spread over so many magnitudes that they are told apart only by their logarithms.
fn spans(a: &Analysis) -> bool {
    let (Some(first), Some(last)) = (a.checkpoints.first(), a.checkpoints.last()) else { return false };
    first.step > 0 && last.step / first.step >= 32 && a.checkpoints.len() > 3
}

/// A line for each kind that has points.
fn by_kind<I: Iterator<Item = (f64, f64)>>(points: impl Fn(Kind) -> I) -> Vec<Line> {
    let kinds = Kind::ALL.into_iter().enumerate().filter(|(_, kind)| *kind != Kind::Other);
    let lines =
        kinds.map(|(colour, kind)| Line { name: kind.name().to_owned(), colour, points: points(kind).collect() });
    lines.filter(|l| !l.points.is_empty()).collect()
}

fn of_kinds(a: &Analysis, figure: impl Fn(&Figures) -> f64) -> Vec<Line> {
    let figure = &figure;
    by_kind(|kind| {
        a.checkpoints.iter().filter_map(move |c| {
            let g = c.kinds.iter().find(|g| g.name == kind.name())?;
            (g.figures.elements > 0).then(|| (c.step as f64, figure(&g.figures)))
        })
    })
}

fn by_kind_of_deltas(a: &Analysis) -> Vec<Line> {
    let sizes = |groups: &[GroupDelta], kind: Kind| {
        let of = groups.iter().filter(|g| g.kind == kind);
        of.fold((0, 0), |(d, r), g| (d + g.delta_size, r + g.raw_size))
    };
    let mut lines = by_kind(|kind| {
        a.distances.iter().filter_map(move |d| {
            let (delta, raw) = sizes(&d.groups, kind);
            Some((d.steps as f64, part(delta, raw)?))
        })
    });
    let all = a.distances.iter().filter_map(|d| Some((d.steps as f64, part(d.delta_size, d.raw_size)?)));
    lines.push(Line { name: "all".to_owned(), colour: ALL, points: all.collect() });
    lines
}

/// How far elements moved, of all pairs together.
fn how_far(a: &Analysis, out: &mut String) {
    let line = |kind: Kind| {
        let groups: Vec<&GroupChange> = a.changes.iter().filter(|g| g.kind == kind).collect();
        let compared: u64 = groups.iter().map(|g| g.change.compared).sum();
        let longest = groups.iter().map(|g| g.change.distances.len()).max().unwrap_or(0);
        let at = move |i: usize| groups.iter().filter_map(|g| g.change.distances.get(i)).sum::<u64>();
        (0..longest).filter_map(move |i| Some((i as f64, part(at(i), compared)?)))
    };
    Chart {
        title: "How far elements moved",
        x: "distance in representable values: 2^x to 2^(x+1) − 1",
        y: "% of elements",
        log: false,
        lines: by_kind(line),
        spell: share,
    }
    .write(out);
}

fn where_bits_go(a: &Analysis, out: &mut String) {
    let Some(last) = a.checkpoints.last() else { return };
    let groups = last.kinds.iter().filter(|g| g.figures.elements > 0 && g.name != Kind::Other.name());
    let rows: Vec<Bar> = groups
        .map(|g| {
            let f = &g.figures;
            let fields = [
                ("f0", f.sign_entropy, "sign"),
                ("f1", f.exponent_entropy, "exponent"),
                ("f3", f.mantissa_entropy, "mantissa"),
            ];
            let left = (f.element_bits - f.sign_entropy - f.exponent_entropy - f.mantissa_entropy).max(0.0);
            let parts = fields.into_iter().chain([("r", left, "nothing: it follows from how often values occur")]);
            Bar {
                name: g.name.clone(),
                label: format!("{:.2} of {:.2} bits", f.lmc_bits, f.element_bits),
                parts: parts.map(|(class, bits, what)| (class, bits, format!("{what}: {bits:.3} bits"))).collect(),
                mark: Some((f.lmc_bits, format!("lmc: {:.3} bits", f.lmc_bits))),
            }
        })
        .collect();
    let title = "Entropy of the fields of an element, and what lmc makes of it (the line), in the last checkpoint";
    bars(title, "bits an element", &rows, out);
    legend([(0, "sign"), (1, "exponent"), (3, "mantissa")].into_iter(), out);
    out.push_str(
        "<p class=dim>Grey is what an ideal code saves that knows how often each value of a field occurs in its tensor. \
         lmc may need less: it also uses earlier tensors of the same file.</p>",
    );
    let _ = write!(out, "<div class=t0><table><thead><tr><th class=l>kind or dtype");
    for head in [
        "tensors",
        "elements",
        "raw bytes",
        "lmc bytes",
        "of raw",
        "sign, bits",
        "exponent, bits",
        "mantissa, bits",
        "lmc, bits",
        "zeros",
        "exponents",
    ] {
        let _ = write!(out, "<th>{head}");
    }
    out.push_str("</thead><tbody>");
    let all = [("all", &last.all)];
    let groups = last.kinds.iter().chain(&last.dtypes).map(|g| (&g.name[..], &g.figures));
    for (name, f) in groups.chain(all) {
        let _ = write!(
            out,
            "<tr><td class=l>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.3}<td>{:.3}<td>{:.3}<td>{:.3}<td>{}<td>{}",
            crate::page::html::escaped(name),
            f.tensors,
            f.elements,
            f.raw_size,
            f.lmc_size,
            percent(f.lmc_size, f.raw_size),
            f.sign_entropy,
            f.exponent_entropy,
            f.mantissa_entropy,
            f.lmc_bits,
            percent(f.zeros, f.elements),
            f.distinct_exponents
        );
    }
    out.push_str("</tbody></table></div>");
}

/// The deltas by distance, in numbers.
fn distances(a: &Analysis, out: &mut String) {
    out.push_str(
        "<div class=t0><table><thead><tr><th>distance in steps<th>deltas<th>raw bytes<th>delta bytes<th>of raw</thead><tbody>",
    );
    for d in &a.distances {
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}",
            d.steps,
            d.deltas,
            d.raw_size,
            d.delta_size,
            percent(d.delta_size, d.raw_size)
        );
    }
    out.push_str("</tbody></table></div>");
}
