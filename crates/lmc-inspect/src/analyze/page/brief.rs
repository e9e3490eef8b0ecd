//! The study in the page, with as much detail as there is room for.

use crate::analyze::result::{Analysis, Change, GroupChange, Pair, Tensor, TensorChange};
use crate::page::ROOM;
use crate::page::html::{json, json_within};
use crate::text;

/// Bytes that a tensor takes at least.
const TENSOR: usize = 100;

/// The study as JSON, and the parts that are left out.
pub(super) fn brief(a: &Analysis) -> (String, Option<&'static str>) {
    if let Some(whole) = json_within(a, ROOM) {
        return (whole, None);
    }
    let mut a = without_details(a);
    let few = !a.tensors.is_empty();
    if few && let Some(text) = json_within(&a, ROOM) {
        return (text, Some("flips and distances of single tensors and pairs, names of tensors that come and go"));
    }
    a.pairs.iter_mut().for_each(|p| p.groups.clear());
    a.deltas.clear();
    a.tensors.iter_mut().for_each(|t| t.name = text::name(&t.name));
    if few && let Some(text) = json_within(&a, ROOM) {
        return (text, Some("single deltas, groups of single pairs, flips and distances of single tensors"));
    }
    a.tensors.clear();
    if let Some(text) = json_within(&a, ROOM) {
        return (text, Some("single tensors, single deltas, and groups of single pairs"));
    }
    a.checkpoints.iter_mut().for_each(|c| {
        c.files.clear();
        c.formats.clear();
        c.name = text::name(&c.name);
        c.kinds.clear();
        c.dtypes.clear();
    });
    if let Some(text) = json_within(&a, ROOM) {
        return (text, Some("all but the sums over checkpoints, pairs and distances"));
    }
    // Predictions stand in no sum. Their pairs name checkpoints by number.
    a.pairs.retain(|p| p.density.is_some());
    let mut named: Vec<usize> = a.pairs.iter().flat_map(|p| [p.from, p.to]).collect();
    named.sort_unstable();
    named.dedup();
    let number = |checkpoint| named.binary_search(&checkpoint).expect("it is in a pair");
    a.pairs.iter_mut().for_each(|p| (p.from, p.to) = (number(p.from), number(p.to)));
    a.checkpoints = named.iter().map(|&checkpoint| a.checkpoints[checkpoint].clone()).collect();
    if let Some(text) = json_within(&a, ROOM) {
        return (text, Some("all but the sums over distances, the changes by kind and dtype, and steps of Adam"));
    }
    a.pairs.clear();
    a.checkpoints.clear();
    a.magnitudes.clear();
    a.distances.clear();
    (json(&a), Some("all but the changes by kind and dtype"))
}

/// A copy without the figures by bit and by pair of single tensors and pairs, and without tensors if there are too many
/// for the page.
fn without_details(a: &Analysis) -> Analysis {
    let tensors = if a.tensors.len() <= ROOM / TENSOR { &a.tensors[..] } else { &[] };
    let change = |c: &TensorChange| TensorChange { flips: vec![], distances: vec![], changed_by_pair: vec![], ..*c };
    let tensor = |t: &Tensor| Tensor {
        name: t.name.clone(),
        dtype: t.dtype.clone(),
        shape: t.shape.clone(),
        figures: t.figures.clone(),
        fits: t.fits.clone(),
        quantised: t.quantised.clone(),
        change: t.change.as_ref().map(change),
        ..*t
    };
    let group = |g: &GroupChange| GroupChange {
        kind: g.kind,
        dtype: g.dtype.clone(),
        change: Change { distances: vec![], ..g.change },
        flips: vec![],
    };
    let pair = |p: &Pair| Pair {
        all: p.all.clone(),
        groups: p.groups.iter().map(group).collect(),
        missing_names: vec![],
        new_names: vec![],
        ..*p
    };
    Analysis {
        program: a.program.clone(),
        level: a.level.clone(),
        checkpoints: a.checkpoints.clone(),
        pairs: a.pairs.iter().map(pair).collect(),
        deltas: a.deltas.clone(),
        distances: a.distances.clone(),
        changes: a.changes.clone(),
        magnitudes: a.magnitudes.clone(),
        tensors: tensors.iter().map(tensor).collect(),
        engines: a.engines.clone(),
        advice: a.advice.clone(),
        ..*a
    }
}
