//! `lmc test`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use lmc::{DecodeLimits, DecompressOptions, Decompressor, Reader, Sink};

use crate::args::{Limits, Threads};
use crate::bases::{BaseArgs, Bases};
use crate::failure::{Failure, Result};
use crate::format::{Name, bytes, count};
use crate::input::{STDIN, Source, Stdin};
use crate::plan::{Input, RemoveSuffix, inputs};
use crate::report::{self, Outcome, Show};
use crate::ui::Ui;

/// Check compressed files: decode everything, compare every checksum, write nothing.
///
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
    limits: Limits,

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
    let limits = DecodeLimits::default().with_max_work(args.limits.max_work());
    let options = DecompressOptions::default().with_threads(args.threads.count()).with_limits(limits);
    let mut decompressor = Decompressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let (inputs, others) = inputs(&args.files, args.recursive, &RemoveSuffix, ui)?;
    others.lacking.report(false, ui)?;
    if inputs.is_empty() {
        // Success would say that files are well.
        return Err(Failure::Failed("nothing was checked: no file ending in .lmc was found".to_owned()));
    }
    let bases = args.bases.open_to_restore(inputs.len() > 1, args.threads.count())?;
    report::each(&inputs, Input::path, Show::Verdicts, args.json, ui, |input| {
        test(&mut decompressor, &options, &bases, input, ui)
    })
}

fn test(
    decompressor: &mut Decompressor,
    options: &DecompressOptions,
    bases: &Bases,
    input: &Input,
    ui: &Ui,
) -> Result<Outcome> {
    let summary = match input {
        Input::Stdin => {
            let mut source = Stdin::open()?;
            let progress = ui.progress(STDIN, None);
            decompressor
                .decompress(
                    lmc::Source::from(&mut source).with_progress(&mut |done| progress.at(done)),
                    bases.all(),
                    Sink::writer(&mut io::sink()),
                )
                .map_err(|e| bases.check_unchanged().err().unwrap_or_else(|| Failure::codec(Path::new(STDIN), &e)))?
        }
        Input::File(path) => {
            let source = Source::open(path)?;
            let reader = Reader::open(&source, options).map_err(|e| Failure::codec(path, &e))?;
            let raw_size = reader.raw_size();
            let needed = bases.for_file(path, reader.bases())?;
            bases.note_unneeded(path, reader.bases(), ui);
            let progress = ui.progress(&Name::path(path).to_string(), Some(raw_size));
            let summary = decompressor
                .decompress(lmc::Source::from(&source).with_progress(&mut |done| progress.at(done)), &needed, &Nowhere)
                .map_err(|e| {
                    let changed = source.check_unchanged().and_then(|()| bases.check_unchanged());
                    changed.err().unwrap_or_else(|| Failure::codec(path, &e))
                })?;
            source.check_unchanged()?;
            bases.check_unchanged()?;
            summary
        }
    };
    let line = format!("OK  ({}, {})", bytes(summary.raw_size), count(summary.blocks, "block"));
    Ok(Outcome::Done { line, fields: vec![("ok", true.into())], summary })
}

/// Discards decoded data.
struct Nowhere;

impl lmc::WriteAt for Nowhere {
    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
}
