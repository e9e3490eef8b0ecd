//! What compressing files would make of them: sizes, estimated from samples.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lmc::{Base, CompressOptions, Compressor, Estimate};
use lmc_pool::Workers;
use lmc_store::files::parent;
use serde_json::{Value, json};

use crate::fs::input::Source;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count, percent, ratio};
use crate::ui::messages::Ui;
use crate::ui::table::Table;
use crate::work::bases::Bases;
use crate::work::report::Left;

/// Bytes that are compressed for all files together, and the fewest for one of them.
const TOTAL: u64 = 1 << 30;
const FEWEST: u64 = 2 << 20;
/// The most files that are sampled; of more, each of so many from the fewest bytes.
const MOST: usize = 128;

/// The most rows of a table, unless all are wanted: of more files, each directory has one.
const ROWS: usize = 40;

/// A file to estimate: what to read.
pub(crate) struct Taken {
    pub(crate) source: Source,
    pub(crate) bases: Vec<Base<'static>>,
}

/// What is known of a file before it is estimated.
type Looked = Result<std::result::Result<Taken, Left>>;

/// The bytes of each of so many files that are compressed.
pub(crate) fn sample(files: usize) -> u64 {
    (TOTAL / files.max(1) as u64).clamp(FEWEST, Estimate::SAMPLE)
}

/// Estimates `files`, in order, each by itself from `sample` bytes. `found` gets the results.
pub(crate) fn estimates(
    files: impl ExactSizeIterator<Item = Result<Taken>>,
    options: &CompressOptions,
    sample: u64,
    mut found: impl FnMut(Result<Estimate>),
) {
    // The threads share a file, or each has its own.
    let threads = lmc_pool::threads(options.threads);
    let (of_files, of_each) = if files.len() < threads { (1, threads) } else { (threads, 1) };
    let options = options.with_threads(of_each);
    let workers = Workers::new(of_files, || Compressor::new(&options).expect("the options were used before"));
    let mut jobs: Vec<Option<Result<Taken>>> = (0..workers.in_flight()).map(|_| None).collect();
    let mut coming = files;
    let Ok(()) = workers.ordered(
        &mut jobs,
        |job| {
            *job = coming.next();
            Ok::<_, Infallible>(job.as_ref().map(|_| 0))
        },
        |compressor, job| match job {
            Some(Ok(Taken { source, bases })) => Some(compressor.estimate_from(source, bases, sample)),
            _ => None,
        },
        |job, estimated| {
            found(job.take().expect("it was fed").and_then(|Taken { source, .. }| {
                let unchanged = source.check_unchanged();
                let estimate = estimated.expect("it was taken").map_err(|e| Failure::codec(source.path(), &e));
                unchanged.and(estimate)
            }));
            Ok(())
        },
    );
}

/// Estimates `files`; of more than [`MOST`], some are sampled for all. `look` opens one; `told` gets the results in the
/// same order, failures of files among them.
///
/// # Errors
/// Only those of `told`.
pub(crate) fn forecast<T>(
    files: &[T],
    options: &CompressOptions,
    bases: &Bases,
    look: impl FnMut(&T) -> Looked,
    mut told: impl FnMut(&T, Result<std::result::Result<Estimate, Left>>) -> Result,
) -> Result {
    let (mut sizes, mut sources) = (Vec::new(), Vec::new());
    let looked: Vec<Result<std::result::Result<(), Left>>> = files
        .iter()
        .map(look)
        .map(|looked| {
            Ok(looked?.map(|taken| {
                sizes.push(taken.source.metadata().len());
                sources.push(Some(Ok(taken)));
            }))
        })
        .collect();
    let chosen = chosen(&sizes, MOST);
    let mut sampled = Vec::new();
    let taken = chosen.iter().map(|&i| sources[i].take().expect("each is chosen once"));
    let sample = if sizes.len() > MOST { FEWEST } else { sample(sizes.len()) };
    estimates(taken, options, sample, |estimate| sampled.push(estimate));
    let mut estimated = likened(&sizes, chosen.into_iter().zip(sampled).collect()).into_iter();
    for (file, looked) in files.iter().zip(looked) {
        let result = match looked {
            Ok(Ok(())) => {
                let estimate = estimated.next().expect("one for each that was taken");
                // A base that changed explains a failure.
                estimate.map(Ok).map_err(|e| bases.check_unchanged().err().unwrap_or(e))
            }
            Ok(Err(left)) => Ok(Err(left)),
            Err(failure) => Err(failure),
        };
        told(file, result)?;
    }
    Ok(())
}

