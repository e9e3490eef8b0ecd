//! `lmc decompress`.

use clap::Args;
use lmc::{DecodeLimits, DecompressOptions, Decompressor, Reader, Sink};
use serde_json::json;

use crate::args::{Files, Limits, Threads};
use crate::bases::{BaseArgs, Bases};
use crate::failure::{Failure, Result};
use crate::format::{Name, bytes};
use crate::guard::{Guard, Role};
use crate::input::{STDIN, Source, Stdin};
use crate::output::Origin;
use crate::plan::{Input, Job, RemoveSuffix, guard, plan};
use crate::report::{self, Outcome, Show};
use crate::restorable;
use crate::ui::Ui;

/// Restore compressed files: FILE.lmc becomes FILE, and FILE.lmc is kept.
///
/// A delta needs the base that it was made from (--base), which is recognised by its contents; its name does not matter.
///
/// Everything is verified while it is restored: a damaged file is an error and leaves no output. Several files written to standard output
/// are concatenated. With -r, every .lmc file in a directory is restored.
#[derive(Args)]
#[command(after_long_help = report::JSON_HELP)]
pub(crate) struct DecompressArgs {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    threads: Threads,

    /// Nothing: tar -I 'lmc decompress' adds it.
    #[arg(short = 'd', hide = true)]
    _decompress: bool,
}

/// Restores files.
pub(crate) fn run(args: &DecompressArgs, ui: &Ui) -> Result {
    let (jobs, links) = plan(&args.files, &RemoveSuffix, false, ui)?;
    let limits = DecodeLimits::default().with_max_work(args.limits.max_work());
    let options = DecompressOptions::default().with_threads(args.threads.count()).with_limits(limits);
    let mut decompressor = Decompressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let bases = args.bases.open_to_restore(jobs.len() > 1, args.threads.count())?;
    let guard = guard(&jobs, links, &bases, &args.files)?;
    report::each(&jobs, Job::path, Show::Results, args.files.json, ui, |job| {
        decompress(&mut decompressor, &options, (&bases, &guard), job, args, ui)
    })
}

fn decompress(
    decompressor: &mut Decompressor,
    options: &DecompressOptions,
    (bases, guard): (&Bases, &Guard),
    job: &Job,
    args: &DecompressArgs,
    ui: &Ui,
) -> Result<Outcome> {
    let force = args.files.force;
    let summary = match &job.input {
        Input::Stdin => {
            let mut source = Stdin::open()?;
            let mut output = job.create_output(force, Origin::Stdin(source.metadata().as_ref()), guard)?;
            let progress = ui.progress(STDIN, None);
            let summary = decompressor
                .decompress(
                    lmc::Source::from(&mut source).with_progress(&mut |done| progress.at(done)),
                    bases.all(),
                    Sink::writer(&mut output),
                )
                .map_err(|e| report::explain_stdin(bases, &output, &e))?;
            drop(progress);
            bases.check_unchanged()?;
            output.finish(guard)?;
            summary
        }
        Input::File(path) => {
            let source = Source::open(path)?;
            // The index is read before anything is created: most files that are not compressed fail here.
            let reader = Reader::open(&source, options).map_err(|e| Failure::codec(path, &e))?;
            let raw_size = reader.raw_size();
            let needed = bases.for_file(path, reader.bases())?;
            bases.note_unneeded(path, reader.bases(), ui);
            // The output restores one that is decompressed itself.
            bases.guard_found(guard, Role::Input);
            let mut output = job.create_output(force, Origin::File(source.metadata()), guard)?;
            output.check_stays(args.files.rm)?;
            let progress = ui.progress(&Name::path(path).to_string(), Some(raw_size));
            let mut at = |done| progress.at(done);
            let summary = if output.set_size(raw_size)? {
                decompressor.decompress(lmc::Source::from(&source).with_progress(&mut at), &needed, &output)
            } else {
                decompressor.decompress(
                    lmc::Source::from(&mut source.stream()).with_progress(&mut at),
                    &needed,
                    Sink::writer(&mut output),
                )
            };
            let summary = summary.map_err(|e| report::explain(&source, bases, &output, &e))?;
            drop(progress);
            source.check_unchanged()?;
            bases.check_unchanged()?;
            if args.files.rm
                && let Some(written) = output.written()?
            {
                let progress = ui.progress(&Name::path(path).to_string(), Some(raw_size));
                restorable::check(&source, written, &needed, args.threads.count(), path, &progress)?;
            }
            output.finish(guard)?;
            if args.files.rm {
                source.remove(guard, ui)?;
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
