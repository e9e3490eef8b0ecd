//! The report as JSON.

use std::io::{Result, Write};
use std::path::Path;

use lmc::{Base, Dtype, Segment};
use lmc_inspect::{Changes, Compared, DiffSums, SegmentDiff};
use serde_json::{Map, Value, json};

use crate::ui::json::Object;

pub(super) fn write(c: &Compared<'_>, [old, new]: [&Path; 2], out: &mut dyn Write) -> Result<()> {
    let segments = c.new.iter().flat_map(|(file, d)| d.segments.iter().map(move |s| segment(c, file, s)));
    let missing = c.missing.iter().map(|&place| {
        let s = c.old_segment(place);
        let mut object = described(&c.old[place.0], s);
        object["raw_size"] = json!(s.len);
        object
    });
    let mut object = Object::begin(out)?;
    object.list("missing", missing)?;
    object.field("new", &json!(new.to_string_lossy()))?;
    object.field("old", &json!(old.to_string_lossy()))?;
    object.list("segments", segments)?;
    object.field("total", &total(c))?;
    object.end().map(|_| ())
}

fn total(c: &Compared<'_>) -> Value {
    let [raw_size, delta_size, alone_size] = c.sizes();
    let (states, missing) = c.states();
    let states = states.into_iter().map(|(state, n)| (state.name(), n));
    let states = states.chain((missing > 0).then_some(("missing", missing)));
    let all = c.sums(|_| ()).remove(&()).unwrap_or_default();
    let of_dtype = |(dtype, s): (&Option<Dtype>, &DiffSums)| {
        json!({
            "dtype": dtype.as_ref().map(Dtype::name),
            "raw_size": s.raw_size,
            "delta_size": s.delta_size,
            "alone_size": s.alone_size,
            "elements": s.elements,
            "compared": s.changes.compared,
            "changed": s.changes.changed,
            "distance": distance(&s.changes),
        })
    };
    json!({
        "raw_size": raw_size,
        "delta_size": delta_size,
        "alone_size": alone_size,
        "elements": all.elements,
        "compared": all.changes.compared,
        "changed": all.changes.changed,
        "dtypes": c.sums(|s| s.segment.dtype).iter().map(of_dtype).collect::<Vec<_>>(),
        "states": states.map(|(s, n)| (s.to_owned(), json!(n))).collect::<Map<String, Value>>(),
    })
}

fn distance(c: &Changes) -> Option<Value> {
    c.quantile(1.0).map(|_| {
        json!({
            "log2": c.levels,
            "median": c.quantile(0.5),
            "p90": c.quantile(0.9),
            "p99": c.quantile(0.99),
            "max": c.largest,
        })
    })
}

fn segment(c: &Compared<'_>, file: &Base<'_>, s: &SegmentDiff) -> Value {
    let mut object = described(file, &s.segment);
    let [delta_bits, alone_bits] = s.bits().map_or([None; 2], |bits| bits.map(Some));
    let fields = [
        ("raw_size", json!(s.segment.len)),
        ("state", json!(s.state().name())),
        ("old", s.counterpart.map_or(Value::Null, |place| described(&c.old[place.0], c.old_segment(place)))),
        ("elements", json!(s.elements())),
        ("compared", json!(s.changes.compared)),
        ("changed", json!(s.changes.changed)),
        ("distance", json!(distance(&s.changes))),
        ("delta_size", json!(s.delta_size)),
        ("alone_size", json!(s.alone_size)),
        ("delta_bits", json!(delta_bits)),
        ("alone_bits", json!(alone_bits)),
        ("predictor", json!(s.coded.first().and_then(|c| c.predictor))),
        ("from_itself", json!(s.coded.first().is_some_and(|c| c.from_itself))),
    ];
    for (name, value) in fields {
        object[name] = value;
    }
    object
}

/// A segment, with its file.
fn described(file: &Base<'_>, s: &Segment) -> Value {
    json!({
        "file": file.name(),
        "name": s.name.as_deref(),
        "dtype": s.dtype.as_ref().map(lmc::Dtype::name),
        "shape": s.name.as_ref().map(|_| &s.shape[..]),
    })
}
