//! The findings in sentences.

use std::cmp::Reverse;

use super::input::StepsFrom;
use super::result::{Analysis, Distance, NEARLY_ALL, Pair, Tensor};
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
    if a.sample > 1 {
        said.push(format!(
            "Other sizes are estimates from one of {} blocks: --exact compresses all of them.",
            a.sample
        ));
    }
    deltas(a, &mut said);
    spikes(a, &mut said);
    come_and_go(a, &mut said);
    let mut tell = |what: &dyn Fn(&Tensor) -> bool, one: &str, more: &str| {
        let mut of: Vec<&Tensor> = a.tensors.iter().filter(|t| what(t)).collect();
        of.sort_by_key(|t| Reverse(t.figures.raw_size));
        if !of.is_empty() {
            let size = bytes(of.iter().map(|t| t.figures.raw_size).sum());
            said.push(format!("{} ({size}): {}.", agreeing(of.len() as u64, "tensor", one, more), listed(&of)));
        }
    };
    let never = |t: &Tensor| t.change.as_ref().is_some_and(|c| c.never_changes(a.pairs.len()));
    tell(&never, "never changes", "never change");
    tell(&|t| t.duplicate_of.is_some() && !is_constant(t), "equals an earlier one", "equal earlier ones");
    for narrow in ["BF16", "F16", "F32", "F8_E5M2"] {
        let only = |verb| format!("{verb} only values of {narrow}");
        let fits = |t: &Tensor| t.fits.as_deref() == Some(narrow) && !is_constant(t);
        tell(&fits, &only("has"), &only("have"));
    }
    tell(&|t| t.quantised_part >= NEARLY_ALL, "was dequantised", "were dequantised");
    tell(&|t| (1e-9..NEARLY_ALL).contains(&t.quantised_part), "was dequantised in part", "were dequantised in part");
    tell(&|t| t.figures.not_finite > 0, "has values that are not finite", "have values that are not finite");
    said
}

/// The sizes of deltas, at the distance that most of them have, and at the longest.
fn deltas(a: &Analysis, said: &mut Vec<String>) {
    let (Some(usual), Some(first), Some(last)) = (a.usual_distance(), a.distances.first(), a.distances.last()) else {
        return;
    };
    let unit = a.steps_from.unit();
    let size = |d: &Distance| percent(d.delta_size, d.raw_size);
    let over = |d: &Distance| format!("{} ({})", count(d.steps, unit), count(d.deltas, "delta"));
    let other = if last.steps == usual.steps { first } else { last };
    let more = match other.steps == usual.steps {
        true => String::new(),
        false => format!(", and {} over {}", size(other), over(other)),
    };
    said.push(format!("Deltas take {} of the size over {}{more}.", size(usual), over(usual)));
    let (delta, alone) = a.pairs.iter().fold((0, 0), |(d, l), p| (d + p.all.delta_size, l + p.all.lmc_size));
    if delta as f64 > 0.98 * alone as f64 {
        let (changed, compared) = a.changed_elements();
        let changed = percent(changed, compared);
        said.push(format!("They save next to nothing: of the elements that have a counterpart, {changed} change."));
    }
}

/// Steps at which the weights, or a metric, stand out.
fn spikes(a: &Analysis, said: &mut Vec<String>) {
    let at = |steps: Vec<u64>| {
        let more = if steps.len() > LISTED { " and others" } else { "" };
        let first: Vec<String> = steps.iter().take(LISTED).map(u64::to_string).collect();
        format!("{} {}{more}", if a.steps_from == StepsFrom::Places { "checkpoint" } else { "step" }, first.join(", "))
    };
    let ends = |pairs: &[usize]| pairs.iter().map(|&p| a.checkpoints[p + 1].step).collect::<Vec<_>>();
    let kinds = a.kinds.iter().map(|k| (format!("Updates of {}", k.name), ends(&k.course.spikes)));
    let metrics = a.metrics.iter().map(|m| (name(&m.name), m.spikes.iter().map(|&i| m.points[i].0).collect()));
    for (what, steps) in kinds.chain(metrics).filter(|s: &(_, Vec<u64>)| !s.1.is_empty()) {
        said.push(format!("{what}: {} at {}.", count(steps.len() as u64, "spike"), at(steps)));
    }
}

/// Tensors that are in one of two checkpoints alone.
fn come_and_go(a: &Analysis, said: &mut Vec<String>) {
    let mut tell = |of: &dyn Fn(&Pair) -> (u64, &[String]), [one, more]: [&str; 2]| {
        let n: u64 = a.pairs.iter().map(|p| of(p).0).sum();
        // Of all that are known, the first ones.
        let mut names: Vec<&str> = Vec::new();
        for known in a.pairs.iter().flat_map(|p| of(p).1) {
            if names.len() < LISTED && !names.contains(&&known[..]) {
                names.push(known);
            }
        }
        if n > 0 {
            let others = if n > names.len() as u64 { " and others" } else { "" };
            let names = names.into_iter().map(name).collect::<Vec<_>>().join(", ");
            said.push(format!("{}: {names}{others}.", agreeing(n, "tensor", one, more)));
        }
    };
    let missing = ["is missing in the checkpoint after", "are missing in the checkpoint after"];
    tell(&|p| (p.missing_tensors, &p.missing_names), missing);
    let new = ["has no counterpart in the checkpoint before", "have no counterpart in the checkpoint before"];
    tell(&|p| (p.new_tensors, &p.new_names), new);
}

/// Whether all elements are the same: such tensors, and single numbers, equal others and fit narrow types by nature.
fn is_constant(t: &Tensor) -> bool {
    let f = &t.figures;
    f.sign_entropy + f.exponent_entropy + f.mantissa_entropy == 0.0
}

/// The names of the first tensors, with the format of those that were dequantised.
fn listed(tensors: &[&Tensor]) -> String {
    let of = |t: &&Tensor| match &t.quantised {
        Some(format) if t.quantised_part < NEARLY_ALL => {
            format!("{} ({} {format})", name(&t.name), share(t.quantised_part))
        }
        Some(format) => format!("{} ({format})", name(&t.name)),
        None => name(&t.name),
    };
    let mut names: Vec<String> = tensors.iter().take(LISTED).map(of).collect();
    if tensors.len() > LISTED {
        names.push(format!("and {} more", tensors.len() - LISTED));
    }
    names.join(", ")
}
