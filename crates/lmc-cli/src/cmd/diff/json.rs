//! The report as JSON.

use std::io::{Result, Write};
use std::path::Path;

use lmc::{Base, Segment};
use lmc_inspect::SegmentDiff;
use serde_json::{Map, Value, json};

use super::report::{Report, bits, elements};
use crate::json::Object;

impl Report {
    /// All of it, or without single tensors.
    pub(super) fn write_json(&self, old: &Path, new: &Path, whole: bool, out: &mut dyn Write) -> Result<()> {
        let t = &self.total;
        let segments = self.new.iter().flat_map(|(file, d)| d.segments.iter().map(move |s| self.segment(file, s)));
        let missing = self.missing.iter().map(|&(base, i)| {
            let s = &self.old[base].segments()[i];
            let mut object = described(&self.old[base], s);
            object["raw_size"] = json!(s.len);
            object
        });
        let states: Map<String, Value> = self.states().into_iter().map(|(s, n)| (s.to_owned(), json!(n))).collect();
        let total = json!({
            "raw_size": t.raw_size,
            "delta_size": t.delta_size,
            "alone_size": t.alone_size,
            "elements": t.elements,
            "compared": t.changes.compared,
            "changed": t.changes.changed,
            "states": states,
        });
        let mut object = Object::begin(out)?;
        if whole {
            object.list("missing", missing)?;
        }
        object.field("new", &json!(new.to_string_lossy()))?;
        object.field("old", &json!(old.to_string_lossy()))?;
        if whole {
            object.list("segments", segments)?;
        }
        object.field("total", &total)?;
        object.end().map(|_| ())
    }

    fn segment(&self, file: &Base<'_>, s: &SegmentDiff) -> Value {
        let mut object = described(file, &s.segment);
        let c = &s.changes;
        let fields = [
            ("raw_size", json!(s.segment.len)),
            ("state", json!(s.relation.name())),
            ("old", s.counterpart.map_or(Value::Null, |(b, i)| described(&self.old[b], &self.old[b].segments()[i]))),
            ("elements", json!(elements(&s.segment))),
            ("compared", json!(c.compared)),
            ("changed", json!(c.changed)),
            (
                "distance",
                c.quantile(1.0).map_or(Value::Null, |_| {
                    json!({
                        "log2": c.levels,
                        "median": c.quantile(0.5),
                        "p90": c.quantile(0.9),
                        "p99": c.quantile(0.99),
                        "max": c.largest,
                    })
                }),
            ),
            ("delta_size", json!(s.delta_size)),
            ("alone_size", json!(s.alone_size)),
            ("delta_bits", json!(bits(s.delta_size, &s.segment))),
            ("alone_bits", json!(bits(s.alone_size, &s.segment))),
            ("predictor", json!(s.coded.first().and_then(|c| c.predictor))),
            ("from_itself", json!(s.coded.first().is_some_and(|c| c.from_itself))),
        ];
        for (name, value) in fields {
            object[name] = value;
        }
        object
    }
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
