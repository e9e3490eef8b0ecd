//! The commands, one module each: arguments, and a `run` function.

pub(crate) mod analyze;
#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod compress;
pub(crate) mod decompress;
pub(crate) mod diff;
pub(crate) mod follow;
pub(crate) mod list;
mod looks;
mod page;
pub(crate) mod publish;
pub(crate) mod snapshot;
pub(crate) mod test;
pub(crate) mod unpack;
mod version;

use crate::cli::{self, Cli, Command};
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// Runs the command that the command line selects.
pub(crate) fn run(cli: Cli, ui: &Ui) -> Result {
    if cli.version {
        return version::run(ui);
    }
    match cli.command {
        Some(Command::Analyze(args)) => analyze::run(&args, ui),
        Some(Command::Compress(args)) => compress::run(&args, ui),
        Some(Command::Decompress(args)) => decompress::run(&args, ui),
        Some(Command::Diff(args)) => diff::run(&args, ui),
        Some(Command::Follow(args)) => follow::run(&args, ui),
        Some(Command::Publish(args)) => publish::run(&args, ui),
        Some(Command::Snapshot(args)) => snapshot::run(&args, ui),
        Some(Command::Test(args)) => test::run(&args, ui),
        Some(Command::List(args)) => list::run(&args, ui),
        Some(Command::Cat(args)) => cat::run(&args, ui),
        Some(Command::Unpack(args)) => unpack::run(&args, ui),
        #[cfg(feature = "bench")]
        Some(Command::Bench(args)) => bench::run(&args, ui),
        Some(Command::Completions(args)) => completions::run(&args, cli::grammar(), ui),
        Some(Command::Man(args)) => completions::man(&args, cli::grammar()),
        None => Err(Failure::Usage("no command: lmc --help lists them".to_owned())),
    }
}
