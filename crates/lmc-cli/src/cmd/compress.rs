//! `lmc compress`.

use std::path::Path;

use clap::Args;
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Dtype, ErrorKind, Level, Reader, Sink, Summary};

use crate::args::{Files, Threads, dtype, level, max_work};
use crate::bases::{BaseArgs, Bases};
use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::input::Source;
use crate::output::Target;
use crate::plan::{AddSuffix, Job, plan};
use crate::report::{self, Outcome};
use crate::run::{Look, Run, Work};
use crate::ui::Ui;
use crate::unchanged::Together;

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
    threads: Threads,
}

/// Compresses files.
pub(crate) fn run(args: &CompressArgs, ui: &Ui) -> Result {
    let (jobs, links) = plan(&args.files, &AddSuffix { all: args.all }, true, ui)?;
    let threads = args.threads.count();
    let options = CompressOptions::default()
        .with_level(args.level)
        .with_threads(threads)
        .with_max_work(max_work()?)
        .with_dtype(args.dtype);
    let compressor = Compressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let bases = args.bases.open(jobs.len() > 1, threads)?;
    let together = Together::of(jobs.iter().map(Job::path));
    Run::new(&args.files, (jobs, links), bases, threads, ui)?.each(&mut Compress { compressor, together })
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
