//! The study in the page, with as much detail as there is room for.

use crate::analyze::result::{Analysis, Course};
use crate::page::ROOM;
use crate::page::html::{json, json_within};

/// A step towards less detail.
type Less = fn(&mut Analysis);

/// What is left out, one after the other, until the rest fits, and what is missing then.
const STEPS: [(Less, &str); 4] = [
    (without_curves, "curves and distances of single tensors, groups of single pairs"),
    (|a| a.tensors.clear(), "single tensors, and groups of single pairs"),
    (without_checkpoints, "single tensors, checkpoints and pairs"),
    (without_sums, "all but the changes by kind and dtype"),
];

/// The study as JSON, and the parts that are left out.
pub(super) fn brief(a: &Analysis) -> (String, Option<&'static str>) {
    if let Some(whole) = json_within(a, ROOM) {
        return (whole, None);
    }
    let mut a = a.clone();
    for (less, left_out) in STEPS {
        less(&mut a);
        if let Some(text) = json_within(&a, ROOM) {
            return (text, Some(left_out));
        }
    }
    (json(&a), Some(STEPS[STEPS.len() - 1].1))
}

fn without_curves(a: &mut Analysis) {
    for t in &mut a.tensors {
        t.course = Course::default();
        t.change.iter_mut().for_each(|c| c.distances.clear());
    }
    for p in &mut a.pairs {
        p.groups.clear();
        p.missing_names.clear();
        p.new_names.clear();
    }
    a.deltas.clear();
}

fn without_checkpoints(a: &mut Analysis) {
    a.checkpoints.clear();
    a.pairs.clear();
    a.metrics.clear();
    a.layers.clear();
    a.kinds.clear();
}

fn without_sums(a: &mut Analysis) {
    a.magnitudes.clear();
    a.distances.clear();
    a.engines = None;
}
