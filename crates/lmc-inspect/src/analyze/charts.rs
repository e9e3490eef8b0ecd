//! The charts of a study.

mod engines;
mod flips;
mod layers;

use super::input::StepsFrom;
use super::result::{Analysis, Course, EngineDistance, Figures, FloatDelta, GroupDelta};
use crate::kind::Kind;
use crate::page::chart::{Bar, Bars, HeatMap, Line, Lines, Scatter, Unit};

/// The colour of figures over all kinds.
const ALL: usize = 7;

/// Metrics that are drawn at most.
const METRICS: usize = 12;

/// The charts to draw.
pub(super) struct Charts<'a> {
    /// What was recorded, and how weights moved.
    pub(super) training: Vec<Lines<'a>>,
    /// How far the weights of each layer moved in each pair.
    pub(super) layers: Option<HeatMap>,
    /// The bits of the fields of elements, in the last checkpoint.
    pub(super) fields: Bars,
    /// How large floats are, in the last checkpoint.
    pub(super) magnitudes: Lines<'a>,
    /// The curves over steps and distances.
    pub(super) steps: Vec<Lines<'a>>,
    /// Which bits change, by dtype, the largest first.
    pub(super) flips: Vec<HeatMap>,
    /// Sizes and speeds of other compressors.
    pub(super) engines: Vec<Scatter>,
}

impl<'a> Charts<'a> {
    pub(super) fn of(a: &'a Analysis) -> Self {
        Self {
            training: training(a),
            layers: layers::map(a),
            fields: fields(a),
            magnitudes: magnitudes(a),
            steps: steps(a),
            flips: flips::maps(a),
            engines: engines::plots(a),
        }
    }
}

/// What was recorded over the steps, and how the weights moved.
fn training(a: &Analysis) -> Vec<Lines<'_>> {
    let x = a.steps_from.unit();
    let mut first: Vec<_> = a.metrics.iter().collect();
    // The loss comes first.
    first.sort_by_key(|m| !m.name.contains("loss"));
    let metric = first.into_iter().take(METRICS).enumerate().map(|(i, m)| {
        let points: Points = m.points.iter().map(|&(step, y)| (step as f64, y)).collect();
        let spikes = m.spikes.iter().map(|&i| points[i]).collect();
        let line = Line { name: crate::text::name(&m.name), colour: i % ALL, nth: 0, points, spikes };
        let about = "As it was recorded during training. Circles mark spikes: points far above those around them.";
        Lines { title: &m.name, about, x, y: "value", unit: Unit::Number, log: false, log_y: false, lines: vec![line] }
    });
    let over = |title, about, y, of: fn(&Course) -> &[Option<f32>], (unit, log_y): (Unit, bool)| {
        let lines = a.kinds.iter().map(|k| {
            let values = of(&k.course);
            // Those of pairs belong to the later checkpoint.
            let later = a.checkpoints.len() - values.len().min(a.checkpoints.len());
            let point = |i: usize| {
                let y = f64::from(values.get(i).copied().flatten()?);
                (!log_y || y > 0.0).then_some((a.checkpoints[i + later].step as f64, y))
            };
            // Spikes are those of the ratio.
            let spikes = k.course.spikes.iter().filter(|_| later > 0 && log_y).filter_map(|&i| point(i)).collect();
            let colour = Kind::ALL.iter().position(|kind| kind.name() == k.name).unwrap_or(0);
            Line { name: k.name.clone(), colour, nth: 0, points: (0..values.len()).filter_map(point).collect(), spikes }
        });
        let lines = lines.filter(|l| !l.points.is_empty()).collect();
        Lines { title, about, x, y, unit, log: false, log_y, lines }
    };
    let moved = [
        over(
            "How far weights move, ‖Δw‖ / ‖w‖",
            "The norm of the update over the norm of the weights before. About 1e-3 a step is usual in pretraining, \
             much less in fine-tuning; it follows the learning rate. A circle is a spike: look at the loss there.",
            "ratio, log scale",
            |c| &c.ratio,
            (Unit::Number, true),
        ),
        over(
            "Cosine of successive updates",
            "1: the weights go on in the same direction; 0: each update forgets the one before; below 0: they swing \
             back. Updates of one step of Adam share most of their momentum.",
            "cosine",
            |c| &c.cosine,
            (Unit::Number, false),
        ),
        over(
            "RMS of the weights",
            "The root of the mean square. It grows slowly, or falls to a level that weight decay holds; a jump is unusual.",
            "root mean square, log scale",
            |c| &c.rms,
            (Unit::Number, true),
        ),
        over(
            "RMS of the updates",
            "The root of the mean square of the differences of two checkpoints. For one step of Adam it is at most about the learning rate.",
            "root mean square, log scale",
            |c| &c.update_rms,
            (Unit::Number, true),
        ),
        over(
            "Elements that changed since the checkpoint before",
            "Updates below half a unit in the last place change nothing: at small learning rates most 16-bit weights stay.",
            "% of elements",
            |c| &c.changed,
            (Unit::Share, false),
        ),
    ];
    metric.chain(moved).collect()
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
        about: "Grey is what an ideal code saves that knows how often each value of a field occurs. In trained weights it \
                is five to six bits of the exponent; signs and mantissas are noise.",
        x: "bits an element",
        parts: vec![(Some(0), "sign"), (Some(1), "exponent"), (Some(3), "mantissa"), (None, "saved")],
        mark: "lmc",
        bars: bar.collect(),
    }
}

