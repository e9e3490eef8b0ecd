//! Arguments shared by commands.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::format::parse_size;

/// Options of every command.
#[derive(Args)]
pub(crate) struct Global {
    /// Print nothing but errors.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    pub(crate) quiet: bool,

    /// Print more messages.
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub(crate) verbose: bool,

    /// Show no progress bar. None is shown unless standard error is a terminal.
    #[arg(long, global = true, help_heading = "Messages")]
    pub(crate) no_progress: bool,
}

/// Which files are read, and where their outputs go.
#[derive(Args)]
pub(crate) struct Files {
    /// Files to work on; `-` is standard input, which is also the default when input is piped. The index of a checkpoint
    /// (model.safetensors.index.json) stands for its files.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Write to FILE; `-` and /dev/stdout are standard output. With -f a link is replaced, and its target is left alone. With -r and one
    /// directory: the directory to mirror it in.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["stdout", "output_dir_flat"])]
    pub(crate) output: Option<PathBuf>,

    /// Write to standard output.
    #[arg(short = 'c', long, conflicts_with = "output_dir_flat")]
    pub(crate) stdout: bool,

    /// Write all outputs directly into the directory DIR, under file names without directories.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir_flat: Option<PathBuf>,

    /// Descend into directories, in order of names. Of symbolic links in them, those to files are followed, unless these are found, too.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Keep the input files; this is the default.
    #[arg(short, long, overrides_with = "rm")]
    pub(crate) keep: bool,

    /// Remove each input file once its output is safely on disk and was verified: decoded from disk and compared, which takes as long as
    /// restoring it. Nothing is done at all if a file is a base in the run, or known to be the target of a symbolic link, or is such a link.
    #[arg(long, overrides_with = "keep", conflicts_with = "stdout")]
    pub(crate) rm: bool,

    /// Overwrite existing files, compress what is compressed already, write binary data to a terminal.
    #[arg(short, long)]
    pub(crate) force: bool,

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

/// Limits of decoding.
#[derive(Args)]
pub(crate) struct Limits {
    /// Bytes that may be decoded for one file or one base, including everything that they depend on; by default 96 times the requested size
    /// plus 4 GiB. With k, M, G, Ki, Mi or Gi. A longer chain of deltas may exceed it, and so may a forged file.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    max_work: Option<usize>,
}

impl Limits {
    /// As the codec's type.
    pub(crate) fn max_work(&self) -> Option<u64> {
        self.max_work.map(|n| n as u64)
    }
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
