//! `lmc test`.

use std::path::PathBuf;

use clap::Args;

use super::decompress::Restore;
use crate::fs::guard::Guard;
use crate::fs::output::Target;
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Ui;
use crate::work::args::Threads;
use crate::work::bases::BaseArgs;
use crate::work::plan::{Job, RemoveSuffix, inputs};
use crate::work::run::Run;

/// Check compressed files: decode everything, compare every checksum, write nothing.
///
/// Digests that `lmc compress --digest` stored are compared, too; not that of standard input, whose bytes are gone when it comes.
/// Continues after a file that fails; the exit status is 1 if any did.
#[derive(Args)]
#[command(after_long_help = JSON_HELP)]
pub(crate) struct TestArgs {
    /// Files to check; `-` is standard input, which is also the default when input is piped.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Check every .lmc file in directories.
    #[arg(short, long)]
    recursive: bool,

    /// Nothing: links are followed anyway.
    #[arg(short, long = "force", hide = true)]
    _force: bool,

    /// Print one JSON object per file on standard output.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    threads: Threads,
}

/// The output that programs may rely on.
const JSON_HELP: &str = "\
--json prints one object a file; later versions may add fields. Sizes are in bytes:
  file                     its name, or (stdin)
  ok                       true; of a file that fails, there is error instead, and nothing else
  raw_size, compressed_size, ratio, content_hash, blocks
                           ratio: compressed over raw size, or null; content_hash: of the raw bytes;
                           blocks: how many";

/// Checks files.
pub(crate) fn run(args: &TestArgs, ui: &Ui) -> Result {
    let mut restore = Restore::new(&args.threads)?;
    let (inputs, others) = inputs(&args.files, args.recursive, &RemoveSuffix, ui)?;
    others.lacking.report(false, ui)?;
    if inputs.is_empty() {
        // Success would say that files are well.
        return Err(Failure::Failed("nothing was checked: no file ending in .lmc was found".to_owned()));
    }
    let threads = args.threads.count();
    let bases = args.bases.open_to_restore(inputs.len() > 1, threads)?;
    let job = |input| Job { input, output: Target::Nowhere, directory: None };
    let jobs = inputs.into_iter().map(job).collect();
    let (guard, json) = (Guard::default(), args.json);
    Run { jobs, bases, guard, force: false, remove: false, json, threads, ui }.each(&mut restore)
}
