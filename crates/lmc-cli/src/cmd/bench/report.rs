//! The results as a table and as JSON.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use lmc::bench_hooks::Entropy;
use serde_json::{Value, json};

use super::Measured;
use super::contender::{Contender, Order};
use super::delta::Delta;
use super::measure::Speed;

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
                "xor": c.xor,
                "sampled": c.sample.is_some(),
                "raw_size": raw,
                "size": c.size,
                "ratio": c.size as f64 / raw as f64,
                "compress": speed_json(c.compress.speed(raw)),
                "decompress": speed_json(c.decompress.speed(raw)),
            })
        })
        .collect();
    json!({
        "file": m.input.name,
        "raw_size": m.input.raw.len(),
        "layout": m.input.layout,
        "dtype": m.input.dtype.map(|d| d.name()),
        "tensors": m.input.tensors,
        "bytes_by_dtype": m.input.bytes_by_dtype,
        "bases": m.delta.as_ref().map(|d| &d.bases),
        "entropy": m.delta.as_ref().map(|d| d.entropies.iter().map(entropy_json).collect::<Vec<_>>()),
        "memcpy": memcpy,
        "results": results,
        "breakdown": m.breakdown.as_ref().map(|b| b.json()),
    })
}

/// Bits over the bits of the elements as they are.
fn of_raw(e: &Entropy) -> f64 {
    e.bits / (8 * e.dtype.coding_width()) as f64 / e.elements as f64
}

fn entropy_json(e: &Entropy) -> Value {
    let bits = e.bits / e.elements as f64;
    json!({ "dtype": e.dtype.name(), "elements": e.elements, "bits": bits, "of_raw": of_raw(e), "exact": e.exact })
}

/// What the base leaves to be told, a line for each dtype.
fn entropy_lines(d: &Delta) -> String {
    let mut out = format!("delta of {}\n", d.bases.join(", "));
    for e in &d.entropies {
        let what = match e.exact {
            true => "entropy of the difference given the base's top 8 bits below the sign",
            false => {
                "entropy of the difference's length and first 8 bits given the base's top 8, the other bits as they are"
            }
        };
        out += &format!("{}: {:.2} % of raw, {what}, {} elements\n", e.dtype, 100.0 * of_raw(e), e.elements);
    }
    out
}

/// Two lines, above and below the headings.
const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::new('─', '─', '─', '─'))
    .header_separator(LineStyle::new('─', '─', '─', '─'))
    .bottom_border(LineStyle::new('─', '─', '─', '─'));

const HEADINGS: [&str; 11] =
    ["codec", "bytes", "ISA", "T", "size", "% of raw", "in GB/s", "×memcpy", "out GB/s", "×memcpy", "±"];

pub(super) fn table(m: &Measured) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(HEADINGS);
    for copy in &m.memcpys {
        let s = copy.speed();
        let speed = format!("{:.2}", s.gb_per_s);
        let spread = format!("{:.0} %", s.spread * 100.0);
        let row = ["memcpy", "", "", &copy.threads.to_string(), "", "", &speed, "1", &speed, "1", &spread];
        table.add_row(row.map(Cell::new));
    }
    for c in &m.contenders {
        table.add_row(row(m, c).map(Cell::new));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if i + 1 == HEADINGS.len() { 0 } else { 2 }));
    }
    let types: Vec<_> = m.input.bytes_by_dtype.iter().map(|(d, n)| format!("{d} {n}")).collect();
    let mut out = format!(
        "{}: {} bytes, layout {}, {} tensors ({})\n{table}\n",
        m.input.name,
        m.input.raw.len(),
        m.input.layout,
        m.input.tensors,
        types.join(", "),
    );
    if let Some(sample) = m.contenders.iter().find_map(|c| c.sample.as_ref()) {
        out += &format!("* measured on a sample of {} bytes (--sample)\n", sample.len());
    }
    if let Some(d) = &m.delta {
        out += &entropy_lines(d);
    }
    out += "in, out: compression, decompression; ±: distance between the quartiles of the time, the larger of both\n";
    if let Some(b) = &m.breakdown {
        out += &b.text();
    }
    out.push('\n');
    out
}

fn row(m: &Measured, c: &Contender) -> [String; 11] {
    let raw = raw_size(m, c);
    let (pack, unpack) = (c.compress.speed(raw), c.decompress.speed(raw));
    let mark = if c.sample.is_some() { "*" } else { "" };
    let level = if c.level.is_empty() { String::new() } else { format!(" {}", c.level) };
    [
        format!("{}{level}{mark}", c.name),
        match (c.name, c.xor) {
            ("lmc", _) => String::new(),
            (_, true) => format!("XOR, {}", c.order.name()),
            (_, false) => c.order.name().to_owned(),
        },
        c.isa.unwrap_or_default().to_owned(),
        c.threads.to_string(),
        c.size.to_string(),
        format!("{:.2}", 100.0 * c.size as f64 / raw as f64),
        speed(pack.gb_per_s),
        of_memcpy(pack.of_memcpy),
        speed(unpack.gb_per_s),
        of_memcpy(unpack.of_memcpy),
        format!("{:.0} %", pack.spread.max(unpack.spread) * 100.0),
    ]
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
