//! The charts of a study.

mod engines;
mod flips;

use super::input::StepsFrom;
use super::result::{Analysis, Density, EngineDistance, Figures, FloatDelta, GroupDelta};
use crate::kind::Kind;
use crate::page::chart::{Bar, Bars, HeatMap, Line, Lines, Scatter, Unit};

/// The colour of figures over all kinds.
const ALL: usize = 7;

/// The charts to draw.
pub(super) struct Charts {
    /// The bits of the fields of elements, in the last checkpoint.
    pub(super) fields: Bars,
    /// How large floats are, in the last checkpoint.
    pub(super) magnitudes: Option<Lines>,
    /// The curves over steps and distances.
    pub(super) steps: Vec<Lines>,
    /// Which bits change, by dtype, the largest first.
    pub(super) flips: Vec<HeatMap>,
    /// Sizes and speeds of other compressors.
    pub(super) engines: Vec<Scatter>,
}

impl Charts {
    pub(super) fn of(a: &Analysis) -> Self {
        let mut steps = if a.checkpoints.len() < 2 { vec![] } else { steps(a) };
        steps.retain(Lines::show_something);
        let magnitudes = Some(magnitudes(a)).filter(Lines::show_something);
        Self { fields: fields(a), magnitudes, steps, flips: flips::maps(a), engines: engines::plots(a) }
    }
}

/// The bits of the fields of elements, as they are and as `lmc` stores them, by kind.
fn fields(a: &Analysis) -> Bars {
    let kinds = a.checkpoints.last().map_or(&[][..], |last| &last.kinds);
    let of_tensors = kinds.iter().filter(|g| g.figures.elements > 0 && g.name != Kind::Other.name());
    let bar = of_tensors.map(|g| {
        let f = &g.figures;
        let fields = [f.sign_entropy, f.exponent_entropy, f.mantissa_entropy];
        let left = (f.element_bits - fields.iter().sum::<f64>()).max(0.0);
        Bar {
            name: g.name.clone(),
            label: format!("{:.2} of {:.2} bits", f.lmc_bits, f.element_bits),
            parts: fields.into_iter().chain([left]).collect(),
            mark: Some(f.lmc_bits),
        }
    });
    Bars {
        title: "Entropy of the fields of an element, and what lmc makes of it (the line), in the last checkpoint",
        x: "bits an element",
        parts: vec![(Some(0), "sign"), (Some(1), "exponent"), (Some(3), "mantissa"), (None, "saved")],
        mark: "lmc",
        bars: bar.collect(),
    }
}

/// How many floats have each exponent: the distribution of their magnitudes, in a logarithmic scale.
fn magnitudes(a: &Analysis) -> Lines {
    let groups = a.magnitudes.iter().filter(|g| g.kind != Kind::Other);
    let groups = groups.map(|g| (g.kind, &g.dtype[..], g.lowest, &g.counts[..], g.counts.iter().sum()));
    Lines {
        title: "Magnitudes of floats other than zero, in the last checkpoint",
        x: "exponent: from 2^x to below 2^(x+1)",
        y: "% of them",
        unit: Unit::Share,
        log: false,
        lines: Line::of_groups(groups),
    }
}

/// The curves over steps and distances.
fn steps(a: &Analysis) -> Vec<Lines> {
    let (step, distance) = match a.steps_from {
        StepsFrom::Places => ("checkpoint", "distance in checkpoints, log scale"),
        _ => ("step", "distance in steps, log scale"),
    };
    let over_steps = |title, y, unit, lines| Lines { title, x: step, y, unit, log: spans(a), lines };
    let deltas = Lines {
        title: "Size of deltas by distance",
        x: distance,
        y: "% of raw size",
        unit: Unit::Share,
        log: true,
        lines: by_kind_of_deltas(a),
    };
    let changed = by_kind(|kind| {
        a.pairs.iter().filter_map(move |p| {
            let of = p.groups.iter().filter(|g| g.kind == kind);
            let (n, of) = of.fold((0, 0), |(c, n), g| (c + g.change.changed, n + g.change.compared));
            Some((a.checkpoints[p.to].step as f64, part(n, of)?))
        })
    });
    let changes = "Elements that changed since the checkpoint before";
    vec![
        deltas,
        bounds(a, distance),
        xor(a, distance),
        over_steps(changes, "% of elements", Unit::Share, changed),
        over_steps(DENSITY, "% of them", Unit::Share, density(a)),
        over_steps("Size by itself", "lmc, bits an element", Unit::Bits, of_kinds(a, |f| f.lmc_bits)),
        over_steps("Entropy of exponents", "bits an element", Unit::Bits, of_kinds(a, |f| f.exponent_entropy)),
        how_far(a),
    ]
}

