//! Where the time of one thread goes: hashing, choosing clusters and tables, coding; and the cost of touching fresh
//! memory.

use std::hint::black_box;
use std::time::Duration;

use lmc::{Compressor, Decompressor, Dtype, Error, ErrorKind, Level, Result};
use lmc_inspect::bench::{Blocks, build_table, digests};
use lmc_kernels::isa::Isa;
use memmap2::MmapMut;
use serde_json::{Value, json};

use super::codec::room_for;
use super::contender::{compress_options, decompress_options};
use super::input::Input;
use super::timing::{quartiles, timed};

/// Raw bytes of a block, as the container cuts large tensors.
const BLOCK: usize = 1 << 20;
/// Raw bytes whose symbols make up one histogram for table building.
const HISTOGRAM: usize = 1 << 18;
/// Tables built at a time.
const TABLES: usize = 64;

/// Seconds of each pass over `bytes` bytes of data.
struct Step {
    name: &'static str,
    what: &'static str,
    bytes: usize,
    seconds: Vec<f64>,
}

/// Steps of one file, by one thread and the fastest instruction set asked for.
pub(super) struct Breakdown {
    isa: Isa,
    tables: usize,
    steps: Vec<Step>,
}

/// The data that the steps work on.
struct Bench<'a> {
    raw: &'a [u8],
    elements: Option<(Dtype, Vec<u8>)>,
    histograms: Vec<[u32; 256]>,
    compressors: [Compressor; 3],
    planners: [Blocks; 3],
    decompressor: Decompressor,
    packed: Vec<u8>,
    out: Vec<u8>,
}

type Pass = fn(&mut Bench<'_>) -> Result<Duration>;

/// Name, operation, and its function.
const STEPS: [(&str, &str, Pass); 16] = [
    ("memcpy", "copy into reused memory", |b| Ok(timed(|| black_box(&mut b.out).copy_from_slice(black_box(b.raw))).0)),
    ("memcpy_fresh", "copy into memory just mapped", |b| {
        let raw = b.raw;
        fresh(raw.len(), |m| {
            m.copy_from_slice(black_box(raw));
            Ok(())
        })
    }),
    ("hash", "xxh3-128 of every 256 KiB of the raw data", |b| Ok(timed(|| digests(black_box(b.raw))).0)),
    ("plan_fast", "statistics, clusters and tables, level fast", |b| Ok(b.plan(0))),
    ("plan", "statistics, clusters and tables, level default", |b| Ok(b.plan(1))),
    ("plan_max", "statistics, clusters and tables, level max", |b| Ok(b.plan(2))),
    ("tables_fast", "64 Huffman tables", |b| Ok(b.build_tables(Level::Fast))),
    ("tables", "64 rANS tables", |b| Ok(b.build_tables(Level::Default))),
    ("tables_max", "64 fine rANS tables", |b| Ok(b.build_tables(Level::Max))),
    // In front of level default, whose output the later steps read.
    ("compress_max", "level max, reused memory", |b| b.compress(2)),
    ("decompress_max", "level max, reused memory", |b| b.decompress()),
    ("compress_fast", "level fast, reused memory", |b| b.compress(0)),
    ("compress", "level default, reused memory", |b| b.compress(1)),
    ("compress_fresh", "level default, into memory just allocated", |b| {
        let (took, result) = timed(|| {
            let mut new = Vec::new();
            b.compressors[1].compress(b.raw, &[], &mut new).map(|_| new)
        });
        result.map(|_| took)
    }),
    ("decompress", "level default, reused memory", |b| b.decompress()),
    ("decompress_fresh", "level default, into memory just mapped", |b| {
        fresh(b.raw.len(), |m| b.decompressor.decompress(&b.packed, &[], m).map(drop))
    }),
];

impl Bench<'_> {
    fn plan(&mut self, level: usize) -> Duration {
        let Some((dtype, elements)) = &self.elements else { return Duration::ZERO };
        timed(|| black_box(self.planners[level].plan(*dtype, black_box(elements)))).0
    }

    fn build_tables(&mut self, level: Level) -> Duration {
        let histograms = self.histograms.iter().cycle().take(TABLES);
        timed(|| histograms.fold(0, |cost, h| cost ^ build_table(level, black_box(h)))).0
    }

    fn compress(&mut self, level: usize) -> Result<Duration> {
        let (took, result) = timed(|| self.compressors[level].compress(self.raw, &[], &mut self.packed));
        result.map(|_| took)
    }

    /// The last compressed data.
    fn decompress(&mut self) -> Result<Duration> {
        self.out.fill(0xa5);
        let (took, result) = timed(|| self.decompressor.decompress(&self.packed, &[], &mut self.out[..]));
        result?;
        match self.out == self.raw {
            true => Ok(took),
            false => Err(Error::new(ErrorKind::Damaged, "lmc did not restore the data; this is a bug")),
        }
    }
}

