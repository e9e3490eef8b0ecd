//! `lmc compress`.

use clap::Args;
use lmc::{CompressOptions, Compressor, DecompressOptions, Dtype, ErrorKind, Level, Reader, Sink};
use serde_json::json;

use crate::args::{Files, Limits, Threads, dtype, level};
use crate::bases::{BaseArgs, Bases};
use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::guard::Guard;
use crate::input::{STDIN, Source, Stdin};
use crate::output::{Origin, Target};
use crate::plan::{AddSuffix, Input, Job, guard, plan};
use crate::report::{self, Outcome, Show};
use crate::restorable;
use crate::together::Together;
use crate::ui::Ui;

/// Compress files: FILE becomes FILE.lmc, and FILE is kept.
///
/// Tensors are recognised in files of safetensors, torch.save, torch.distributed (.distcp), NumPy, GGUF and ONNX; in other files the element
/// width is detected from the data, unless --dtype gives it. Pickles are never unpickled. Any file is restored bit for bit, and none grows by
/// more than 0.1 % and some 200 bytes. Output appears under its name only when it is complete and on disk, with the mode and the time of the
/// input.
///
/// With --base, only the differences from an earlier version are stored: tensors are matched by name, by name without wrappers such as
/// `module.`, else by content. Restoring the file takes the same base. A file that shares nothing with the base is compressed as usual, and a
/// message says so.
///
/// What is no model in spite of its name, such as a pointer of Git LFS, a server's error message or an interrupted copy, is compressed as it
/// is, and a message says so.
///
/// With -r, files in directories are compressed if their suffix is that of a checkpoint: safetensors, pt, pth, bin, ckpt, distcp, gguf,
/// npy, npz, onnx; so are the files in which models of ONNX keep their tensors. Configurations and tokenizers are left alone.
#[derive(Args)]
#[command(after_long_help = report::JSON_HELP)]
pub(crate) struct CompressArgs {
    #[command(flatten)]
    files: Files,

    /// With -r, compress every regular file that is not compressed yet.
    #[arg(long, requires = "recursive")]
    all: bool,

    /// Compression level: `fast` is faster, `default` makes smaller files, `max` the smallest at less than half of the speed.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    /// Type of the elements in data of unknown format, such as BF16, F16, F32 or F8_E4M3.
    #[arg(long, value_name = "DTYPE", value_parser = dtype(), ignore_case = true, hide_possible_values = true)]
    dtype: Option<Dtype>,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    threads: Threads,
}

/// Compresses files.
pub(crate) fn run(args: &CompressArgs, ui: &Ui) -> Result {
    let (jobs, links) = plan(&args.files, &AddSuffix { all: args.all }, true, ui)?;
    let options = CompressOptions::default()
        .with_level(args.level)
        .with_threads(args.threads.count())
        .with_max_work(args.limits.max_work())
        .with_dtype(args.dtype);
    let mut compressor = Compressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let bases = args.bases.open(jobs.len() > 1, args.threads.count())?;
    let guard = guard(&jobs, links, &bases, &args.files)?;
    let together = Together::of(jobs.iter().map(Job::path));
    report::each(&jobs, Job::path, Show::Results, args.files.json, ui, |job| {
        compress(&mut compressor, &bases, (&guard, &together), job, args, ui)
    })
}

fn compress(
    compressor: &mut Compressor,
    bases: &Bases,
    (guard, together): (&Guard, &Together),
    job: &Job,
    args: &CompressArgs,
    ui: &Ui,
) -> Result<Outcome> {
    let force = args.files.force;
    let summary = match &job.input {
        Input::Stdin => {
            let mut source = Stdin::open()?;
            let mut output = job.create_output(force, Origin::Stdin(source.metadata().as_ref()), guard)?;
            let progress = ui.progress(STDIN, None);
            let summary = compressor
                .compress(
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
            together.check(&source)?;
            if !force && let Some(skipped) = skipped(&source)? {
                return Ok(skipped);
            }
            if let Some(why) = source.early_end()? {
                ui.warn(format_args!("{}: {why}; it is compressed as it is", Name::path(path)));
            }
            let mut output = job.create_output(force, Origin::File(source.metadata()), guard)?;
            output.check_stays(args.files.rm)?;
            let progress = ui.progress(&Name::path(path).to_string(), Some(source.metadata().len()));
            let of_others = bases.for_input(source.metadata());
            let summary = compressor
                .compress(
                    lmc::Source::from(&source).with_progress(&mut |done| progress.at(done)),
                    &of_others,
                    Sink::writer(&mut output),
                )
                .map_err(|e| report::explain(&source, bases, &output, &e))?;
            drop(progress);
            source.check_unchanged()?;
            together.check(&source)?;
            bases.check_unchanged()?;
            if args.files.rm
                && let Some(written) = output.written()?
            {
                let progress = ui.progress(&Name::path(path).to_string(), Some(source.metadata().len()));
                restorable::check(written, &source, &of_others, args.threads.count(), path, &progress)?;
            }
            let is_file = output.is_file();
            output.finish(guard)?;
            if let (true, false, Target::File(compressed)) = (is_file, of_others.is_empty(), &job.output) {
                Bases::note_unused(path, compressed, ui);
            }
            if args.files.rm {
                source.remove(guard, ui)?;
            }
            summary
        }
    };
    Ok(Outcome::Done {
        line: report::compressed(&summary, job.output.path()),
        fields: vec![("output", json!(job.output.path().to_string_lossy()))],
        summary,
    })
}

/// Why a file is left alone: it is an .lmc file, not just one that begins like one.
fn skipped(source: &Source) -> Result<Option<Outcome>> {
    let mut start = [0; 10];
    let start = source.start(&mut start)?;
    if !start.starts_with(&lmc::MAGIC) {
        return Ok(None);
    }
    let compressed = Outcome::Skipped("it is already compressed; -f compresses it again");
    // Of no text: versions below 256.
    let has_version = matches!(start.get(8..), Some([_, 0]));
    let options = DecompressOptions::default().with_threads(1); // nothing is decoded
    match Reader::open(source, &options) {
        Ok(_) => Ok(Some(compressed)),
        // Its index exists and is larger than the prefix read here.
        Err(e) if e.kind() == ErrorKind::Limit => Ok(Some(compressed)),
        // Another version of lmc wrote it, or it only looks like that: the rest was not read.
        Err(e) if e.kind() == ErrorKind::Unsupported && has_version => Ok(Some(Outcome::Doubtful(format!(
            "it begins like a compressed file, but cannot be read: {e}; -f compresses it all the same"
        )))),
        Err(e) if e.kind() == ErrorKind::Io => Err(Failure::codec(source.path(), &e)),
        Err(_) => Ok(None),
    }
}
