//! `lmc compress`.

use std::path::Path;

use clap::Args;
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Dtype, ErrorKind, Level, Reader, Sink, Summary};

use crate::fs::input::Source;
use crate::fs::output::{Origin, Output, Target};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;
use crate::work::args::{Files, Threads, dtype, level, max_work};
use crate::work::bases::{BaseArgs, Bases};
use crate::work::forecast::{self, Rows, Taken};
use crate::work::plan::{AddSuffix, Input, Job, Naming, plan};
use crate::work::report::{self, Left};
use crate::work::run::{Look, Run, Work};
use crate::work::unchanged::Together;

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
/// npy, npz, onnx; so are files without a suffix that have tensors, and those in which models of ONNX keep theirs. Configurations and
/// tokenizers are left alone. Models in the cache of the Hugging Face hub are compressed by lmc hub compress.
#[derive(Args)]
pub(crate) struct CompressArgs {
    #[command(flatten)]
    files: Files,

    /// With -r, compress every regular file that is not compressed yet.
    #[arg(long, requires = "recursive")]
    all: bool,

    /// Write nothing: print what would be written and how large it would be, estimated as by lmc estimate, what would
    /// be left alone, and what would fail.
    #[arg(short = 'n', long, conflicts_with = "stdout")]
    dry_run: bool,

    /// Store the SHA-256 of the file, and that of the base: `lmc test` and `lmc decompress` compare them, and `lmc list` shows them.
    /// Without it, what is restored is checked against accidents only: a forged base may pass for the right one.
    #[arg(long)]
    digest: bool,

    #[command(flatten)]
    coding: Coding,
}

/// How files are compressed.
#[derive(Args)]
pub(super) struct Coding {
    /// Compression level: `fast` is faster, `default` makes smaller files, `max` the smallest at less than half of the speed.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    /// Type of the elements in data of unknown format, such as BF16, F16, F32 or F8_E4M3.
    #[arg(long, value_name = "DTYPE", value_parser = dtype(), ignore_case = true, hide_possible_values = true)]
    dtype: Option<Dtype>,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    threads: Threads,
}

impl Coding {
    fn options(&self) -> Result<CompressOptions> {
        Ok(CompressOptions::default()
            .with_level(self.level)
            .with_threads(self.threads.count())
            .with_max_work(max_work()?)
            .with_dtype(self.dtype))
    }
}

/// Compresses files.
pub(crate) fn run(args: &CompressArgs, ui: &Ui) -> Result {
    let naming = AddSuffix { all: args.all };
    if args.dry_run {
        return forecast(&args.files, &naming, &args.coding, true, ui);
    }
    let options = args.coding.options()?.with_digest(args.digest);
    let (run, mut work) = begin(&args.files, &naming, &args.coding, &options, ui)?;
    run.each(&mut work)
}

/// The run over some files, and its work.
fn begin<'u>(
    files: &Files,
    naming: &dyn Naming,
    coding: &Coding,
    options: &CompressOptions,
    ui: &'u Ui,
) -> Result<(Run<'u>, Compress)> {
    let (jobs, links) = plan(files, naming, true, ui)?;
    let compressor = Compressor::new(options).map_err(|e| Failure::Usage(e.to_string()))?;
    let threads = coding.threads.count();
    let bases = coding.bases.open(jobs.len() > 1, threads)?;
    let together = Together::of(jobs.iter().map(Job::path));
    Ok((Run::new(files, (jobs, links), bases, threads, ui)?, Compress { compressor, together }))
}