/// Fills memory whose pages have not been touched yet; unmapping it is not timed.
fn fresh(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Duration> {
    let (took, result) = timed(|| {
        let mut map = MmapMut::map_anon(len).map_err(|e| Error::io("cannot map memory", e))?;
        fill(&mut map).map(|()| map)
    });
    result.map(|_| took)
}

/// Histograms of the elements' top bytes, after the sign has moved below: input for building tables.
fn histograms(width: usize, elements: &[u8]) -> Vec<[u32; 256]> {
    let histogram = |piece: &[u8]| {
        let mut counts = [0u32; 256];
        for e in piece.chunks_exact(width) {
            let below = if width > 1 { e[width - 2] } else { e[0] };
            counts[usize::from(e[width - 1] << 1 | below >> 7)] += 1;
        }
        counts
    };
    elements.chunks(HISTOGRAM).filter(|p| p.len() >= width).map(histogram).collect()
}

/// Times the steps in turns, for about `seconds` each.
pub(super) fn measure(input: &Input, isas: &[Isa], seconds: f64) -> Result<Breakdown> {
    let isa = isas.last().copied().unwrap_or(Isa::PORTABLE);
    let raw = input.raw.as_slice();
    let elements = input.elements();
    let compressor = |level| Compressor::new(&compress_options(level, isa, 1, input.dtype));
    let mut bench = Bench {
        raw,
        histograms: elements.as_ref().map_or(Vec::new(), |(d, e)| histograms(d.coding_width(), e)),
        compressors: [compressor(Level::Fast)?, compressor(Level::Default)?, compressor(Level::Max)?],
        planners: [Level::Fast, Level::Default, Level::Max].map(|level| Blocks::new(isa, level, BLOCK)),
        decompressor: Decompressor::new(&decompress_options(isa, 1))?,
        packed: room_for(raw.len()),
        out: vec![1; raw.len()],
        elements,
    };
    let mut steps = Vec::new();
    for (name, what, pass) in STEPS {
        let bytes = match (name, &bench.elements) {
            (name, None) if Breakdown::is_table_building(name) || name.starts_with("plan") => continue,
            (name, Some((_, elements))) if name.starts_with("plan") => elements.len(),
            _ => raw.len(),
        };
        steps.push((Step { name, what, bytes, seconds: Vec::new() }, pass));
    }
    let mut spent = 0.0;
    let min_rounds = if seconds > 0.0 { 3 } else { 1 };
    while spent < seconds * steps.len() as f64 || steps[0].0.seconds.len() < min_rounds {
        for (step, pass) in &mut steps {
            let took = pass(&mut bench)?.as_secs_f64();
            step.seconds.push(took);
            spent += took;
        }
    }
    Ok(Breakdown { isa, tables: input.tables, steps: steps.into_iter().map(|(step, _)| step).collect() })
}

impl Breakdown {
    /// Median seconds of a step for each byte; nothing for a step that was not taken.
    fn per_byte(&self, name: &str) -> f64 {
        let step = self.steps.iter().find(|s| s.name == name);
        step.map_or(f64::NAN, |s| quartiles(&s.seconds)[1] / s.bytes as f64)
    }

    /// Microseconds to build one table.
    fn table_us(&self, name: &str) -> f64 {
        let step = self.steps.iter().find(|s| s.name == name);
        step.map_or(f64::NAN, |s| quartiles(&s.seconds)[1] * 1e6 / TABLES as f64)
    }

    /// Fractions of the time, by name.
    fn shares(&self) -> Vec<(String, f64)> {
        let t = |name| self.per_byte(name);
        let raw = self.steps[0].bytes as f64;
        let mut shares = Vec::new();
        for (level, plan, tables, compress) in [
            ("fast", "plan_fast", "tables_fast", "compress_fast"),
            ("default", "plan", "tables", "compress"),
            ("max", "plan_max", "tables_max", "compress_max"),
        ] {
            let mut push = |what: &str, share: f64| shares.push((format!("{what}, of compression ({level})"), share));
            let (hash, plan) = (t("hash") / t(compress), t(plan) / t(compress));
            let tables = self.tables as f64 * self.table_us(tables) / 1e6 / (t(compress) * raw);
            push("hashing", hash);
            if plan.is_finite() {
                push("statistics, clusters and tables", plan);
                if level == "default" {
                    push("building tables alone, one for each cluster of the file", tables);
                }
                push("coding and the rest", 1.0 - hash - plan);
            }
        }
        let gain = |slow, fast| (t(slow) - t(fast)) / t(slow);
        shares.extend(
            [
                ("hashing, of decompression", t("hash") / t("decompress")),
                ("decoding and the rest, of decompression", 1.0 - t("hash") / t("decompress")),
                ("page faults, of memcpy into fresh memory", gain("memcpy_fresh", "memcpy")),
                ("page faults, of compression into fresh memory", gain("compress_fresh", "compress")),
                ("page faults, of decompression into fresh memory", gain("decompress_fresh", "decompress")),
            ]
            .map(|(name, share)| (name.to_owned(), share)),
        );
        shares
    }

    fn is_table_building(name: &str) -> bool {
        name.starts_with("tables")
    }

    pub(super) fn json(&self) -> Value {
        let steps: Vec<_> = self
            .steps
            .iter()
            .filter(|s| !Self::is_table_building(s.name))
            .map(|s| {
                let [low, median, high] = quartiles(&s.seconds);
                json!({
                    "step": s.name,
                    "what": s.what,
                    "gb_per_s": s.bytes as f64 / 1e9 / median,
                    "spread": (high - low) / median,
                    "rounds": s.seconds.len(),
                })
            })
            .collect();
        let shares: Vec<_> =
            self.shares().into_iter().map(|(what, share)| json!({ "what": what, "share": share })).collect();
        let table = |name| Some(self.table_us(name)).filter(|us| us.is_finite());
        json!({
            "isa": self.isa.name(),
            "threads": 1,
            "steps": steps,
            "tables": self.tables,
            "table_us": { "fast": table("tables_fast"), "default": table("tables"), "max": table("tables_max") },
            "shares": shares,
        })
    }

    /// Speeds of the steps, then shares of the time.
    pub(super) fn text(&self) -> String {
        let mut out = format!("one thread, {}\n", self.isa.name());
        for s in &self.steps {
            let (speed, unit) = match Self::is_table_building(s.name) {
                true => (self.table_us(s.name), "µs a table"),
                false => (1e-9 / self.per_byte(s.name), "GB/s"),
            };
            out += &format!("  {:<18}{speed:>8.2} {unit:<12}{}\n", s.name, s.what);
        }
        for (name, share) in self.shares() {
            out += &format!("  {:>5.1} %  {name}\n", share * 100.0);
        }
        out
    }
}