/// Which of the files of these sizes are sampled: all, or at most `most` of them, and empty ones. Their bytes, in order,
/// are cut into as many equal pieces, and the file is taken that has a byte of each piece, chosen by chance, but always
/// the same.
fn chosen(sizes: &[u64], most: usize) -> Vec<usize> {
    if sizes.len() <= most {
        return (0..sizes.len()).collect();
    }
    let piece = sizes.iter().map(|&size| u128::from(size)).sum::<u128>() / most as u128;
    let mut ends = sizes.iter().scan(0, |end, &size| {
        *end += u128::from(size);
        Some(*end)
    });
    let (mut file, mut end, mut seed) = (0, ends.next().unwrap_or(0), 0_u64);
    let mut all = Vec::new();
    for number in 0..most as u128 {
        // A linear congruential generator of Knuth; its upper bits.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let byte = number * piece + piece * u128::from(seed >> 33) / (1 << 31);
        while end <= byte
            && let Some(next) = ends.next()
        {
            (file, end) = (file + 1, next);
        }
        all.push(file);
    }
    all.extend((0..sizes.len()).filter(|&i| sizes[i] == 0));
    all.sort_unstable();
    all.dedup();
    all
}

/// The estimates of files of these sizes, of which some were `sampled`: the others have the ratio of the nearest of
/// these. Margins then contain how the ratios of neighbours differ. Without any, files have the failure of a sample.
fn likened(sizes: &[u64], mut sampled: Vec<(usize, Result<Estimate>)>) -> Vec<Result<Estimate>> {
    if sampled.len() == sizes.len() {
        return sampled.into_iter().map(|(_, estimate)| estimate).collect();
    }
    let known: Vec<(usize, Estimate)> =
        sampled.iter().filter_map(|(i, e)| Some((*i, *e.as_ref().ok()?))).filter(|(_, e)| e.raw_size > 0).collect();
    let ratio = |e: &Estimate| e.compressed_size as f64 / e.raw_size as f64;
    let nearest = |i: usize| {
        let after = known.partition_point(|k| k.0 < i).min(known.len().saturating_sub(1));
        let before = after.saturating_sub(1);
        if known.get(before)?.0.abs_diff(i) <= known[after].0.abs_diff(i) { Some(before) } else { Some(after) }
    };
    // The bytes that are like each sample.
    let mut like = vec![0_f64; known.len()];
    let is_sampled: HashSet<usize> = sampled.iter().map(|(i, _)| *i).collect();
    for i in (0..sizes.len()).filter(|i| !is_sampled.contains(i)) {
        nearest(i).into_iter().for_each(|k| like[k] += sizes[i] as f64);
    }
    let deviation = |k: usize| {
        let of = |other: Option<usize>| Some((ratio(&known.get(other?)?.1) - ratio(&known[k].1)).powi(2));
        let (before, after) = (of(k.checked_sub(1)), of(Some(k + 1)));
        let own = known[k].1.margin as f64 / known[k].1.raw_size as f64;
        before.or(after).unwrap_or(0.0) + after.or(before).unwrap_or(0.0) + own.powi(2)
    };
    let mut estimates = Vec::new();
    sampled.reverse();
    for (i, &raw_size) in sizes.iter().enumerate() {
        if let Some((_, estimate)) = sampled.pop_if(|(sampled, _)| *sampled == i) {
            estimates.push(estimate);
            continue;
        }
        estimates.push(match nearest(i) {
            Some(k) => {
                let mut estimate = known[k].1;
                estimate.compressed_size = (raw_size as f64 * ratio(&estimate)).round() as u64;
                estimate.margin = (raw_size as f64 * like[k] * deviation(k)).sqrt().ceil() as u64;
                (estimate.raw_size, estimate.sampled) = (raw_size, 0);
                Ok(estimate)
            }
            None => Err(Failure::Failed("none of the files that were to be sampled can be read".to_owned())),
        });
    }
    estimates
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
    /// How many files were sampled, or are empty.
    sampled: usize,
}

