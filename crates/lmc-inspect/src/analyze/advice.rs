//! The findings in sentences, with advice.

use std::collections::BTreeSet;

use super::result::{Analysis, Distance, Group, Tensor};
use crate::kind::Kind;
use crate::spelled::{agreeing, bytes, count, name, percent, share};

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
    deltas(a, &mut said);
    density(a, &mut said);
    sixteen_bits(a, &last.kinds, &mut said);
    never_change(a, &mut said);
    duplicates(&a.tensors, &mut said);
    fits(&a.tensors, &mut said);
    quantised(&a.tensors, &mut said);
    for g in last.kinds.iter().filter(|g| g.name != Kind::Other.name() && 2 * g.figures.zeros > g.figures.elements) {
        said.push(format!("{} of {} is zero.", percent(g.figures.zeros, g.figures.elements), g.name));
    }
    let bad: Vec<&Tensor> = a.tensors.iter().filter(|t| t.figures.not_finite > 0).collect();
    if !bad.is_empty() {
        let all: u64 = bad.iter().map(|t| t.figures.not_finite).sum();
        let are = agreeing(all, "value", "is", "are");
        said.push(format!("{are} not finite (infinite or no number), in {}.", listed(&bad)));
    }
    said
}

/// The sizes of deltas, at the shortest and at the longest distance.
fn deltas(a: &Analysis, said: &mut Vec<String>) {
    let share = |d: &Distance| percent(d.delta_size, d.raw_size);
    match &a.distances[..] {
        [] => return,
        [one] => said.push(format!("A delta over {} takes {} of the size.", count(one.steps, "step"), share(one))),
        [first, .., last] => said.push(format!(
            "Deltas take {} of the size over {}, and {} over {}.",
            share(first),
            count(first.steps, "step"),
            share(last),
            count(last.steps, "step")
        )),
    }
    let (delta, alone) = a.pairs.iter().fold((0, 0), |(d, l), p| (d + p.all.delta_size, l + p.all.lmc_size));
    if delta as f64 > 0.98 * alone as f64 {
        said.push("Deltas from checkpoint to checkpoint save next to nothing: too much changes in between.".to_owned());
    }
    let Some(shortest) = a.distances.first() else { return };
    for g in &shortest.groups {
        let wanted = matches!(g.kind, Kind::Weights) && matches!(&g.dtype[..], "BF16" | "F16");
        if wanted && g.raw_size > 0 && (a.independent || !has_copies(a)) {
            let share = percent(g.delta_size, g.raw_size);
            said.push(format!("The {} weights every {}: {share} of their size.", g.dtype, steps(shortest.steps)));
        }
    }
}

/// The share of the changes of fp32 copies that a learning rate must explain, to conclude that Adam updated them.
const BY_ADAM: f64 = 0.9;

/// How many weights a step changes, the last one that is known.
fn density(a: &Analysis, said: &mut Vec<String>) {
    let known = a.pairs.iter().rev().find_map(|p| Some((p, p.density?)));
    let Some((pair, d)) = known.filter(|(_, d)| d.explained >= BY_ADAM) else { return };
    said.push(format!(
        "Step {} changed {} of the 16-bit weights that have copies: at a learning rate of {:.2e}, Adam's moments predict {}, and updates as \
         large as the learning rate {}.",
        a.checkpoints[pair.to].step,
        percent(d.changed, d.elements),
        d.learning_rate,
        share(d.predicted),
        share(d.at_most)
    ));
}

fn steps(n: u64) -> String {
    if n == 1 { "step".to_owned() } else { format!("{n} steps") }
}

/// Whether there are copies that 16-bit weights are rounded from.
fn has_copies(a: &Analysis) -> bool {
    a.tensors.iter().any(|t| t.kind == Kind::Master && t.dtype == "F32")
}

