//! The findings in sentences, with advice.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use super::result::{Analysis, Distance, Group, GroupDelta, NEARLY_ALL, Pair, Tensor};
use crate::kind::Kind;
use crate::text::{agreeing, bytes, count, name, percent, share};

/// Names that a sentence lists at most.
const LISTED: usize = 3;

/// Sentences about a study, each computed from its figures.
pub(super) fn advice(a: &Analysis) -> Vec<String> {
    let mut said = Vec::new();
    let Some(last) = a.checkpoints.last() else { return said };
    said.push(format!(
        "The last checkpoint takes {} of its {} by itself.",
        percent(last.all.lmc_size, last.all.raw_size),
        bytes(last.all.raw_size)
    ));
    let names = &Names::new(a);
    deltas(a, &mut said);
    come_and_go(a, &mut said);
    density(a, &mut said);
    sixteen_bits(a, &last.kinds, &mut said);
    never_change(a, names, &mut said);
    duplicates(a, names, &mut said);
    fits(a, names, &mut said);
    quantised(a, names, &mut said);
    for g in last.kinds.iter().filter(|g| g.name != Kind::Other.name() && 2 * g.figures.zeros > g.figures.elements) {
        said.push(format!("{} of {} is zero.", percent(g.figures.zeros, g.figures.elements), g.name));
    }
    let bad: Vec<&Tensor> = a.tensors.iter().filter(|t| t.figures.not_finite > 0).collect();
    if !bad.is_empty() {
        let all: u64 = bad.iter().map(|t| t.figures.not_finite).sum();
        let are = agreeing(all, "value", "is", "are");
        said.push(format!("{are} not finite (infinite or no number), in {}.", names.listed(bad)));
    }
    said
}

/// The sizes of deltas, at the distance that most of them have, and at the longest.
fn deltas(a: &Analysis, said: &mut Vec<String>) {
    let (Some(usual), Some(first), Some(last)) = (a.usual_distance(), a.distances.first(), a.distances.last()) else {
        return;
    };
    let unit = a.steps_from.unit();
    let share = |d: &Distance| percent(d.delta_size, d.raw_size);
    let over = |d: &Distance| format!("{} ({})", count(d.steps, unit), count(d.deltas, "delta"));
    let other = if last.steps == usual.steps { first } else { last };
    said.push(if a.deltas.len() == 1 {
        format!("A delta over {} takes {} of the size.", count(usual.steps, unit), share(usual))
    } else {
        let more = match other.steps == usual.steps {
            true => String::new(),
            false => format!(", and {} over {}", share(other), over(other)),
        };
        format!("Deltas take {} of the size over {}{more}.", share(usual), over(usual))
    });
    let (delta, alone) = a.pairs.iter().fold((0, 0), |(d, l), p| (d + p.all.delta_size, l + p.all.lmc_size));
    if delta as f64 > 0.98 * alone as f64 {
        let later = a.pairs.iter().flat_map(|p| &a.checkpoints[p.to].kinds);
        let elements: u64 = later.filter(|g| g.name != Kind::Other.name()).map(|g| g.figures.elements).sum();
        let (changed, compared) = a.changed_elements();
        let why = match 2 * compared < elements {
            true => "few tensors have a counterpart in the checkpoint before".to_owned(),
            false => format!("{} of the elements change", percent(changed, compared)),
        };
        said.push(format!("Deltas from checkpoint to checkpoint save next to nothing; {why}."));
    }
    let every = if usual.steps == 1 { unit.to_owned() } else { count(usual.steps, unit) };
    if has_copies(a) {
        return;
    }
    if let Some(sentence) = states_and_weights(a, usual, last) {
        said.push(sentence);
        return;
    }
    for g in &usual.groups {
        let wanted = matches!(g.kind, Kind::Weights) && is_16_bit(&g.dtype);
        // Where nearly all are weights, the first sentence says it.
        let alone = g.raw_size > 0 && (g.raw_size as f64) < NEARLY_ALL * usual.raw_size as f64;
        if wanted && alone {
            let share = percent(g.delta_size, g.raw_size);
            said.push(format!("The {} weights every {every}: {share} of their size.", g.dtype));
        }
    }
}

fn is_16_bit(dtype: &str) -> bool {
    matches!(dtype, "BF16" | "F16")
}

/// Whether it is a 16-bit part of the model, embeddings and norms included.
fn is_of_16_bit_model(kind: Kind, dtype: &str) -> bool {
    matches!(kind, Kind::Weights | Kind::Embedding | Kind::Norm) && is_16_bit(dtype)
}