impl Rows {
    /// Adds a file, with the name of its output if that is to be shown.
    pub(crate) fn add(&mut self, path: &Path, estimate: &Estimate, output: Option<&Path>) {
        let mut one = Sizes::default();
        one.add(estimate);
        self.directories.entry(parent(path).to_owned()).or_default().add(estimate);
        self.all.add(estimate);
        self.sampled += usize::from(estimate.sampled > 0 || estimate.raw_size == 0);
        self.rows.push((Name::path(path).to_string(), one, output.map(|path| Name::path(path).to_string())));
    }

    /// Prints them: a line, and a table of several files, or of one with its output. `each`: a row for each file,
    /// however many.
    pub(crate) fn print(&self, each: bool, ui: &Ui) -> Result {
        let Some((first, _, output)) = self.rows.first() else { return Ok(()) };
        let (mut text, has_outputs) = (String::new(), output.is_some());
        let name = if self.rows.len() == 1 { first.clone() } else { count(self.rows.len(), "file") };
        let _ = writeln!(text, "{name} : {}", self.all.text());
        if self.sampled < self.rows.len() {
            let _ = writeln!(
                text,
                "sampled: {}; the others are taken to be like their neighbours",
                count(self.sampled, "file")
            );
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_chosen_by_their_bytes() {
        assert_eq!(chosen(&[5, 0, 7], 3), [0, 1, 2]);
        let mut sizes = vec![1000; 1000];
        sizes[500] = 1_000_000;
        let all = chosen(&sizes, 100);
        assert!(all.contains(&500) && all.is_sorted_by(|a, b| a < b) && (45..=60).contains(&all.len()), "{all:?}");
        assert_eq!(chosen(&[0, 9, 0, 9, 0], 1), [0, 1, 2, 4]);
        assert_eq!(chosen(&[0; 9], 4), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn what_is_not_sampled_is_like_its_neighbours() {
        let file = |size: usize, seed: u32| -> Vec<u8> {
            (0..size as u32 / 4).flat_map(|i| ((i * 7 + seed) % 1000).to_le_bytes()).collect()
        };
        let estimate = |raw: &[u8]| lmc::estimate(&raw, &[], &CompressOptions::default()).unwrap();
        let (a, b) = (estimate(&file(4000, 1)), estimate(&[7; 4000]));
        let sizes = [4000, 8000, 4000, 2000];
        let all = likened(&sizes, vec![(0, Ok(a)), (2, Ok(b))]);
        let all: Vec<Estimate> = all.into_iter().map(Result::unwrap).collect();
        assert_eq!((all[0], all[2]), (a, b));
        assert_eq!((all[1].raw_size, all[1].compressed_size, all[1].sampled), (8000, 2 * a.compressed_size, 0));
        assert_eq!(all[3].compressed_size, (b.compressed_size as f64 / 2.0).round() as u64);
        let differ = (a.compressed_size - b.compressed_size) as f64 / 4000.0;
        assert_eq!(all[1].margin, (8000.0 * 2_f64.sqrt() * differ).ceil() as u64);
        // What cannot be read is like nothing.
        let failed = || Err(Failure::Failed("gone".to_owned()));
        let all = likened(&sizes, vec![(0, failed()), (2, Ok(b))]);
        assert!(all[0].is_err() && all[1].as_ref().is_ok_and(|e| e.compressed_size == 2 * b.compressed_size));
        assert!(likened(&sizes, vec![(0, failed())]).iter().all(Result::is_err));
    }
}
