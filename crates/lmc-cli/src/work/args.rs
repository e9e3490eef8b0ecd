//! Arguments shared by commands.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lmc::{DecodeLimits, DecompressOptions};

use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, parse_size};

/// Which files are read, and where their outputs go.
#[derive(Args)]
pub(crate) struct Files {
    /// Files to work on; `-` is standard input, which is also the default when input is piped. The index of a checkpoint
    /// (model.safetensors.index.json) stands for its files.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Write to FILE; `-` and /dev/stdout are standard output. With -f a link is replaced, and its target is left alone. With -r and one
    /// directory: the directory to mirror it in.
    #[arg(short, long, value_name = "FILE", conflicts_with = "stdout")]
    pub(crate) output: Option<PathBuf>,

    /// Write to standard output.
    #[arg(short = 'c', long)]
    pub(crate) stdout: bool,

    /// Descend into directories, in order of names. Of symbolic links in them, those to files are followed, unless these are found, too.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Remove each input file once its output is safely on disk and was verified: decoded from disk and compared, which takes as long as
    /// restoring it. Nothing is done at all if a file is a base in the run, or known to be the target of a symbolic link, or is such a link.
    #[arg(long, conflicts_with = "stdout")]
    pub(crate) rm: bool,

    /// Overwrite existing files, compress what is compressed already, write binary data to a terminal.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Leave files alone whose outputs are there, as after an interrupted run.
    #[arg(long, conflicts_with_all = ["stdout", "force"])]
    pub(crate) skip_existing: bool,

    /// Print one JSON object per file on standard output.
    #[arg(long, conflicts_with = "stdout", help_heading = "Messages")]
    pub(crate) json: bool,
}

/// Threads of the codec.
#[derive(Args)]
pub(crate) struct Threads {
    /// Threads to use; 0 is one per core. The output does not depend on it.
    #[arg(short = 'T', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=1024), hide_default_value = true)]
    threads: u16,
}

impl Threads {
    pub(crate) fn count(&self) -> usize {
        usize::from(self.threads)
    }
}

/// The environment variable with the most bytes that may be decoded for one file or one base.
const MAX_WORK: &str = "LMC_MAX_WORK";

/// The most bytes that may be decoded for one file or one base, including everything that they depend on; `None` for the codec's default.
pub(crate) fn max_work() -> Result<Option<u64>> {
    let Some(text) = std::env::var_os(MAX_WORK).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    match parse_size(&text) {
        Ok(size) => Ok(Some(size as u64)),
        Err(why) => Err(Failure::Usage(format!("{MAX_WORK}={}: {why}", Name::text(&text)))),
    }
}

/// How compressed files are decoded.
pub(crate) fn decoding(threads: &Threads) -> Result<DecompressOptions> {
    let limits = DecodeLimits::default().with_max_work(max_work()?);
    Ok(DecompressOptions::default().with_threads(threads.count()).with_limits(limits))
}

/// A parser of compression levels.
pub(crate) fn level() -> impl TypedValueParser<Value = lmc::Level> {
    PossibleValuesParser::new(lmc::Level::ALL.iter().map(|l| l.name())).try_map(|name| name.parse::<lmc::Level>())
}

/// A parser of dtypes, in any case.
pub(crate) fn dtype() -> impl TypedValueParser<Value = lmc::Dtype> {
    PossibleValuesParser::new(lmc::Dtype::ALL.iter().map(|d| d.name()))
        .try_map(|name| name.to_ascii_uppercase().parse::<lmc::Dtype>())
}