/// What to save of a run whose checkpoints are states of training: whole ones over the longest distance, and the 16-bit weights between them,
/// embeddings and norms included, if that takes less than half of whole states over the usual distance.
fn states_and_weights(a: &Analysis, usual: &Distance, longest: &Distance) -> Option<String> {
    let of_states = |g: &GroupDelta| matches!(g.kind, Kind::Master | Kind::ExpAvg | Kind::ExpAvgSq) && g.raw_size > 0;
    if longest.steps <= usual.steps || !usual.groups.iter().any(of_states) {
        return None;
    }
    let of_weights = |g: &&GroupDelta| is_of_16_bit_model(g.kind, &g.dtype) && g.raw_size > 0;
    let weights: Vec<&GroupDelta> = usual.groups.iter().filter(of_weights).collect();
    let dtype = &weights.first()?.dtype[..];
    let dtype = if weights.iter().all(|g| g.dtype == dtype) { dtype } else { "16-bit" };
    let (raw_size, delta_size) =
        weights.iter().fold((0, 0), |(raw, delta), g| (raw + g.raw_size, delta + g.delta_size));
    let unit = a.steps_from.unit();
    let every = |d: &Distance| if d.steps == 1 { unit.to_owned() } else { count(d.steps, unit) };
    let a_step = |size: u64, d: &Distance| size as f64 / (d.deltas as f64 * d.steps as f64);
    let whole = a_step(usual.delta_size, usual);
    let both = a_step(longest.delta_size, longest) + a_step(delta_size, usual);
    (2.0 * both < whole).then(|| {
        format!(
            "Save whole states every {} ({} of their size as deltas), and the {} weights alone every {} ({} of theirs): \
             {} a {unit}, and not the {} of whole states every {}.",
            every(longest),
            percent(longest.delta_size, longest.raw_size),
            dtype,
            every(usual),
            percent(delta_size, raw_size),
            bytes(both.round() as u64),
            bytes(whole.round() as u64),
            every(usual),
        )
    })
}

/// Tensors that are in one of two checkpoints alone.
fn come_and_go(a: &Analysis, said: &mut Vec<String>) {
    let all = |of: &dyn Fn(&Pair) -> (u64, &[String])| {
        let n: u64 = a.pairs.iter().map(|p| of(p).0).sum();
        // Of all that are known, the first ones.
        let mut names: Vec<&str> = Vec::new();
        for known in a.pairs.iter().flat_map(|p| of(p).1) {
            if names.len() < LISTED && !names.contains(&&known[..]) {
                names.push(known);
            }
        }
        let more = if n > names.len() as u64 { " and others" } else { "" };
        (n, format!("{}{more}", names.into_iter().map(name).collect::<Vec<_>>().join(", ")))
    };
    let (missing, gone) = all(&|p| (p.missing_tensors, &p.missing_names));
    let (new, come) = all(&|p| (p.new_tensors, &p.new_names));
    if missing > 0 {
        let are = agreeing(missing, "tensor", "is", "are");
        said.push(format!("{are} missing in the checkpoint after: {gone}."));
    }
    if new > 0 {
        let have = agreeing(new, "tensor", "has", "have");
        said.push(format!("{have} no counterpart in the checkpoint before: {come}."));
    }
}

/// The share of the changes of fp32 copies that a rate must explain, to conclude that Adam updated them.
const BY_ADAM: f64 = 0.9;

/// How many weights a step changes, the last one that is known.
fn density(a: &Analysis, said: &mut Vec<String>) {
    let known = a.pairs.iter().rev().find_map(|p| Some((p, p.density?)));
    let Some((pair, d)) = known.filter(|(_, d)| d.explained >= BY_ADAM) else { return };
    // Updates are larger than the rate early in a run.
    let full = match d.at_most * d.elements as f64 >= d.changed as f64 {
        true => format!(", and updates as large as the rate {}", share(d.at_most)),
        false => String::new(),
    };
    said.push(format!(
        "Step {} changed {} of the 16-bit weights that have copies: at a fitted rate of {:.2e} (it includes Adam's bias \
         correction), Adam's moments predict {}{full}.",
        a.checkpoints[pair.to].step,
        percent(d.changed, d.elements),
        d.learning_rate,
        share(d.predicted),
    ));
}

/// Whether there are copies that 16-bit weights are rounded from.
fn has_copies(a: &Analysis) -> bool {
    a.tensors.iter().any(|t| t.kind == Kind::Master && t.dtype == "F32")
}

/// Weights that follow from their copies.
fn sixteen_bits(a: &Analysis, kinds: &[Group], said: &mut Vec<String>) {
    let narrow = |t: &&Tensor| is_of_16_bit_model(t.kind, &t.dtype);
    let sizes =
        a.tensors.iter().filter(narrow).fold((0, 0), |s, t| (s.0 + t.figures.raw_size, s.1 + t.figures.lmc_size));
    let copies = kinds.iter().any(|g| g.name == Kind::Master.name());
    if copies && sizes.0 > 0 && 10 * sizes.1 < sizes.0 {
        said.push(format!(
            "The 16-bit weights are rounded from the master copies beside them, and take {} of their size.",
            percent(sizes.1, sizes.0)
        ));
    }
}

