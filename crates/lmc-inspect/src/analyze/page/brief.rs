//! The study in the page, with as much detail as there is room for.

use crate::analyze::result::Analysis;
use crate::analyze::spelled;

use super::html::json;

/// Bytes of JSON that a page has room for.
const ROOM: usize = 110_000;

/// The study as JSON, and what is left out of it.
pub(super) fn brief(a: &Analysis) -> (String, Option<&'static str>) {
    let whole = json(a);
    if whole.len() <= ROOM {
        return (whole, None);
    }
    let mut a = a.clone();
    for c in a.tensors.iter_mut().filter_map(|t| t.change.as_mut()) {
        c.changed_by_pair.clear();
        c.distances.clear();
        c.flips.clear();
    }
    for g in a.pairs.iter_mut().flat_map(|p| &mut p.groups) {
        g.flips.clear();
        g.change.distances.clear();
    }
    let text = json(&a);
    if text.len() <= ROOM {
        return (text, Some("flips and distances of single tensors and pairs"));
    }
    a.pairs.iter_mut().for_each(|p| p.groups.clear());
    a.deltas.clear();
    a.tensors.iter_mut().for_each(|t| t.name = spelled::name(&t.name));
    let text = json(&a);
    if text.len() <= ROOM {
        return (text, Some("single deltas, groups of single pairs, flips and distances of single tensors"));
    }
    a.tensors.clear();
    let text = json(&a);
    if text.len() <= ROOM {
        return (text, Some("single tensors, single deltas, and groups of single pairs"));
    }
    a.checkpoints.iter_mut().for_each(|c| {
        c.files.clear();
        c.formats.clear();
        c.name = spelled::name(&c.name);
        c.kinds.clear();
        c.dtypes.clear();
    });
    let text = json(&a);
    if text.len() <= ROOM {
        return (text, Some("all but the sums over checkpoints, pairs and distances"));
    }
    a.checkpoints.clear();
    a.pairs.clear();
    a.distances.clear();
    (json(&a), Some("all but the changes by kind and dtype"))
}
