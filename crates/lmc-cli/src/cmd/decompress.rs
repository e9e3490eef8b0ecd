//! `lmc decompress`.

use std::path::Path;

use clap::Args;
use lmc::{DecompressOptions, Decompressor, Reader};
use serde_json::json;

use crate::args::{Files, Threads};
use crate::failure::{Failure, Result};
use crate::format::{Name, bytes};
use crate::input::{STDIN, Source, Stdin};
use crate::output::Origin;
use crate::plan::{Input, Job, RemoveSuffix, plan};
use crate::report::{self, Outcome, Show};
use crate::ui::Ui;

/// Restore compressed files: FILE.lmc becomes FILE, and FILE.lmc is kept.
///
/// Everything is checked while it is restored: a damaged file ends with an error and leaves no output. Several files
/// written to standard output follow one another. With -r, every .lmc file in a directory is restored.
#[derive(Args)]
pub(crate) struct DecompressArgs {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    threads: Threads,
}

/// Restores files.
pub(crate) fn run(args: &DecompressArgs, ui: &Ui) -> Result {
    let jobs = plan(&args.files, &RemoveSuffix, false, ui)?;
    let mut options = DecompressOptions::default();
    options.threads = args.threads.count();
    let mut decompressor = Decompressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    report::each(&jobs, Job::path, Show::Results, args.files.json, ui, |job| {
        decompress(&mut decompressor, &options, job, args, ui)
    })
}

fn decompress(
    decompressor: &mut Decompressor,
    options: &DecompressOptions,
    job: &Job,
    args: &DecompressArgs,
    ui: &Ui,
) -> Result<Outcome> {
    let force = args.files.force;
    let summary = match &job.input {
        Input::Stdin => {
            let mut source = Stdin::open()?;
            let mut output = job.create_output(force, Origin::Stdin(source.metadata().as_ref()))?;
            let progress = ui.progress(STDIN, None);
            let summary = decompressor
                .decompress_stream(&mut source, &mut output, &mut |done| progress.at(done))
                .map_err(|e| output.take_failure().unwrap_or_else(|| Failure::codec(Path::new(STDIN), &e)))?;
            drop(progress);
            output.finish()?;
            summary
        }
        Input::File(path) => {
            let source = Source::open(path, force)?;
            // The index is read before anything is created: most of what is not a compressed file ends here.
            let raw_size = Reader::open(&source, options).map_err(|e| Failure::codec(path, &e))?.raw_size();
            let mut output = job.create_output(force, Origin::File(source.metadata()))?;
            output.check_stays(args.files.rm)?;
            let progress = ui.progress(&Name::path(path).to_string(), Some(raw_size));
            let mut at = |done| progress.at(done);
            let summary = if output.is_file() {
                output.set_size(raw_size)?;
                decompressor.decompress_to(&source, &output, &mut at)
            } else {
                decompressor.decompress_stream(&mut source.stream(), &mut output, &mut at)
            };
            let summary = summary.map_err(|e| report::explain(&source, &output, &e))?;
            drop(progress);
            source.check_unchanged()?;
            output.finish()?;
            if args.files.rm {
                source.remove()?;
            }
            summary
        }
    };
    Ok(Outcome::Done {
        line: format!("{}  ({})", bytes(summary.raw_size), Name::path(job.output.path())),
        fields: vec![("output", json!(job.output.path().to_string_lossy()))],
        summary,
    })
}
