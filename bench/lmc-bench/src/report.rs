//! The results of one file, as JSON.

use serde_json::{Value, json};

use crate::base::Old;
use crate::contender::Contender;
use crate::input::Input;
use crate::timing::Speed;

fn speed(s: Speed) -> Value {
    json!({ "gb_per_s": s.gb_per_s, "of_memcpy": s.of_memcpy, "spread": s.spread, "rounds": s.rounds })
}

fn row(input: &Input, c: &Contender) -> Value {
    let raw = c.sample.as_ref().map_or(input.raw.len(), |s| s.len());
    json!({
        "codec": c.name,
        "level": c.level,
        "isa": c.isa,
        "grouped": c.grouped,
        "given": c.given.name(),
        "sampled": c.sample.is_some(),
        "raw_size": raw,
        "size": c.size,
        "ratio": c.size as f64 / raw as f64,
        "compress": speed(c.compress.speed(raw)),
        "decompress": speed(c.decompress.speed(raw)),
    })
}

pub(crate) fn json(input: &Input, contenders: &[Contender], old: Option<&Old>) -> Value {
    json!({
        "file": input.name,
        "raw_size": input.raw.len(),
        "base": old.map(|old| &old.name),
        "results": contenders.iter().map(|c| row(input, c)).collect::<Vec<_>>(),
    })
}
