//! `lmc decompress`.

use clap::Args;
use lmc::{Base, DecompressOptions, Decompressor, Reader, Sink, Summary};

use crate::fs::guard::Role;
use crate::fs::input::Source;
use crate::fs::output::Target;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count};
use crate::ui::messages::Ui;
use crate::work::args::{Files, Threads, decoding};
use crate::work::bases::BaseArgs;
use crate::work::plan::{RemoveSuffix, plan};
use crate::work::run::{Look, Run, Work};

/// Restore compressed files: FILE.lmc becomes FILE, and FILE.lmc is kept.
///
/// A delta needs the base that it was made from (--base), which is recognised by its contents; its name does not matter.
///
/// Everything is verified while it is restored: a damaged file is an error and leaves no output. So are digests that
/// `lmc compress --digest` stored; of standard input, only those of bases. Several files written to standard output
/// are concatenated. With -r, every .lmc file in a directory is restored.
#[derive(Args)]
pub(crate) struct DecompressArgs {
    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    threads: Threads,

    /// Nothing: tar -I 'lmc decompress' adds it.
    #[arg(short = 'd', hide = true)]
    _decompress: bool,
}

/// Restores files.
pub(crate) fn run(args: &DecompressArgs, ui: &Ui) -> Result {
    let (jobs, links) = plan(&args.files, &RemoveSuffix, false, ui)?;
    let mut restore = Restore::new(&args.threads)?;
    let threads = args.threads.count();
    let bases = args.bases.open_to_restore(jobs.len() > 1, threads)?;
    Run::new(&args.files, (jobs, links), bases, threads, ui)?.each(&mut restore)
}

/// The work of `decompress`, and of `test`, whose output goes nowhere.
pub(super) struct Restore {
    decompressor: Decompressor,
    options: DecompressOptions,
}

impl Restore {
    pub(super) fn new(threads: &Threads) -> Result<Self> {
        let options = decoding(threads)?;
        let decompressor = Decompressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
        Ok(Self { decompressor, options })
    }
}

impl Work for Restore {
    fn look(&mut self, source: &Source, run: &Run<'_>) -> Result<Look> {
        // The index is read before anything is created: most files that are not compressed fail here.
        let path = source.path();
        let reader = Reader::open(source, &self.options).map_err(|e| Failure::codec(path, &e))?;
        let bases = run.bases.for_file(path, reader.bases())?;
        run.bases.note_unneeded(path, reader.bases(), run.ui);
        // The output restores one that is decompressed itself.
        run.bases.guard_found(&run.guard, Role::Input);
        Ok(Look::Take { bases, restored_size: Some(reader.raw_size()) })
    }

    fn code(&mut self, from: lmc::Source<'_>, bases: &[Base<'static>], to: Sink<'_>) -> lmc::Result<Summary> {
        self.decompressor.decompress(from, bases, to)
    }

    fn line(&self, summary: &Summary, output: &Target) -> String {
        let size = bytes(summary.raw_size);
        match output {
            Target::Nowhere => format!("OK  ({size}, {})", count(summary.blocks, "block")),
            output => format!("{size}  ({})", Name::path(output.path())),
        }
    }
}
