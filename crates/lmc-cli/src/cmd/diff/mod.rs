//! `lmc diff`.

mod json;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use lmc::{Base, Changes, CompressOptions, Compressor, Diff, Level, Relation, Segment};

use crate::args::{Limits, Threads, level};
use crate::bases::{BaseArgs, Bases};
use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::plan::is_dash;
use crate::ui::Ui;

/// Show how a file differs from an earlier one, tensor by tensor, and what storing only the differences takes.
///
/// Tensors are matched as `lmc compress --base` matches them: by name, else by shape and content. For each: how many of its
/// elements changed; how far, as powers of two of the distance that half, 90 % and 99 % of the changed ones do not exceed, and of
/// the largest; bits an element in the delta, and without the base. Distances are counted in representable
/// numbers (units in the last place), those of integers as they are; the two zeros are neighbours, and what is not a number
/// comes after the infinities. Both sizes are those that compressing gives; of small tensors, which share blocks, each has its
/// share of the block's. -v draws the distribution of the distances. Names of more than 200 characters are cut; --json has all of
/// them. Nothing is written.
///
/// States: same (matched by name, shape and dtype), reshaped, resized, re-typed, renamed (matched by content), new, missing.
#[derive(Args)]
#[command(after_long_help = JSON_HELP)]
pub(crate) struct DiffArgs {
    /// The earlier file: as it is, or as .lmc file, or the model.safetensors.index.json of a checkpoint in several files.
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The later file, in any of these forms.
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Level of compression that sizes are told for.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    /// Print one JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    threads: Threads,
}

/// What programs may rely on.
const JSON_HELP: &str = "\
--json prints one object; later versions may add fields:
  old, new                 the files
  total                    raw_size, delta_size and alone_size in bytes (alone: without the base), elements,
                           compared, changed, and states: how many tensors are in which
  segments                 of NEW, in order, each with
    file, name, dtype, shape, raw_size
                           file: which of NEW's files; name, dtype and shape are null for what is no tensor
    state                  \"same\", \"reshaped\", \"resized\", \"retyped\", \"renamed\" or \"new\"
    old                    its counterpart: file, name, dtype, shape; or null
    elements, compared, changed
                           all, those with a counterpart, and those of them that are not the same
    distance               null if none is known, else log2 (how many changed by 2^i to 2^(i+1) - 1, for i = 0, 1, ...),
                           median, p90, p99 (as such i) and max (the largest distance)
    delta_size, alone_size bytes; delta_bits, alone_bits: the same as bits an element, or null
    predictor              \"ulp\", \"difference\", \"none\" (classes alone) or null; from_itself: whether it uses
                           other tensors of NEW
  missing                  tensors of OLD that are no counterpart: file, name, dtype, shape, raw_size";

/// All that was found out.
struct Report {
    old: Vec<Base<'static>>,
    /// The later files, and how they differ.
    new: Vec<(Base<'static>, Diff)>,
    /// Tensors without a later one: which file, which segment.
    missing: Vec<(usize, usize)>,
    total: Total,
}

/// Sums over all files.
#[derive(Default)]
struct Total {
    raw_size: u64,
    delta_size: u64,
    alone_size: u64,
    elements: u64,
    /// Of what is a tensor.
    changes: Changes,
}

/// Compares files.
pub(crate) fn run(args: &DiffArgs, ui: &Ui) -> Result {
    if let Some(path) = [&args.old, &args.new].into_iter().find(|p| is_dash(p)) {
        let name = if path == &args.old { "OLD" } else { "NEW" };
        return Err(Failure::Usage(format!(
            "diff reads here and there in its files, not standard input: name a file as {name}"
        )));
    }
    let threads = args.threads.count();
    let mut paths = vec![args.old.clone(), args.new.clone()];
    paths.extend_from_slice(args.bases.paths());
    let files = Bases::open(&paths, true, threads)?;
    let mut options = CompressOptions::default();
    options.level = args.level;
    options.threads = threads;
    options.max_work = args.limits.max_work();
    let mut compressor = Compressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let old = files.of(0);
    let mut new = Vec::new();
    for file in files.of(1) {
        let path = shard_path(&args.new, file.name());
        let progress = ui.progress(&Name::path(&path).to_string(), Some(file.raw_size()));
        let diff = compressor.diff(&file, &old, &mut |done| progress.at(done));
        let diff = diff.map_err(|e| files.check_unchanged().err().unwrap_or_else(|| Failure::codec(&path, &e)))?;
        new.push((file, diff));
    }
    files.check_unchanged()?;
    let report = Report::new(old, new);
    match args.json {
        true => ui.write(|out| report.write_json(&args.old, &args.new, out)),
        false => ui.write(|out| report.write_text(&args.old, &args.new, ui.verbose(), out)),
    }
}

/// Where a file is that the path given is, or lists.
fn shard_path(given: &Path, name: &str) -> PathBuf {
    given.with_file_name(name)
}

impl Report {
    fn new(old: Vec<Base<'static>>, new: Vec<(Base<'static>, Diff)>) -> Self {
        let mut total = Total::default();
        let mut met: Vec<Vec<bool>> = old.iter().map(|b| vec![false; b.segments().len()]).collect();
        for (file, diff) in &new {
            total.raw_size += file.raw_size();
            total.delta_size += diff.delta.compressed_size;
            total.alone_size += diff.alone.compressed_size;
            for s in &diff.segments {
                if let Some((base, i)) = s.counterpart {
                    met[base][i] = true;
                }
                if s.segment.name.is_some() {
                    total.elements += elements(&s.segment);
                    total.changes.add(&s.changes);
                }
            }
        }
        let tensors = old.iter().enumerate().flat_map(|(base, b)| {
            let named = b.segments().iter().enumerate().filter(|(_, s)| s.name.is_some());
            named.map(move |(i, _)| (base, i))
        });
        let missing = tensors.filter(|&(base, i)| !met[base][i]).collect();
        Self { old, new, missing, total }
    }

    /// How many tensors are in which state, those states that there are.
    fn states(&self) -> Vec<(&'static str, usize)> {
        let relations = self.new.iter().flat_map(|(_, d)| &d.segments).filter(|s| s.segment.name.is_some());
        let names: Vec<&str> =
            relations.map(|s| state(s.relation)).chain(self.missing.iter().map(|_| "missing")).collect();
        let all = ["same", "reshaped", "resized", "retyped", "renamed", "new", "missing"];
        let counted = all.map(|state| (state, names.iter().filter(|n| **n == state).count()));
        counted.into_iter().filter(|(_, n)| *n > 0).collect()
    }
}

/// The state of a tensor, as JSON has it.
fn state(relation: Relation) -> &'static str {
    match relation {
        Relation::Same => "same",
        Relation::Reshaped => "reshaped",
        Relation::Resized => "resized",
        Relation::Retyped => "retyped",
        Relation::Renamed => "renamed",
        _ => "new",
    }
}

/// Elements as the codec counts them: bytes where they have fewer than eight bits, and of opaque data.
fn elements(segment: &Segment) -> u64 {
    segment.len / segment.dtype.map_or(1, |d| d.coding_width() as u64)
}

/// Bits of a compressed element.
fn bits(compressed: u64, segment: &Segment) -> Option<f64> {
    let elements = elements(segment);
    (elements > 0).then(|| 8.0 * compressed as f64 / elements as f64)
}
