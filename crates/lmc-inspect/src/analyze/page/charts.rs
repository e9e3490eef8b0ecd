//! The charts of a page, and their numbers.

use crate::analyze::charts::Charts;
use crate::analyze::result::{Analysis, Distance, Figures, Pair};
use crate::page::html::table;
use crate::page::svg::bars;
use crate::text::{percent, share};

pub(super) fn write(a: &Analysis, charts: &Charts, out: &mut String) {
    out.push_str("<h2>Where the bits go</h2>");
    where_bits_go(a, charts, out);
    if let Some(lines) = &charts.magnitudes {
        out.push_str("<div class=charts>");
        lines.write(out);
        out.push_str("</div>");
    }
    if a.checkpoints.len() < 2 {
        return;
    }
    let unit = a.steps_from.unit();
    out.push_str(&format!("<h2>From {unit} to {unit}</h2><div class=charts>"));
    charts.steps.iter().for_each(|lines| lines.write(out));
    out.push_str("</div>");
    distances(a, out);
    density(a, out);
}

fn where_bits_go(a: &Analysis, charts: &Charts, out: &mut String) {
    let Some(last) = a.checkpoints.last() else { return };
    bars(&charts.fields, out);
    out.push_str(
        "<p class=dim>Grey is what an ideal code saves that knows how often each value of a field occurs in its tensor. \
         What it takes to know that is not counted: in small tensors it is as much as grey, or more. lmc may need less \
         than the code: it also uses earlier tensors of the same file. Sizes of kinds, dtypes and tensors are their \
         shares of blocks that may have several; those of checkpoints and deltas are those of whole files.</p>",
    );
    let heads = [
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
    ];
    let row = |(name, f): (&str, &Figures)| {
        let bits = |b: f64| format!("{b:.3}");
        vec![
            name.to_owned(),
            f.tensors.to_string(),
            f.elements.to_string(),
            f.raw_size.to_string(),
            f.lmc_size.to_string(),
            percent(f.lmc_size, f.raw_size),
            bits(f.sign_entropy),
            bits(f.exponent_entropy),
            bits(f.mantissa_entropy),
            bits(f.lmc_bits),
            percent(f.zeros, f.elements),
            f.distinct_exponents.to_string(),
        ]
    };
    let groups = last.kinds.iter().chain(&last.dtypes).map(|g| (&g.name[..], &g.figures));
    table("The last checkpoint", &["kind or dtype"], &heads, groups.chain([("all", &last.all)]).map(row), out);
}

/// The deltas by distance, in numbers.
fn distances(a: &Analysis, out: &mut String) {
    let row = |d: &Distance| {
        let numbers = [d.steps, d.deltas, d.raw_size, d.delta_size].map(|n| n.to_string());
        let f = &d.floats;
        let floats = [f.raw_size, f.delta_size, f.entropy_size].map(|n| n.to_string());
        let parts = [percent(f.delta_size, f.raw_size), percent(f.entropy_size, f.raw_size)];
        numbers.into_iter().chain([percent(d.delta_size, d.raw_size)]).chain(floats).chain(parts).collect()
    };
    let distance = format!("distance in {}s", a.steps_from.unit());
    let heads = [
        &distance[..],
        "deltas",
        "raw bytes",
        "delta bytes",
        "of raw",
        "of it floats",
        "their delta",
        "H, bytes",
        "delta of floats",
        "H of floats",
    ];
    table("Deltas by distance, added up", &[], &heads, a.distances.iter().map(row), out);
    if a.distances.iter().any(|d| d.floats.raw_size > 0) {
        out.push_str(
            "<p class=dim>H is the entropy of the differences of floats that have a counterpart, given the exponents \
             they come from; of F32 and F64, of the length and the first eight bits, with the others as they are. Of \
             BF16 and F16 no code that treats floats of one exponent alike needs less; of wider ones it may, for instance where \
             the last bits are zero. lmc may, because it knows more of them; H does not count \
             what it takes to know how often each difference occurs, so it is too small where differences are many.</p>",
        );
    }
}

/// Rows of predictions at most; the chart has them all.
const PREDICTIONS: usize = 32;

/// Predicted and measured changes of single steps, the last ones.
fn density(a: &Analysis, out: &mut String) {
    let known: Vec<_> = a.pairs.iter().filter_map(|p: &Pair| Some((p, p.density.as_ref()?))).collect();
    if known.is_empty() {
        return;
    }
    let shown = &known[known.len().saturating_sub(PREDICTIONS)..];
    let rows = shown.iter().map(|(p, d)| {
        let step = a.checkpoints.get(p.to).map_or(String::new(), |c| c.step.to_string());
        let numbers = [step, d.elements.to_string(), d.changed.to_string(), percent(d.changed, d.elements)];
        let parts = [share(d.predicted), share(d.at_most), format!("{:.3e}", d.learning_rate), share(d.explained)];
        numbers.into_iter().chain(parts).collect()
    });
    let heads = [
        "step",
        "16-bit weights",
        "changed",
        "of them",
        "predicted",
        "at the fitted rate",
        "fitted rate",
        "of updates explained",
    ];
    let caption = match known.len() - shown.len() {
        0 => "Weights that a step of Adam changed, and was predicted to".to_owned(),
        more => {
            format!("Weights that a step of Adam changed, and was predicted to: the last steps, without {more} before")
        }
    };
    table(&caption, &[], &heads, rows, out);
}