fn never_change(a: &Analysis, names: &Names<'_>, said: &mut Vec<String>) {
    let same = |t: &&Tensor| t.change.as_ref().is_some_and(|c| c.never_changes(a.pairs.len()));
    let same: Vec<&Tensor> = a.tensors.iter().filter(same).collect();
    if !same.is_empty() {
        let n = same.len() as u64;
        said.push(format!("{}: {}.", agreeing(n, "tensor", "never changes", "never change"), names.listed(same)));
    }
}

/// Whether all elements are the same: such tensors, and single numbers, equal others and fit narrow types by nature.
fn is_constant(t: &Tensor) -> bool {
    let f = &t.figures;
    f.sign_entropy + f.exponent_entropy + f.mantissa_entropy == 0.0
}

fn duplicates(a: &Analysis, names: &Names<'_>, said: &mut Vec<String>) {
    let various = a.tensors.iter().filter(|t| !is_constant(t));
    let mut pairs: Vec<(&Tensor, &Tensor)> =
        various.filter_map(|t| Some((t, a.tensors.get(t.duplicate_of?)?))).collect();
    pairs.sort_by_key(|(t, _)| Reverse(t.figures.raw_size));
    let [(t, of), rest @ ..] = &pairs[..] else { return };
    let more = match rest.len() {
        0 => String::new(),
        n => format!(", and {} of others", count(n as u64, "duplicate")),
    };
    let size: u64 = pairs.iter().map(|(t, _)| t.figures.raw_size).sum();
    said.push(format!("{} equals {}{more}: {} in all.", names.of(t), names.of(of), bytes(size)));
}

fn fits(a: &Analysis, names: &Names<'_>, said: &mut Vec<String>) {
    for narrow in ["BF16", "F16", "F32", "F8_E5M2"] {
        let fit: Vec<&Tensor> =
            a.tensors.iter().filter(|t| t.fits.as_deref() == Some(narrow) && !is_constant(t)).collect();
        if !fit.is_empty() {
            let n = fit.len() as u64;
            let size: u64 = fit.iter().map(|t| t.figures.raw_size).sum();
            let listed = names.listed(fit);
            let thing = |s: &str| format!("of {} {s} only values of {narrow}: {listed}.", bytes(size));
            said.push(agreeing(n, "tensor", &thing("has"), &thing("have")));
        }
    }
}

/// Weights that had fewer bits.
fn quantised(a: &Analysis, names: &Names<'_>, said: &mut Vec<String>) {
    let formats: BTreeSet<&str> = a.tensors.iter().filter_map(|t| t.quantised.as_deref()).collect();
    for (format, whole) in formats.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let one = |t: &&Tensor| t.quantised.as_deref() == Some(format) && (t.quantised_part >= NEARLY_ALL) == whole;
        let of: Vec<&Tensor> = a.tensors.iter().filter(one).collect();
        if of.is_empty() {
            continue;
        }
        let n = of.len() as u64;
        let sum = |f: &dyn Fn(&Tensor) -> u64| of.iter().map(|t| f(t)).sum::<u64>();
        let (raw, coded) = (sum(&|t| t.figures.raw_size), sum(&|t| t.figures.lmc_size));
        let on_grid: f64 = of.iter().map(|t| t.quantised_part * t.figures.raw_size as f64).sum();
        let listed = names.listed(of);
        let thing = |verb: &str| match whole {
            true => format!("{verb} dequantised, from {format}: {} in {}: {listed}.", bytes(raw), bytes(coded)),
            false => format!(
                "{verb} partly dequantised ({} of {}), from {format}: {listed}.",
                share(on_grid / raw as f64),
                bytes(raw)
            ),
        };
        said.push(agreeing(n, "tensor", &thing("was"), &thing("were")));
    }
}

/// Names of tensors, as sentences have them.
struct Names<'a> {
    /// Those that several tensors have.
    several: HashSet<&'a str>,
    files: &'a [String],
}

impl<'a> Names<'a> {
    fn new(a: &'a Analysis) -> Self {
        let (mut once, mut several) = (HashSet::new(), HashSet::new());
        for t in &a.tensors {
            if !once.insert(&t.name[..]) {
                several.insert(&t.name[..]);
            }
        }
        Self { several, files: a.checkpoints.last().map_or(&[], |last| &last.files) }
    }

    /// The name of a tensor, if necessary with its file.
    fn of(&self, t: &Tensor) -> String {
        match self.files.get(t.file).filter(|_| self.several.contains(&t.name[..])) {
            Some(file) => format!("{} of {}", name(&t.name), name(file)),
            None => name(&t.name),
        }
    }

    /// The names of the largest.
    fn listed(&self, mut tensors: Vec<&Tensor>) -> String {
        tensors.sort_by_key(|t| Reverse(t.figures.raw_size));
        let mut names: Vec<String> = tensors.iter().take(LISTED).map(|t| self.of(t)).collect();
        if tensors.len() > LISTED {
            names.push(format!("and {} more", tensors.len() - LISTED));
        }
        names.join(", ")
    }
}
