//! `lmc bench`: speed and size of `lmc` beside memcpy and general-purpose codecs, in one run and in memory.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use indicatif::{ProgressBar, ProgressStyle};
use lmc::{Dtype, Error, ErrorKind, Level, Result};
use lmc_inspect::spread;
use lmc_kernels::isa::Isa;
use serde_json::json;

use super::contender::Contender;
use super::delta::{Delta, Old};
use super::input::Input;
use super::measure::Least;
use super::memory::Memcpy;
use super::planes::Planes;
use super::report::Measured;
use super::{breakdown, machine, measure, peers, planes, report};
use crate::ui::failure::{self, Failure};
use crate::ui::format::Name;
use crate::ui::messages::Ui;
use crate::work::args::{dtype, level};

/// Pieces of a sample have a multiple of this many bytes, so that each has whole elements.
const SAMPLE_GRAIN: u64 = 16;

/// Rounds that a contender runs at least, however slow it is, unless it has no time at all.
const MIN_ROUNDS: usize = 3;

/// Measure speed and size of lmc beside memcpy, zstd, lz4, gzip, bzip2, brotli, xz and snappy.
///
/// Everything runs in memory, in buffers that are reused. All contenders run once a round; medians over the rounds
/// are shown, and speeds over that of copying the same bytes just before. Every round trip is verified. Speeds count uncompressed bytes, 1 GB = 10^9 bytes. "grouped" rows get the
/// data with the first bytes of all elements together, then the second bytes, and so on; the time of that counts.
///
/// With --base, deltas are measured: of lmc; of all codecs on the XOR of each tensor with its counterpart; of
/// zstd with the base as its prefix, as `zstd --patch-from` has it; and lmc without the base. Bases are in memory and
/// hashed before, and their bytes do not count. H is shown beside the sizes: the entropy of the differences
/// given the base's exponents. It counts how often each difference follows each exponent, over all tensors of a dtype. A difference is
/// a number of representable values; of types of more than 16 bits, H counts its length and first 8 bits, and adds the bits below as
/// they are. "×H" is size over H.
#[derive(Debug, clap::Args)]
#[command(after_long_help = JSON_HELP)]
pub(crate) struct BenchArgs {
    /// Files to measure with.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,
    /// The dtype of files in no known format.
    #[arg(long, value_name = "DTYPE", ignore_case = true, value_parser = dtype())]
    dtype: Option<Dtype>,
    /// Time for each contender, in seconds; 0 is one round.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Thread counts of lmc, such as 1,2; by default one, and as many as there are cores.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Levels of lmc; by default all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = level())]
    levels: Vec<Level>,
    /// Instruction sets of lmc; by default all that this machine has.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_isa)]
    isas: Vec<Isa>,
    /// Measure deltas, made from OLD: as it is, or as .lmc file, or the index.json of a checkpoint in several files.
    #[arg(long = "base", value_name = "OLD", conflicts_with = "breakdown")]
    bases: Vec<PathBuf>,
    /// Codecs to compare with: all, none, or some of zstd-1, zstd-3, zstd-19, lz4, gzip, bzip2, brotli, xz, snappy; with --base also
    /// lmc-alone, lmc-xor and zstd-patch.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    peers: Vec<String>,
    /// Repeat or cut the elements of the file's most common dtype to this many bytes, such as 1GB; with --base, those with a
    /// counterpart in the base.
    #[arg(long, value_name = "BYTES", value_parser = crate::ui::format::parse_size)]
    size: Option<usize>,
    /// How much of the data zstd-19, bzip2, brotli and xz get; 0 is all of it.
    #[arg(long, value_name = "BYTES", default_value = "4MB", value_parser = crate::ui::format::parse_size)]
    sample: usize,
    /// Also show what hashing, choosing clusters and tables, page faults and copying cost.
    #[arg(long)]
    breakdown: bool,
}

