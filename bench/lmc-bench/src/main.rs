//! `lmc-bench`: speed and size of `lmc` beside memcpy and general-purpose codecs, in one run and in memory.

#![forbid(unsafe_code)]

mod base;
mod codec;
mod contender;
mod input;
mod machine;
mod measure;
mod others;
mod peers;
mod planes;
mod report;
mod timing;
mod xor;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use lmc::{Error, ErrorKind, Level, Result};
use lmc_kernels::isa::Isa;
use serde_json::{Value, json};

use crate::base::Old;
use crate::contender::Contender;
use crate::input::Input;
use crate::measure::Least;
use crate::planes::Planes;

/// Rounds that a contender runs at least, however slow it is, unless it has no time at all.
const MIN_ROUNDS: usize = 3;

/// Measures size and speed of lmc beside memcpy, zstd, lz4, gzip, bzip2, brotli, xz and snappy, and prints one JSON object.
///
/// Everything runs in memory, by one thread, in buffers that are reused. All contenders run once a round; medians over the rounds are
/// reported, and speeds over that of copying the same bytes just before. Every round trip is verified. Speeds count uncompressed bytes, 1
/// GB = 10^9 bytes. Rows that are "grouped" get the data with the first bytes of all elements together, then the second bytes, and so on;
/// the time of that counts.
///
/// With --base, deltas are measured: of lmc; of all codecs on the XOR of each tensor with its counterpart of the same name; of zstd with
/// the base as its prefix, as `zstd --patch-from` has it; and lmc without the base. The base is in memory and hashed before, and its bytes
/// do not count.
#[derive(Parser)]
struct Args {
    /// Files to measure with; without any, only the machine is described.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Time for each contender, in seconds; 0 is one round.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Instruction set of lmc; by default the fastest of this machine.
    #[arg(long)]
    isa: Option<Isa>,
    /// Levels of lmc.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "fast,default,max")]
    levels: Vec<Level>,
    /// Measure deltas, made from OLD: as it is, or as .lmc file.
    #[arg(long, value_name = "OLD")]
    base: Option<PathBuf>,
    /// Codecs to compare with: all, none, or some of zstd-1, zstd-3, zstd-19, lz4, gzip, bzip2, brotli, xz, snappy; with --base also
    /// lmc-alone, lmc-xor and zstd-patch.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    peers: Vec<String>,
    /// How many bytes of the data zstd-19, bzip2, brotli and xz get; 0 is all of it.
    #[arg(long, value_name = "BYTES", default_value_t = 4_000_000)]
    sample: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(report) => {
            #[expect(clippy::print_stdout, reason = "the report")]
            {
                println!("{report:#}");
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            #[expect(clippy::print_stderr, reason = "why there is no report")]
            {
                eprintln!("lmc-bench: {e}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Value> {
    let old = args.base.as_deref().map(Old::load).transpose()?;
    let files = args.files.iter().map(|path| measure(args, path, old.as_ref())).collect::<Result<Vec<_>>>()?;
    Ok(json!({ "machine": machine::describe(), "seconds": args.seconds, "files": files }))
}

fn measure(args: &Args, path: &Path, old: Option<&Old>) -> Result<Value> {
    let input = Input::load(path)?;
    let mut contenders = contenders(args, &input, old)?;
    let least = Least { seconds: args.seconds, rounds: if args.seconds > 0.0 { MIN_ROUNDS } else { 1 } };
    measure::run(&input.raw, &mut contenders, least)?;
    Ok(report::json(&input, &contenders, old))
}

/// The names of the codecs to compare with.
///
/// # Errors
/// `Usage` for unknown ones.
fn names(args: &Args) -> Result<Vec<&str>> {
    let delta = args.base.is_some();
    let names: Vec<&str> = match args.peers.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["none"] => Vec::new(),
        ["all"] if delta => peers::OF_DELTAS.iter().chain(peers::NAMES).copied().collect(),
        ["all"] => peers::NAMES.to_vec(),
        ref some => some.to_vec(),
    };
    let known = |n: &&str| peers::NAMES.contains(n) || delta && peers::OF_DELTAS.contains(n);
    match names.iter().find(|n| !known(n)) {
        Some(unknown) => {
            let why = format!("unknown peer {unknown:?}: see --peers in lmc-bench --help");
            Err(Error::new(ErrorKind::Usage, why))
        }
        None => Ok(names),
    }
}

fn contenders(args: &Args, input: &Input, old: Option<&Old>) -> Result<Vec<Contender>> {
    let isa = args.isa.map_or_else(Isa::detect, Ok)?;
    let expected = old.map(|old| old.expected(input));
    let bases = old.map_or_else(|| Rc::new([]) as Rc<[_]>, |old| old.bases.clone());
    let mut list =
        args.levels.iter().map(|&level| Contender::lmc(bases.clone(), level, isa)).collect::<Result<Vec<_>>>()?;
    let planes = Rc::new(Planes::new(&input.runs));
    // What slow codecs get.
    let runs = match args.sample {
        n if n == 0 || n >= input.raw.len() => None,
        n => Some(planes::sample(&input.runs, &planes::spread(input.raw.len(), n))),
    };
    let sample = runs.as_ref().map(|runs| planes::taken(&input.raw, runs));
    let sample_expected = runs.as_ref().zip(expected.as_ref()).map(|(runs, e)| planes::taken(e, runs));
    let sample_planes = Rc::new(Planes::new(&runs.as_deref().map_or(vec![], planes::joined)));
    for name in names(args)? {
        if let (true, Some(old), Some(expected)) = (peers::OF_DELTAS.contains(&name), old, &expected) {
            let alone = |level: &Level| Contender::lmc(Rc::new([]), *level, isa);
            match name {
                peers::ALONE => list.extend(args.levels.iter().map(alone).collect::<Result<Vec<_>>>()?),
                peers::LMC_XOR => {
                    let xored = |level: &Level| alone(level).map(|c| c.xored(expected.clone()));
                    list.extend(args.levels.iter().map(xored).collect::<Result<Vec<_>>>()?);
                }
                _ => list.push(old.patch(input.raw.len())),
            }
            continue;
        }
        let sample = sample.clone().filter(|_| peers::is_slow(name));
        let planes = if sample.is_some() { &sample_planes } else { &planes };
        let expected = if sample.is_some() { &sample_expected } else { &expected };
        for grouped in [false, true].into_iter().filter(|grouped| !(*grouped && planes.is_identity())) {
            let mut c = peers::contender(name)?;
            if grouped {
                c = c.grouped(planes.clone());
            }
            if let Some(expected) = expected {
                c = c.xored(expected.clone());
            }
            c.sample.clone_from(&sample);
            list.push(c);
        }
    }
    Ok(list)
}
