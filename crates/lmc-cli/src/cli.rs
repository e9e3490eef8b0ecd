//! The command line: `lmc` and its commands.

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::{Command as Grammar, CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::ui::failure::{Failure, Result};
use crate::ui::messages::Global;
use crate::ui::messages::Ui;

/// What every command returns.
const EXIT_STATUS: &str = "\
Exit status: 0 done; 1 something failed, or is not there; 2 the command line is wrong. Signals end
the process: Ctrl-C gives 130 in shells.";

/// The grammar of `lmc`; the help of every command ends with its exit status.
pub(crate) fn grammar() -> Grammar {
    fn with_exit_status(command: Grammar) -> Grammar {
        let long = match command.get_after_long_help() {
            Some(text) => format!("{text}\n\n{EXIT_STATUS}"),
            None => EXIT_STATUS.to_owned(),
        };
        command.after_help(EXIT_STATUS).after_long_help(long).mut_subcommands(with_exit_status)
    }
    Cli::command().mut_subcommands(with_exit_status)
}

/// What to say to a command line that would be right for gzip or zstd; `args` begins with the name of the program.
pub(crate) fn habit(args: &[OsString]) -> Option<String> {
    let words: Vec<_> = args.iter().skip(1).map(|arg| arg.to_string_lossy()).collect();
    let is_level =
        |word: &str| word.strip_prefix('-').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let Some(first) = words.first() else {
        // A terminal gets the help.
        let what =
            "no command: compress or decompress (tar -I 'lmc compress', tar -I 'lmc decompress'); lmc --help lists all";
        return (!std::io::stdin().is_terminal()).then(|| what.to_owned());
    };
    let command = match &**first {
        "-d" | "--decompress" | "--uncompress" => "decompress",
        "-t" | "--test" => "test",
        "-l" | "--list" => "list",
        "-c" | "-z" | "--compress" | "--stdout" => "compress",
        level if is_level(level) => "compress",
        "compress" => {
            let level = words.iter().find(|word| is_level(word))?;
            return Some(format!("{level} is no level of lmc: use -l fast, -l default or -l max"));
        }
        _ => return None,
    };
    Some(format!("{first} needs a command before it: lmc {command} (tar -I 'lmc {command}'); lmc --help lists all"))
}

/// Lossless compression of language model checkpoints.
#[derive(Parser)]
#[command(
    name = "lmc",
    disable_version_flag = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  lmc estimate models/                      what compressing would save, in seconds
  lmc compress model.safetensors            writes model.safetensors.lmc beside it
  lmc decompress model.safetensors.lmc      writes model.safetensors again, bit for bit
  lmc compress -r --rm checkpoints/         every checkpoint in a directory, in place
  lmc list model.safetensors.lmc            what is inside, without decoding it
  lmc diff step100.safetensors step200.safetensors   what changed, tensor by tensor
  lmc analyze runs/7 --html run.html        how all of a run compresses, as a page
  lmc snapshot save runs/7 model.safetensors --step 300   into a store, where it costs what changed
  lmc publish runs/7 checkpoints            saves what a run writes to checkpoints/, as it does
  lmc follow runs/7 models/7                keeps models/7/current at the newest snapshot
  lmc mount models/7 mnt                    shows compressed files as their originals, in mnt/
  lmc hub compress                          the models that huggingface_hub downloaded, in their cache
  tar c run7 | lmc compress | ssh host 'lmc decompress | tar x'

Exit status: 0 done; 1 something failed, or is not there; 2 the command line is wrong. Signals end
the process: Ctrl-C gives 130 in shells.
Environment: LMC_MAX_WORK is the most bytes, with k, M, G, Ki, Mi or Gi, that may be decoded for one
file or one base, including everything that they depend on; by default 96 times the requested size
and 4 GiB. A longer chain of deltas may exceed it, and so may a forged file.
Use 'lmc COMMAND --help' for the options of a command."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    /// Print the version and the version of the file format; with -v, the instruction sets too.
    #[arg(short = 'V', long)]
    pub(crate) version: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The commands of `lmc`.
#[derive(Subcommand)]
pub(crate) enum Command {
    Compress(cmd::compress::CompressArgs),
    Decompress(cmd::decompress::DecompressArgs),
    Test(cmd::test::TestArgs),
    Estimate(cmd::estimate::EstimateArgs),
    List(cmd::list::ListArgs),
    Cat(cmd::cat::CatArgs),
    #[cfg(feature = "lab")]
    Diff(cmd::diff::DiffArgs),
    #[cfg(feature = "lab")]
    Analyze(cmd::analyze::AnalyzeArgs),
    Snapshot(cmd::snapshot::SnapshotArgs),
    Publish(cmd::publish::PublishArgs),
    Follow(cmd::follow::FollowArgs),
    Unpack(cmd::unpack::UnpackArgs),
    Hub(cmd::hub::HubCommand),
    #[cfg(feature = "mount")]
    Mount(cmd::mount::MountArgs),
    Completions(cmd::completions::CompletionsArgs),
    #[cfg(feature = "man")]
    Man(cmd::completions::ManArgs),
}

/// Runs the command that the command line selects.
pub(crate) fn run(cli: Cli, ui: &Ui) -> Result {
    if cli.version {
        return cmd::version::run(ui);
    }
    match cli.command {
        #[cfg(feature = "lab")]
        Some(Command::Analyze(args)) => cmd::analyze::run(&args, ui),
        Some(Command::Compress(args)) => cmd::compress::run(&args, ui),
        Some(Command::Decompress(args)) => cmd::decompress::run(&args, ui),
        #[cfg(feature = "lab")]
        Some(Command::Diff(args)) => cmd::diff::run(&args, ui),
        Some(Command::Estimate(args)) => cmd::estimate::run(&args, ui),
        Some(Command::Follow(args)) => cmd::follow::run(&args, ui),
        Some(Command::Publish(args)) => cmd::publish::run(&args, ui),
        Some(Command::Snapshot(args)) => cmd::snapshot::run(&args, ui),
        Some(Command::Test(args)) => cmd::test::run(&args, ui),
        Some(Command::List(args)) => cmd::list::run(&args, ui),
        Some(Command::Cat(args)) => cmd::cat::run(&args, ui),
        Some(Command::Hub(args)) => cmd::hub::run(&args, ui),
        Some(Command::Unpack(args)) => cmd::unpack::run(&args, ui),
        #[cfg(feature = "mount")]
        Some(Command::Mount(args)) => cmd::mount::run(&args, ui),
        Some(Command::Completions(args)) => cmd::completions::run(&args, grammar(), ui),
        #[cfg(feature = "man")]
        Some(Command::Man(args)) => cmd::completions::man(&args, grammar()),
        None => Err(Failure::Usage("no command: lmc --help lists them".to_owned())),
    }
}
