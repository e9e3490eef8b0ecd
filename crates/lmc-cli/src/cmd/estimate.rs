//! `lmc estimate`.

use std::path::PathBuf;

use clap::Args;

use super::compress::{Coding, forecast};
use crate::fs::names::STORE_MARKER;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::quoted;
use crate::ui::messages::Ui;
use crate::work::args::Files;
use crate::work::plan::AddSuffix;

/// Estimate what compressing files would save, from samples, in seconds.
///
/// A file of at most 128 MiB is compressed whole, in memory, and its size is exact. Of a larger one, blocks of 64 MiB
/// together are, spread evenly over the dtypes and names of its tensors; of each of many files less, 1 GiB of all of
/// them together. Of more than 128 files, at most 128 are sampled, 2 MiB of each: files are chosen by chance, a larger one more
/// likely, and the others are taken to be like their neighbours. Then a margin is shown: two standard errors, from how much the blocks differ.
/// Estimates of models were within it or within 1 %; a file whose parts differ, and that has no tensors to tell them
/// apart, such as an archive, may be further off. Nothing is written.
///
/// Of more than 40 files, each directory has one row; with -v, every file has.
#[derive(Args)]
pub(crate) struct EstimateArgs {
    /// Files, indexes of checkpoints (model.safetensors.index.json), and directories: in these, the files that compress
    /// -r takes.
    #[arg(value_name = "PATH", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    coding: Coding,

    /// Print one JSON object per file.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Estimates sizes.
pub(crate) fn run(args: &EstimateArgs, ui: &Ui) -> Result {
    for path in &args.files {
        if path.join(STORE_MARKER).is_file() {
            let what = format_args!(
                "is a store, whose files are compressed: lmc snapshot list {} shows their sizes",
                quoted(path)
            );
            return Err(Failure::usage(path, what));
        }
    }
    let files = Files {
        files: args.files.clone(),
        output: None,
        stdout: false,
        recursive: true,
        rm: false,
        force: false,
        skip_existing: false,
        json: args.json,
    };
    forecast(&files, &AddSuffix { all: false }, &args.coding, false, ui)
}
