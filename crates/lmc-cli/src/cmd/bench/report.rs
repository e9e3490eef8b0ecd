//! The results as a table and as JSON.

use lmc_inspect::DifferenceEntropy;
use serde_json::{Value, json};

use super::breakdown::Breakdown;
use super::contender::{Contender, Given, Order};
use super::delta::Delta;
use super::input::Input;
use super::memory::Memcpy;
use super::timing::Speed;
use crate::ui::format::Name;
use crate::ui::table::Table;

/// The results of one file.
pub(super) struct Measured {
    pub(super) input: Input,
    pub(super) memcpys: Vec<Memcpy>,
    pub(super) contenders: Vec<Contender>,
    pub(super) delta: Option<Delta>,
    pub(super) breakdown: Option<Breakdown>,
}

fn raw_size(m: &Measured, c: &Contender) -> usize {
    c.sample.as_ref().map_or(m.input.raw.len(), |s| s.len())
}

fn speed_json(s: Speed) -> Value {
    json!({ "gb_per_s": s.gb_per_s, "of_memcpy": s.of_memcpy, "spread": s.spread, "rounds": s.rounds })
}

pub(super) fn json(m: &Measured) -> Value {
    let memcpy: Vec<_> = m
        .memcpys
        .iter()
        .map(|c| {
            let s = c.speed();
            json!({ "threads": c.threads, "gb_per_s": s.gb_per_s, "spread": s.spread, "rounds": s.rounds })
        })
        .collect();
    let results: Vec<_> = m
        .contenders
        .iter()
        .map(|c| {
            let raw = raw_size(m, c);
            json!({
                "codec": c.name,
                "level": c.level,
                "isa": c.isa,
                "threads": c.threads,
                "grouped": c.order == Order::Grouped,
                "given": c.given.name(),
                "sampled": c.sample.is_some(),
                "raw_size": raw,
                "size": c.size,
                "ratio": c.size as f64 / raw as f64,
                "of_entropy": of_entropy(m, c),
                "compress": speed_json(c.compress.speed(raw)),
                "decompress": speed_json(c.decompress.speed(raw)),
            })
        })
        .collect();
    json!({
        "file": m.input.name,
        "raw_size": m.input.raw.len(),
        "layout": m.input.layout,
        "dtype": m.input.dtype.as_ref().map(lmc::Dtype::name),
        "tensors": m.input.tensors,
        "bytes_by_dtype": m.input.bytes_by_dtype,
        "bases": m.delta.as_ref().map(|d| &d.bases),
        "entropy": m.delta.as_ref().map(|d| entropy_json(m, d)),
        "memcpy": memcpy,
        "results": results,
        "breakdown": m.breakdown.as_ref().map(|b| b.json()),
    })
}

/// Size over the entropy of the difference, if there is any; of a sample, as if the rest were like it.
fn of_entropy(m: &Measured, c: &Contender) -> Option<f64> {
    let entropy_bytes = m.delta.as_ref().map(Delta::entropy_bytes).filter(|&t| t > 0.0)?;
    let ratio = c.size as f64 / raw_size(m, c) as f64;
    Some(ratio / (entropy_bytes / m.input.raw.len() as f64))
}

/// Bits over the bits of the elements as they are.
fn of_raw(e: &DifferenceEntropy) -> f64 {
    e.bits() / (8 * e.dtype().coding_width()) as f64 / e.elements() as f64
}

fn entropy_json(m: &Measured, d: &Delta) -> Value {
    let of_dtype = |e: &DifferenceEntropy| {
        json!({
            "dtype": e.dtype().name(),
            "elements": e.elements(),
            "bits": e.bits() / e.elements() as f64,
            "of_raw": of_raw(e),
            "exact": e.is_exact(),
        })
    };
    json!({
        "bytes": d.entropy_bytes(),
        "of_raw": d.entropy_bytes() / m.input.raw.len() as f64,
        "covered": d.covered() as f64 / m.input.raw.len() as f64,
        "dtypes": d.entropies.iter().map(of_dtype).collect::<Vec<_>>(),
    })
}

/// The lines about the entropy of the difference.
fn entropy_lines(m: &Measured, d: &Delta) -> String {
    let mut out = format!("delta of {}\n", Name::text(&d.bases.join(", ")));
    for e in &d.entropies {
        let what = if e.is_exact() { "" } else { ", of the difference's first bits, and the others as they are" };
        out += &format!("H of {}: {:.2} % of {} elements{what}\n", e.dtype(), 100.0 * of_raw(e), e.elements());
    }
    let raw = m.input.raw.len() as f64;
    let (entropy_bytes, covered) = (d.entropy_bytes(), 100.0 * d.covered() as f64 / raw);
    out += &format!(
        "H in all: {entropy_bytes:.0} bytes, {:.2} % of raw; its elements are {covered:.2} % of the file\n",
        100.0 * entropy_bytes / raw
    );
    out
}