/// Weights that follow from their copies.
fn sixteen_bits(a: &Analysis, kinds: &[Group], said: &mut Vec<String>) {
    let narrow = |t: &&Tensor| {
        matches!(t.kind, Kind::Weights | Kind::Embedding | Kind::Norm) && matches!(&t.dtype[..], "BF16" | "F16")
    };
    let sizes =
        a.tensors.iter().filter(narrow).fold((0, 0), |s, t| (s.0 + t.figures.raw_size, s.1 + t.figures.lmc_size));
    let copies = kinds.iter().any(|g| g.name == Kind::Master.name());
    if copies && !a.independent && sizes.0 > 0 && 10 * sizes.1 < sizes.0 {
        said.push(format!(
            "The 16-bit weights are rounded from the master copies beside them, and take {} of their size; --independent tells what \
             they take alone.",
            percent(sizes.1, sizes.0)
        ));
    }
}

fn never_change(a: &Analysis, said: &mut Vec<String>) {
    let same = |t: &&Tensor| t.change.as_ref().is_some_and(|c| c.never_changes(a.pairs.len()));
    let same: Vec<&Tensor> = a.tensors.iter().filter(same).collect();
    if !same.is_empty() {
        let n = same.len() as u64;
        said.push(format!("{}: {}.", agreeing(n, "tensor", "never changes", "never change"), listed(&same)));
    }
}

fn duplicates(tensors: &[Tensor], said: &mut Vec<String>) {
    let pairs: Vec<(&Tensor, &Tensor)> =
        tensors.iter().filter_map(|t| Some((t, tensors.get(t.duplicate_of?)?))).collect();
    let [(t, of), rest @ ..] = &pairs[..] else { return };
    let more = match rest.len() {
        0 => String::new(),
        n => format!(", and {} of others", count(n as u64, "duplicate")),
    };
    let size: u64 = pairs.iter().map(|(t, _)| t.figures.raw_size).sum();
    said.push(format!("{} equals {}{more}: {} in all.", name(&t.name), name(&of.name), bytes(size)));
}

fn fits(tensors: &[Tensor], said: &mut Vec<String>) {
    for narrow in ["BF16", "F16", "F32", "F8_E5M2"] {
        let fit: Vec<&Tensor> = tensors
            .iter()
            .filter(|t| t.fits.as_deref() == Some(narrow) && t.figures.elements > t.figures.zeros)
            .collect();
        if !fit.is_empty() {
            let size: u64 = fit.iter().map(|t| t.figures.raw_size).sum();
            let thing = |s: &str| format!("of {} {s} only values of {narrow}: {}.", bytes(size), listed(&fit));
            said.push(agreeing(fit.len() as u64, "tensor", &thing("has"), &thing("have")));
        }
    }
}

/// Weights that had fewer bits.
fn quantised(tensors: &[Tensor], said: &mut Vec<String>) {
    let formats: BTreeSet<&str> = tensors.iter().filter_map(|t| t.quantised.as_deref()).collect();
    for format in formats {
        let of: Vec<&Tensor> = tensors.iter().filter(|t| t.quantised.as_deref() == Some(format)).collect();
        let sum = |f: &dyn Fn(&Tensor) -> u64| of.iter().map(|t| f(t)).sum::<u64>();
        let (raw, coded) = (sum(&|t| t.figures.raw_size), sum(&|t| t.figures.lmc_size));
        let thing = |verb: &str| {
            format!(
                "{verb} dequantised, from {format}: {} in {}, about what the original takes: {}.",
                bytes(raw),
                bytes(coded),
                listed(&of)
            )
        };
        said.push(agreeing(of.len() as u64, "tensor", &thing("was"), &thing("were")));
    }
}

/// The first few names.
fn listed(tensors: &[&Tensor]) -> String {
    let mut names: Vec<String> = tensors.iter().take(LISTED).map(|t| name(&t.name)).collect();
    if tensors.len() > LISTED {
        names.push(format!("and {} more", tensors.len() - LISTED));
    }
    names.join(", ")
}
