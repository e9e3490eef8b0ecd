//! What compressing files would make of them: sizes, estimated from samples.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lmc::{Base, CompressOptions, Compressor, Estimate};
use lmc_pool::Workers;
use lmc_store::files::parent;
use serde_json::{Value, json};

use crate::fs::input::Source;
use crate::ui::failure::Result;
use crate::ui::format::{Name, bytes, count, percent, ratio};
use crate::ui::messages::Ui;
use crate::ui::table::Table;
use crate::work::bases::Bases;
use crate::work::report::{self, Left};

/// Bytes that are compressed for all files together, and the fewest for one of them.
const TOTAL: u64 = 1 << 30;
const FEWEST: u64 = 2 << 20;

/// The most rows of a table, unless all are wanted: of more files, each directory has one.
const ROWS: usize = 40;

/// A file to estimate: what to read.
pub(crate) struct Taken {
    pub(crate) source: Source,
    pub(crate) bases: Vec<Base<'static>>,
}

/// What is known of a file before it is estimated.
type Looked = Result<std::result::Result<Taken, Left>>;

/// Estimates `files`. `look` opens one; `told` gets the results in the same order, failures of files among them.
///
/// # Errors
/// Only those of `told`.
pub(crate) fn forecast<T>(
    files: &[T],
    options: CompressOptions,
    threads: usize,
    bases: &Bases,
    mut look: impl FnMut(&T) -> Looked,
    mut told: impl FnMut(&T, Result<std::result::Result<Estimate, Left>>) -> Result,
) -> Result {
    let sample = (TOTAL / files.len().max(1) as u64).clamp(FEWEST, Estimate::SAMPLE);
    // The threads share a file, or each has its own.
    let threads = lmc_pool::threads(threads);
    let (of_files, of_each) = if files.len() < threads { (1, threads) } else { (threads, 1) };
    let options = options.with_threads(of_each);
    let workers = Workers::new(of_files, || Compressor::new(&options).expect("the options were used before"));
    let mut jobs: Vec<Option<Looked>> = (0..workers.in_flight()).map(|_| None).collect();
    let (mut coming, mut done) = (files.iter(), files.iter());
    workers.ordered(
        &mut jobs,
        |job| {
            *job = coming.next().map(&mut look);
            Ok(job.as_ref().map(|_| 0))
        },
        |compressor, job| match job {
            Some(Ok(Ok(Taken { source, bases }))) => Some(compressor.estimate_from(source, bases, sample)),
            _ => None,
        },
        |job, estimated| {
            let file = done.next().expect("as many as were fed");
            let result = match job.take().expect("it was fed") {
                Err(failure) => Err(failure),
                Ok(Err(left)) => Ok(Err(left)),
                Ok(Ok(Taken { source, .. })) => match estimated.expect("it was taken") {
                    Ok(estimate) => source.check_unchanged().map(|()| Ok(estimate)),
                    Err(e) => Err(report::explain_read(&source, bases, &e)),
                },
            };
            told(file, result)
        },
    )
}

/// Sizes of files together.
#[derive(Clone, Copy, Default)]
struct Sizes {
    files: usize,
    raw: u64,
    compressed: u64,
    /// The square of the margin.
    variance: f64,
}

impl Sizes {
    fn add(&mut self, e: &Estimate) {
        self.files += 1;
        self.raw = self.raw.saturating_add(e.raw_size);
        self.compressed = self.compressed.saturating_add(e.compressed_size);
        self.variance += (e.margin as f64).powi(2);
    }

    fn margin(&self) -> String {
        if self.variance == 0.0 { String::new() } else { format!("± {}", bytes(self.variance.sqrt().ceil() as u64)) }
    }

    /// `66.31 %  (86.7 MiB => 57.5 MiB ± 0.1 MiB), saves 29.2 MiB`.
    fn text(&self) -> String {
        let (raw, compressed, margin) = (bytes(self.raw), bytes(self.compressed), self.margin());
        let space = if margin.is_empty() { "" } else { " " };
        format!(
            "{}  ({raw} => {compressed}{space}{margin}), saves {}",
            percent(self.compressed, self.raw),
            self.saved()
        )
    }

    fn saved(&self) -> String {
        bytes(self.raw.saturating_sub(self.compressed))
    }

    fn row(&self, name: String) -> Vec<String> {
        let ratio = percent(self.compressed, self.raw);
        vec![name, bytes(self.raw), bytes(self.compressed), self.margin(), ratio, self.saved()]
    }
}

/// The result: a row for each file, or for each directory, and sums.
#[derive(Default)]
pub(crate) struct Rows {
    rows: Vec<(String, Sizes, Option<String>)>,
    directories: BTreeMap<PathBuf, Sizes>,
    all: Sizes,
}

impl Rows {
    /// Adds a file, with the name of its output if that is to be shown.
    pub(crate) fn add(&mut self, path: &Path, estimate: &Estimate, output: Option<&Path>) {
        let mut one = Sizes::default();
        one.add(estimate);
        self.directories.entry(parent(path).to_owned()).or_default().add(estimate);
        self.all.add(estimate);
        self.rows.push((Name::path(path).to_string(), one, output.map(|path| Name::path(path).to_string())));
    }

    /// Prints them: a line, and a table of several files, or of one with its output. `each`: a row for each file,
    /// however many.
    pub(crate) fn print(&self, each: bool, ui: &Ui) -> Result {
        let Some((first, _, output)) = self.rows.first() else { return Ok(()) };
        let (mut text, has_outputs) = (String::new(), output.is_some());
        let name = if self.rows.len() == 1 { first.clone() } else { count(self.rows.len(), "file") };
        let _ = writeln!(text, "{name} : {}", self.all.text());
        let by_directory = !each && self.rows.len() > ROWS;
        let mut header =
            vec![if by_directory { "directory" } else { "file" }, "raw", "compressed", "", "ratio", "saves"];
        header.extend(has_outputs.then_some("output"));
        let mut table = Table::new(&header, &[1, 2, 4, 5]);
        if by_directory {
            for (directory, sizes) in &self.directories {
                table.add_row(sizes.row(format!("{}: {}", Name::path(directory), count(sizes.files, "file"))));
            }
        } else if self.rows.len() > 1 || has_outputs {
            for (name, sizes, output) in &self.rows {
                let mut row = sizes.row(name.clone());
                row.extend(output.clone());
                table.add_row(row);
            }
        }
        ui.write(|out| {
            out.write_all(text.as_bytes())?;
            table.write_to(out)
        })
    }
}

/// The record of a file, with the name of its output if that is to be shown.
pub(crate) fn record(path: &Path, e: &Estimate, output: Option<&Path>) -> Value {
    let mut record = json!({
        "file": path.to_string_lossy(),
        "raw_size": e.raw_size,
        "compressed_size": e.compressed_size,
        "margin": e.margin,
        "ratio": ratio(e.compressed_size, e.raw_size),
        "sampled": e.sampled,
    });
    if let Some(output) = output {
        record["output"] = json!(output.to_string_lossy());
    }
    record
}