/// Says what a run over these files would do, and with `outputs` what it would write.
pub(super) fn forecast(files: &Files, naming: &dyn Naming, coding: &Coding, outputs: bool, ui: &Ui) -> Result {
    let options = coding.options()?;
    let (run, mut work) = begin(files, naming, coding, &options, ui)?;
    let handles = std::sync::Arc::default();
    let look = |job: &Job| {
        let Input::File(path) = &job.input else {
            let why = "an estimate reads here and there in a file, not standard input: name a file";
            return Err(Failure::Usage(why.to_owned()));
        };
        if let Some(left) = run.left(job) {
            return Ok(Err(left));
        }
        let source = Source::open_one_of(path, &handles)?;
        let bases = match work.look(&source, &run)? {
            Look::Leave(Left::Skipped(_)) if !outputs => return Ok(Err(Left::Skipped("it is already compressed"))),
            Look::Leave(left) => return Ok(Err(left)),
            Look::Take { bases, .. } => bases,
        };
        if outputs {
            let origin = Origin::File(source.metadata());
            Output::check(&job.output, run.force, origin, &run.guard, (job.directory.is_some(), run.remove))?;
        }
        Ok(Ok(Taken { source, bases }))
    };
    let mut rows = Rows::default();
    let told = |job: &Job, result: Result<_>| {
        let (path, output) = (job.path(), outputs.then(|| job.output.path()));
        let record = match result {
            Ok(Ok(estimate)) => {
                rows.add(path, &estimate, output);
                forecast::record(path, &estimate, output)
            }
            Ok(Err(left)) => report::left(path, &left, ui),
            Err(failure) => report::failed(path, &failure, ui),
        };
        if run.json { ui.json(&record) } else { Ok(()) }
    };
    forecast::forecast(&run.jobs, &options, &run.bases, look, told)?;
    run.bases.check_unchanged()?;
    if run.json { Ok(()) } else { rows.print(outputs || ui.verbose(), ui) }
}

struct Compress {
    compressor: Compressor,
    together: Together,
}

impl Work for Compress {
    fn look(&mut self, source: &Source, run: &Run<'_>) -> Result<Look> {
        self.together.check(source)?;
        if !run.force
            && let Some(skipped) = skipped(source)?
        {
            return Ok(Look::Leave(skipped));
        }
        if let Some(why) = source.truncated()? {
            run.ui.warn(format_args!("{}: {why}; it is compressed as it is", Name::path(source.path())));
        }
        Ok(Look::Take { bases: run.bases.for_input(source.metadata()), restored_size: None })
    }

    fn code(&mut self, from: lmc::Source<'_>, bases: &[Base<'static>], to: Sink<'_>) -> lmc::Result<Summary> {
        self.compressor.compress(from, bases, to)
    }

    fn complete(&self, summary: &Summary, output: &Output) -> Result {
        output.replace_header(summary)
    }

    fn check(&self, source: &Source) -> Result {
        self.together.check(source)
    }

    fn written(&self, input: &Path, output: &Path, bases: &[Base<'static>], ui: &Ui) {
        if !bases.is_empty() {
            Bases::note_unused(input, output, ui);
        }
    }

    fn line(&self, summary: &Summary, output: &Target) -> String {
        report::compressed(summary, output.path())
    }
}

/// Why a file is left alone: it is an .lmc file, not just one that begins like one.
fn skipped(source: &Source) -> Result<Option<Left>> {
    let mut start = [0; 10];
    let start = source.start(&mut start)?;
    if !start.starts_with(&lmc::MAGIC) {
        return Ok(None);
    }
    let compressed = Left::Skipped("it is already compressed; -f compresses it again");
    // Of no text: versions below 256.
    let has_version = matches!(start.get(8..), Some([_, 0]));
    let options = DecompressOptions::default().with_threads(1); // nothing is decoded
    match Reader::open(source, &options) {
        Ok(_) => Ok(Some(compressed)),
        // Its index exists and is larger than the prefix read here.
        Err(e) if e.kind() == ErrorKind::Limit => Ok(Some(compressed)),
        // Another version of lmc wrote it, or it only looks like that: the rest was not read.
        Err(e) if e.kind() == ErrorKind::Unsupported && has_version => Ok(Some(Left::Doubtful(format!(
            "it begins like a compressed file, but cannot be read: {e}; -f compresses it all the same"
        )))),
        Err(e) if e.kind() == ErrorKind::Io => Err(Failure::codec(source.path(), &e)),
        Err(_) => Ok(None),
    }
}