/// How many floats have each exponent: the distribution of their magnitudes, in a logarithmic scale.
fn magnitudes(a: &Analysis) -> Lines<'_> {
    let groups = a.magnitudes.iter().filter(|g| g.kind != Kind::Other);
    let groups = groups.map(|g| (g.kind, &g.dtype[..], g.lowest, &g.counts[..], g.counts.iter().sum()));
    Lines {
        title: "Magnitudes of floats other than zero, in the last checkpoint",
        about: "One hill for each kind is normal; few floats far to the right are outliers, many far to the left underflow.",
        x: "exponent: from 2^x to below 2^(x+1)",
        y: "% of them",
        unit: Unit::Share,
        log: false,
        log_y: false,
        lines: Line::of_groups(groups),
    }
}

/// The curves of sizes over steps and distances.
fn steps(a: &Analysis) -> Vec<Lines<'_>> {
    let distance = match a.steps_from {
        StepsFrom::Places => "distance in checkpoints, log scale",
        _ => "distance in steps, log scale",
    };
    let shares =
        |title, about, log, x, y, lines| Lines { title, about, x, y, unit: Unit::Share, log, log_y: false, lines };
    let by_distance = |title, about, lines| shares(title, about, true, distance, "% of raw size", lines);
    let how_far = a.changes.iter().filter(|g| g.kind != Kind::Other);
    let how_far = how_far.map(|g| (g.kind, &g.dtype[..], 0, &g.change.distances[..], g.change.compared));
    vec![
        by_distance(
            "Size of deltas by distance",
            "What a checkpoint takes given one before it. It grows by a few points with each doubling of the distance.",
            by_kind_of_deltas(a),
        ),
        by_distance(
            "Deltas of floats, and the entropy H of their differences",
            "H is the least that a code takes which treats floats of one exponent alike: lmc near H has little left to gain.",
            bounds(a),
        ),
        by_distance(
            "Deltas of samples by lmc, by another compressor on the XOR, and the entropy H",
            "The same samples for all. XOR is the usual way to store deltas.",
            xor(a),
        ),
        Lines {
            title: "Size by itself",
            about: "What an element takes without a base. It hardly changes during training.",
            x: a.steps_from.unit(),
            y: "lmc, bits an element",
            unit: Unit::Bits,
            log: false,
            log_y: false,
            lines: of_kinds(a, |f| f.lmc_bits),
        },
        shares(
            "How far elements moved",
            "Of those that were compared in all pairs. A distance of 1 is the smallest change that a dtype has.",
            false,
            "distance in representable values: 2^x to 2^(x+1) − 1",
            "% of elements",
            Line::of_groups(how_far),
        ),
    ]
}

/// Deltas of floats beside the entropy of their differences.
fn bounds(a: &Analysis) -> Vec<Line> {
    let line = |size: fn(&FloatDelta) -> u64| {
        a.distances.iter().filter_map(move |d| Some((d.steps as f64, part(size(&d.floats), d.floats.raw_size)?)))
    };
    named([("lmc", engines::LMC, line(|f| f.delta_size).collect()), ("H", ALL, line(|f| f.entropy_size).collect())])
}

/// Deltas of samples beside the entropy, and another compressor on the exclusive or.
fn xor(a: &Analysis) -> Vec<Line> {
    let of = |size: fn(&EngineDistance) -> Option<u64>| {
        let all = a.engines.iter().flat_map(|e| &e.distances);
        all.filter_map(|d| Some((d.steps as f64, part(size(d)?, d.raw_size)?))).collect()
    };
    let by = a.engines.as_ref().map_or("", |e| &e.xor_by);
    let (xor, grouped) = (format!("XOR, {by}"), format!("XOR, grouped, {by}"));
    named([
        ("lmc", engines::LMC, of(|d| Some(d.lmc_size))),
        (&xor, engines::XOR, of(|d| Some(d.xor_size))),
        (&grouped, engines::XOR_GROUPED, of(|d| d.xor_grouped_size)),
        ("H", ALL, of(|d| d.entropy_size)),
    ])
}

/// Points of a line, by x.
type Points = Vec<(f64, f64)>;

/// Lines with names and numbers of colours; those without points are left out.
fn named<const N: usize>(lines: [(&str, usize, Points); N]) -> Vec<Line> {
    let line = |(name, colour, points): (&str, usize, _)| Line {
        name: name.to_owned(),
        colour,
        nth: 0,
        points,
        spikes: vec![],
    };
    lines.map(line).into_iter().filter(|l| !l.points.is_empty()).collect()
}

fn part(n: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| n as f64 / of as f64)
}

/// A line for each kind that has points.
fn by_kind<I: Iterator<Item = (f64, f64)>>(points: impl Fn(Kind) -> I) -> Vec<Line> {
    let kinds: [Kind; 6] = std::array::from_fn(|i| Kind::ALL[i]);
    let mut colours = 0..;
    named(kinds.map(|kind| (kind.name(), colours.next().unwrap_or(0), points(kind).collect())))
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
    lines.extend(named([("all", ALL, all.collect())]));
    lines
}
