//! The charts of a page, and their numbers.

use crate::analyze::charts::Charts;
use crate::analyze::result::{Analysis, Distance, Figures, GroupChange, Pair};
use crate::kind::Kind;
use crate::page::ROWS;
use crate::page::chart::Lines;
use crate::page::html::table;
use crate::page::svg::{bars, heat_map};
use crate::text::{percent, share};

pub(super) fn write(a: &Analysis, charts: &Charts<'_>, out: &mut String) {
    if charts.layers.is_some() || charts.training.iter().any(Lines::show_something) {
        out.push_str("<h2>How training went</h2><div class=charts>");
        let (first, last) = charts.training.split_at(charts.training.len().saturating_sub(4));
        first.iter().for_each(|lines| lines.write(out));
        charts.layers.iter().for_each(|map| heat_map(map, out));
        last.iter().for_each(|lines| lines.write(out));
        out.push_str("</div>");
    }
    out.push_str("<h2>Where the bits go</h2><div class=charts>");
    bars(&charts.fields, out);
    charts.magnitudes.write(out);
    out.push_str("</div>");
    last_checkpoint(a, out);
    if a.checkpoints.len() < 2 {
        return;
    }
    let unit = a.steps_from.unit();
    out.push_str(&format!("<h2>From {unit} to {unit}</h2><div class=charts>"));
    charts.steps.iter().for_each(|lines| lines.write(out));
    out.push_str("</div>");
    distances(a, out);
    if !charts.flips.is_empty() {
        out.push_str("<h2>Which bits change</h2><div class=charts>");
        charts.flips.iter().for_each(|map| heat_map(map, out));
        out.push_str("</div>");
    }
    changes(a, out);
    states(a, out);
}

/// The changes by kind and dtype, in numbers.
fn changes(a: &Analysis, out: &mut String) {
    let row = |g: &GroupChange| {
        let c = &g.change;
        let names = [g.kind.name().to_owned(), g.dtype.clone()];
        let numbers = [c.compared, c.changed].map(|n| n.to_string());
        let sizes = [c.largest_distance, c.delta_size, c.lmc_size].map(|n| n.to_string());
        names.into_iter().chain(numbers).chain([percent(c.changed, c.compared)]).chain(sizes).collect()
    };
    let heads = ["compared", "changed", "of it", "largest distance", "delta bytes", "without base"];
    let all = match a.pairs.len() {
        1 => "Changes of the pair of checkpoints".to_owned(),
        n => format!("Changes of all {n} pairs of neighbours together: a tensor counts once in each"),
    };
    table(&all, &["kind", "dtype"], &heads, a.changes.iter().map(row), out);
}

/// The deltas of the states of Adam, and how much of each step is its gradient.
fn states(a: &Analysis, out: &mut String) {
    let row = |p: &Pair| {
        let adam = p.adam?;
        let part = |kinds: &[Kind]| {
            let of = p.groups.iter().filter(|g| kinds.contains(&g.kind));
            let (delta, raw) = of.fold((0, 0), |(d, r), g| (d + g.change.delta_size, r + g.change.raw_size));
            percent(delta, raw)
        };
        let weights = [Kind::Weights, Kind::Embedding, Kind::Norm];
        let sizes = [&weights[..], &[Kind::Master], &[Kind::ExpAvg], &[Kind::ExpAvgSq]].map(part);
        let gradient = adam.gradient.map_or("–".to_owned(), share);
        let steps = [a.checkpoints[p.to].step, p.steps].map(|n| n.to_string());
        Some(steps.into_iter().chain(sizes).chain([share(adam.explained), gradient]).collect())
    };
    if a.pairs.iter().any(|p| p.adam.is_some()) {
        let unit = a.steps_from.unit();
        let distance = format!("{unit}s since");
        let heads = [unit, &distance, "weights", "master", "exp_avg", "exp_avg_sq", "Adam explains", "is gradient"];
        let caption =
            "States of Adam: deltas of raw, how much of the step its moments explain, and how much of it is gradient";
        table(caption, &[], &heads, a.pairs.iter().filter_map(row).take(ROWS), out);
    }
}

/// The figures of the last checkpoint.
fn last_checkpoint(a: &Analysis, out: &mut String) {
    let Some(last) = a.checkpoints.last() else { return };
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
}
