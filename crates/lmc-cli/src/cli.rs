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

/// Where the fields of JSON are described.
const FIELDS: &str = "docs/json.md in the sources of lmc describes what --json prints.";

/// An example of each command.
const EXAMPLES: &[&str] = &[
    "lmc compress -r checkpoints/ -o compressed/",
    "lmc decompress model.safetensors.lmc -o model.safetensors",
    "lmc test -r checkpoints/",
    "lmc estimate models/",
    "lmc list model.safetensors.lmc",
    "lmc cat model.safetensors.lmc embed.weight --rows 0..10 -o rows",
    "lmc diff step100.safetensors step200.safetensors",
    "lmc analyze runs/7 --html run.html",
    "lmc snapshot save runs/7 checkpoint-300/ --step 300 --meta loss=2.31",
    "lmc snapshot list runs/7",
    "lmc snapshot log runs/7 -n 20",
    "lmc snapshot show runs/7 --at 300 -v",
    "lmc snapshot restore runs/7 --at best -o model/",
    "lmc snapshot verify runs/7 --deep",
    "lmc snapshot copy runs/7 s3://bucket/runs/7",
    "lmc snapshot export runs/7 run7.tar --at best",
    "lmc snapshot tag runs/7 best 300",
    "lmc snapshot prune runs/7 --keep-last 5 --keep-every 1000 --yes",
    "lmc snapshot gc runs/7 -n",
    "lmc publish s3://bucket/runs/7 checkpoints/ --health-file /run/lmc/health.json",
    "lmc follow s3://bucket/runs/7 models/7 --exec 'systemctl reload server'",
    "lmc unpack model.pt -o out/",
    "lmc hub list",
    "lmc hub compress -n",
    "lmc hub restore org/model",
    "lmc mount compressed/ mnt/",
];

/// The grammar of `lmc`; the help of every command ends with an example and its exit status.
pub(crate) fn grammar() -> Grammar {
    fn with_ends(command: Grammar, path: &str) -> Grammar {
        let path = format!("{path} {}", command.get_name());
        let is_of_it =
            |example: &&&str| example.strip_prefix(&path).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        let is_last = command.get_subcommands().next().is_none();
        let example = EXAMPLES.iter().find(is_of_it).filter(|_| is_last).map(|example| format!("Example: {example}"));
        let fields = command.get_arguments().any(|arg| arg.get_id() == "json").then(|| FIELDS.to_owned());
        let ends: Vec<String> = example.into_iter().chain(fields).chain([EXIT_STATUS.to_owned()]).collect();
        command.after_help(ends.join("\n\n")).mut_subcommands(|inner| with_ends(inner, &path))
    }
    Cli::command().mut_subcommands(|command| with_ends(command, "lmc"))
}

/// Words that are looked for among the commands, and what does that.
const ELSEWHERE: [(&str, &str); 4] = [
    ("verify", "lmc test checks compressed files, and lmc snapshot verify a store"),
    ("extract", "lmc decompress restores files, lmc unpack writes their tensors, and lmc cat one of them"),
    ("rm", "lmc snapshot prune removes snapshots, and compress --rm inputs"),
    ("restore", "lmc decompress restores files, lmc snapshot restore a snapshot, and lmc hub restore a cache"),
];

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
        "--decompress" | "--uncompress" => "decompress",
        "-t" | "--test" => "test",
        "-l" | "--list" => "list",
        "-c" | "-z" | "--compress" | "--stdout" => "compress",
        level if is_level(level) => "compress",
        "compress" => {
            let level = words.iter().find(|word| is_level(word))?;
            return Some(format!("{level} is no level of lmc: use -l fast, -l default or -l max"));
        }
        name => {
            let (_, advice) = ELSEWHERE.iter().find(|(other, _)| *other == name)?;
            return Some(format!("{name} is no command: {advice}; lmc --help lists all"));
        }
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
    #[command(aliases = ["d", "x"], short_flag_alias = 'd')]
    Decompress(cmd::decompress::DecompressArgs),
    Test(cmd::test::TestArgs),
    Estimate(cmd::estimate::EstimateArgs),
    #[command(alias = "info")]
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
