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
    Run { jobs, bases, guard, force: false, skip_existing: false, remove: false, json, threads, ui }.each(&mut restore)
}