/// The output that programs may rely on.
const JSON_HELP: &str = "\
--json prints one object; later versions may add fields. Sizes are in bytes:
  machine                  the processor, its caches and instruction sets, the system, and the build of lmc
  seconds                  of each contender, as given
  files                    each with file, and error if it could not be measured, else
    raw_size, layout, dtype, tensors, bytes_by_dtype
                           dtype: as given, or null
    bases, entropy         null without --base, else names, and H: bytes, of_raw, covered (the part of the file that its
                           elements are), dtypes (dtype, elements, bits, of_raw, exact)
    memcpy                 for each number of threads: threads, gb_per_s, spread, rounds
    results                for each contender: codec, level, isa (or null), threads, grouped, given (\"nothing\", \"base\",
                           \"xor\" or \"prefix\"), sampled, raw_size, size, ratio, of_entropy (or null), and compress and
                           decompress: gb_per_s, of_memcpy (over copying the same bytes just before), spread (between the
                           quartiles, over the median), rounds
    breakdown              null without --breakdown, else isa, threads, steps, tables, table_us, shares";

fn parse_isa(s: &str) -> Result<Isa, String> {
    s.parse().map_err(|e: lmc::Error| e.to_string())
}

fn parse_seconds(s: &str) -> Result<f64, String> {
    match s.parse() {
        Ok(v) if (0.0..=3600.0).contains(&v) => Ok(v),
        _ => Err("use a number from 0 to 3600".to_owned()),
    }
}

pub(crate) fn run(args: &BenchArgs, ui: &Ui) -> failure::Result {
    let failed = |e: Error| match e.kind() {
        ErrorKind::Usage => Failure::Usage(e.to_string()),
        _ => Failure::Failed(e.to_string()),
    };
    names(args).map_err(failed)?;
    let mut results = Vec::new();
    let old = Old::load(&args.bases)?;
    for path in &args.files {
        let bar = if ui.shows_progress() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        let measured = measure(args, path, old.as_ref(), &bar).map_err(failed);
        bar.finish_and_clear();
        match measured {
            Ok(measured) if args.json => results.push(report::json(&measured)),
            Ok(measured) => ui.print(&report::table(&measured))?,
            // What was measured of other files took its time.
            Err(failure) => {
                ui.fail(&failure);
                results.push(json!({ "file": path.to_string_lossy(), "error": failure.to_string() }));
            }
        }
    }
    if args.json {
        let all = json!({
            "machine": machine::describe(),
            "seconds": args.seconds,
            "files": results,
        });
        ui.print(&format!("{all:#}\n"))?;
    }
    Ok(())
}

fn measure(args: &BenchArgs, path: &Path, old: Option<&Old>, bar: &ProgressBar) -> Result<Measured> {
    bar.set_message(format!("{}: reading", Name::path(path)));
    let input = Input::load(path, args.dtype)?;
    let (input, resized) = match (args.size, old) {
        (None, _) => (input, None),
        (Some(size), None) => (input.resized(size)?, None),
        (Some(size), Some(old)) => old.resized(&input, size).map(|(input, old)| (input, Some(old)))?,
    };
    let old = resized.as_ref().or(old);
    let mut memcpys = threads(args).into_iter().map(Memcpy::new).collect::<Result<Vec<_>>>()?;
    let delta = old.map(|old| old.expect(&input.raw, input.dtype)).transpose()?;
    let mut contenders = contenders(args, &input, old.zip(delta.as_ref()))?;
    let mut progress = |round: usize, label: &str| {
        bar.set_message(format!("{}: round {}, {label}", Name::text(&input.name), round + 1));
    };
    let least = Least { seconds: args.seconds, rounds: if args.seconds > 0.0 { MIN_ROUNDS } else { 1 } };
    measure::run(&input.raw, &mut contenders, &mut memcpys, least, &mut progress)?;
    bar.set_message(format!("{}: where the time goes", Name::text(&input.name)));
    let breakdown = match args.breakdown {
        true => Some(breakdown::measure(&input, &isas(args)?, args.seconds)?),
        false => None,
    };
    Ok(Measured { input, memcpys, contenders, delta, breakdown })
}

fn threads(args: &BenchArgs) -> Vec<usize> {
    let mut list: Vec<usize> = args.threads.iter().map(|&n| n.into()).collect();
    if list.is_empty() {
        list.push(std::thread::available_parallelism().map_or(1, |n| n.get()));
    }
    list.push(1);
    list.sort_unstable();
    list.dedup();
    list
}

fn isas(args: &BenchArgs) -> Result<Vec<Isa>> {
    Ok(match (args.isas.is_empty(), std::env::var_os("LMC_ISA").filter(|name| !name.is_empty())) {
        (false, _) => args.isas.clone(),
        (true, Some(_)) => vec![Isa::detect()?],
        (true, None) => Isa::available(),
    })
}

/// The names of the codecs to compare with.
///
/// # Errors
/// `Usage` for unknown ones.
fn names(args: &BenchArgs) -> Result<Vec<&str>> {
    let delta = !args.bases.is_empty();
    let names: Vec<&str> = match args.peers.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["none"] => Vec::new(),
        ["all"] => {
            // zstd would find the repetition of repeated data.
            let of_deltas = peers::OF_DELTAS.iter().filter(|n| delta && (**n != peers::PATCH || args.size.is_none()));
            of_deltas.chain(peers::NAMES).copied().collect()
        }
        ref some => some.to_vec(),
    };
    names
        .iter()
        .filter(|n| !(delta && peers::OF_DELTAS.contains(n)))
        .try_for_each(|n| peers::contender(n).map(drop))?;
    Ok(names)
}