const HEADINGS: [&str; 12] =
    ["codec", "bytes", "ISA", "T", "size", "% of raw", "×H", "in GB/s", "×memcpy", "out GB/s", "×memcpy", "±"];

/// The column that only deltas have.
const OF_ENTROPY: usize = 6;

/// The columns of a table.
fn shown<T>(m: &Measured, cells: [T; HEADINGS.len()]) -> impl Iterator<Item = T> {
    let delta = m.delta.is_some();
    cells.into_iter().enumerate().filter(move |(i, _)| delta || *i != OF_ENTROPY).map(|(_, cell)| cell)
}

pub(super) fn table(m: &Measured) -> String {
    let headings: Vec<&str> = shown(m, HEADINGS).collect();
    let mut table = Table::new(&headings, &(3..headings.len()).collect::<Vec<_>>());
    for copy in &m.memcpys {
        let s = copy.speed();
        let speed = format!("{:.2}", s.gb_per_s);
        let spread = format!("{:.0} %", s.spread * 100.0);
        let row = ["memcpy", "", "", &copy.threads.to_string(), "", "", "", &speed, "1", &speed, "1", &spread];
        table.add_row(shown(m, row));
    }
    for c in &m.contenders {
        table.add_row(shown(m, row(m, c)));
    }
    let types: Vec<_> = m.input.bytes_by_dtype.iter().map(|(d, n)| format!("{d} {n}")).collect();
    let mut out = format!(
        "{}: {} bytes, layout {}, {} tensors ({})\n",
        Name::text(&m.input.name),
        m.input.raw.len(),
        m.input.layout,
        m.input.tensors,
        Name::text(&types.join(", ")),
    );
    table.push_to(&mut out);
    out.push('\n');
    if let Some(sample) = m.contenders.iter().find_map(|c| c.sample.as_ref()) {
        out += &format!("* measured on a sample of {} bytes (--sample)\n", sample.len());
    }
    if let Some(d) = &m.delta {
        out += &entropy_lines(m, d);
    }
    out += "in, out: compression, decompression; ±: distance between the quartiles of the time, the larger of both\n";
    if let Some(b) = &m.breakdown {
        out += &b.text();
    }
    out.push('\n');
    out
}

fn row(m: &Measured, c: &Contender) -> [String; HEADINGS.len()] {
    let raw = raw_size(m, c);
    let (pack, unpack) = (c.compress.speed(raw), c.decompress.speed(raw));
    let mark = if c.sample.is_some() { "*" } else { "" };
    let level = if c.level.is_empty() { String::new() } else { format!(" {}", c.level) };
    [
        format!("{}{level}{mark}", c.name),
        arrangement(m, c),
        c.isa.unwrap_or_default().to_owned(),
        c.threads.to_string(),
        c.size.to_string(),
        format!("{:.2}", 100.0 * c.size as f64 / raw as f64),
        of_entropy(m, c).map_or(String::new(), |v| format!("{v:.3}")),
        speed(pack.gb_per_s),
        of_memcpy(pack.of_memcpy),
        speed(unpack.gb_per_s),
        of_memcpy(unpack.of_memcpy),
        format!("{:.0} %", pack.spread.max(unpack.spread) * 100.0),
    ]
}

/// How the codec gets the data and the base.
fn arrangement(m: &Measured, c: &Contender) -> String {
    match (c.given, c.isa) {
        (Given::Base, _) => "delta".to_owned(),
        (Given::Prefix, _) => "base as prefix".to_owned(),
        (Given::Xor, Some(_)) => "XOR".to_owned(),
        (Given::Xor, None) => format!("XOR, {}", c.order.name()),
        (Given::Nothing, Some(_)) if m.delta.is_some() => "no base".to_owned(),
        (Given::Nothing, Some(_)) => String::new(),
        (Given::Nothing, None) => c.order.name().to_owned(),
    }
}

/// Three significant digits, roughly.
fn speed(gb_per_s: f64) -> String {
    match gb_per_s {
        v if v >= 1.0 => format!("{v:.2}"),
        v if v >= 0.1 => format!("{v:.3}"),
        v => format!("{v:.4}"),
    }
}

fn of_memcpy(ratio: f64) -> String {
    if ratio >= 0.01 { format!("{ratio:.3}") } else { format!("{ratio:.5}") }
}