/// The title of a chart.
const DENSITY: &str = "16-bit weights that a step of Adam changed, and was predicted to";

/// Deltas of floats beside the entropy of their differences.
fn bounds(a: &Analysis, distance: &'static str) -> Lines {
    let line = |size: fn(&FloatDelta) -> u64| {
        a.distances.iter().filter_map(move |d| Some((d.steps as f64, part(size(&d.floats), d.floats.raw_size)?)))
    };
    Lines {
        title: "Deltas of floats, and the entropy H of their differences",
        x: distance,
        y: "% of raw size",
        unit: Unit::Share,
        log: true,
        lines: named([
            ("lmc", engines::LMC, line(|f| f.delta_size).collect()),
            ("H", ALL, line(|f| f.entropy_size).collect()),
        ]),
    }
}

/// Deltas of samples beside the entropy, and another compressor on the exclusive or.
fn xor(a: &Analysis, distance: &'static str) -> Lines {
    let of = |size: fn(&EngineDistance) -> Option<u64>| {
        let all = a.engines.iter().flat_map(|e| &e.distances);
        all.filter_map(|d| Some((d.steps as f64, part(size(d)?, d.raw_size)?))).collect()
    };
    let by = a.engines.as_ref().map_or("", |e| &e.xor_by);
    let (xor, grouped) = (format!("XOR, {by}"), format!("XOR, grouped, {by}"));
    Lines {
        title: "Deltas of samples by lmc, by another compressor on the XOR, and the entropy H",
        x: distance,
        y: "% of raw size",
        unit: Unit::Share,
        log: true,
        lines: named([
            ("lmc", engines::LMC, of(|d| Some(d.lmc_size))),
            (&xor, engines::XOR, of(|d| Some(d.xor_size))),
            (&grouped, engines::XOR_GROUPED, of(|d| d.xor_grouped_size)),
            ("H", ALL, of(|d| d.entropy_size)),
        ]),
    }
}

/// How many weights steps of Adam changed, and the predictions.
fn density(a: &Analysis) -> Vec<Line> {
    let of = |share: fn(&Density) -> f64| {
        let known = a.pairs.iter().filter_map(|p| Some((a.checkpoints.get(p.to)?.step as f64, p.density.as_ref()?)));
        known.map(|(step, d)| (step, share(d))).collect()
    };
    named([
        ("changed", 0, of(|d| d.changed as f64 / d.elements.max(1) as f64)),
        ("predicted", 3, of(|d| d.predicted)),
        ("at the fitted rate", 6, of(|d| d.at_most)),
    ])
}

/// Points of a line, by x.
type Points = Vec<(f64, f64)>;

/// Lines with names and numbers of colours; those without points are left out.
fn named<const N: usize>(lines: [(&str, usize, Points); N]) -> Vec<Line> {
    let line = |(name, colour, points): (&str, usize, _)| Line { name: name.to_owned(), colour, nth: 0, points };
    lines.map(line).into_iter().filter(|l| !l.points.is_empty()).collect()
}

fn part(n: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| n as f64 / of as f64)
}

/// Whether steps span several orders of magnitude, so that the axis must be logarithmic.
fn spans(a: &Analysis) -> bool {
    let (Some(first), Some(last)) = (a.checkpoints.first(), a.checkpoints.last()) else { return false };
    first.step > 0 && last.step / first.step >= 32 && a.checkpoints.len() > 3
}

/// A line for each kind that has points.
fn by_kind<I: Iterator<Item = (f64, f64)>>(points: impl Fn(Kind) -> I) -> Vec<Line> {
    let kinds = Kind::ALL.into_iter().enumerate().filter(|(_, kind)| *kind != Kind::Other);
    let lines = kinds.map(|(colour, kind)| Line {
        name: kind.name().to_owned(),
        colour,
        nth: 0,
        points: points(kind).collect(),
    });
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
    lines.push(Line { name: "all".to_owned(), colour: ALL, nth: 0, points: all.collect() });
    lines
}

/// How far elements moved, of all pairs together.
fn how_far(a: &Analysis) -> Lines {
    let groups = a.changes.iter().filter(|g| g.kind != Kind::Other);
    Lines::of_distances(groups.map(|g| (g.kind, &g.dtype[..], &g.change.distances[..], g.change.compared)))
}