fn contenders(args: &BenchArgs, input: &Input, delta: Option<(&Old, &Delta)>) -> Result<Vec<Contender>> {
    let mut list = Vec::new();
    let levels = if args.levels.is_empty() { Level::ALL } else { &args.levels };
    let wanted = |n: &usize| args.threads.is_empty() || args.threads.iter().any(|&t| usize::from(t) == *n);
    let chosen = isas(args)?;
    // The rows that exist once for each level.
    let best = Isa::available().into_iter().rfind(|isa| chosen.contains(isa)).map_or_else(Isa::detect, Ok)?;
    let fewest = threads(args).into_iter().find(wanted).unwrap_or(1);
    for &level in levels {
        for &isa in chosen.iter().rev() {
            for n in threads(args).into_iter().filter(wanted) {
                list.push(match delta {
                    Some((old, _)) => old.lmc(level, isa, n, input.dtype)?,
                    None => Contender::lmc(level, isa, n, input.dtype)?,
                });
            }
        }
    }
    let planes = Rc::new(Planes::new(&input.runs));
    let expected = delta.map(|(_, d)| d.expected.clone());
    let (sample, sample_runs, sample_expected) = match args.sample {
        n if n == 0 || n >= input.raw.len() => (None, Vec::new(), None),
        n => {
            let runs = planes::sample(&input.runs, &spread(input.raw.len() as u64, n as u64, SAMPLE_GRAIN));
            let take = |of: &[u8]| runs.iter().flat_map(|r| &of[r.bytes.clone()]).copied().collect::<Rc<[u8]>>();
            (Some(take(&input.raw)), planes::joined(&runs), expected.as_deref().map(take))
        }
    };
    let sample_planes = Rc::new(Planes::new(&sample_runs));
    for name in names(args)? {
        if let Some((old, delta)) = delta.filter(|_| peers::OF_DELTAS.contains(&name)) {
            let alone = |level| Contender::lmc(level, best, fewest, input.dtype);
            match name {
                peers::ALONE => list.extend(levels.iter().map(|&l| alone(l)).collect::<Result<Vec<_>>>()?),
                peers::LMC_XOR => {
                    let xored = |l: &Level| alone(*l).map(|c| c.xored(delta.of_tensors.clone()));
                    list.extend(levels.iter().map(xored).collect::<Result<Vec<_>>>()?);
                }
                _ => list.push(old.patch(input.raw.len())),
            }
            continue;
        }
        let sample = sample.clone().filter(|_| peers::is_slow(name));
        let planes = if sample.is_some() { &sample_planes } else { &planes };
        let expected = if sample.is_some() { &sample_expected } else { &expected };
        let xored = |c: Contender| match expected {
            Some(e) => c.xored(e.clone()),
            None => c,
        };
        let mut as_is = xored(peers::contender(name)?);
        as_is.sample.clone_from(&sample);
        list.push(as_is);
        if !planes.is_identity() {
            let mut grouped = xored(peers::contender(name)?.grouped(planes.clone()));
            grouped.sample = sample;
            list.push(grouped);
        }
    }
    match list.is_empty() {
        true => Err(Error::new(ErrorKind::Usage, "nothing to measure")),
        false => Ok(list),
    }
}
