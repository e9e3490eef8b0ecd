//! The `lmc` command: compresses and restores checkpoints of language models. A library, so that the Python package can provide it, too.

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "lab"), allow(dead_code, unused_imports, reason = "some of it is for the lab alone"))]
#![deny(clippy::print_stdout, clippy::print_stderr)] // both panic when the other end is gone

#[cfg(not(unix))]
compile_error!("lmc runs on Linux and other Unix systems: build it there, or for one of them (on Windows, in WSL)");

mod args;
mod bases;
mod beside;
mod cli;
mod cmd;
mod durable;
mod external;
mod failure;
mod files;
mod forecast;
mod format;
mod guard;
mod handles;
mod input;
mod interrupt;
mod json;
mod leftovers;
mod links;
mod missing;
#[cfg(all(feature = "mount", target_os = "linux"))]
mod mount;
mod names;
mod output;
mod plan;
mod platform;
mod plot;
mod progress;
mod report;
mod restorable;
mod run;
mod shards;
mod table;
mod temporary;
mod ui;
mod unchanged;
mod walk;

use std::ffi::OsString;
use std::io::Write;

use clap::FromArgMatches;

#[cfg(feature = "lab")]
pub use cmd::analyze::Study;
pub use durable::{DurableFile, Unfinished, create_directories, finish_in_order};
pub use failure::Failure;
pub use files::{NamedFile, NamedFiles};
pub use guard::{Guard, Refusal, Role};
pub use handles::{Handles, InputFile};
pub use lmc_inspect::truncated;
pub use output::allow_open;

/// Runs the command, and returns its exit code: 0 for success, 1 if something failed, 2 for an invalid command line. `args`: the program's
/// name, and its arguments.
///
/// Installs handlers for the whole process: an interrupt removes unfinished output and ends the process by the signal.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    if let Err(e) = interrupt::install() {
        let (why, what) = (format::io_error(&e), "raise the limit of processes (ulimit -u, or that of the container)");
        let _ = writeln!(std::io::stderr(), "lmc: cannot start a thread: {why}: {what}");
        return 1;
    }
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = cli::grammar()
        .try_get_matches_from(&args)
        .and_then(|matches| cli::Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut cli::grammar())));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) => {
            // When the reader is gone, nothing can be reported.
            let _ = match cli::habit(&args).filter(|_| e.use_stderr()) {
                Some(advice) => writeln!(std::io::stderr(), "lmc: {advice}"),
                None => e.print(),
            };
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    let ui = ui::Ui::new(&cli.global);
    if let Err(failure) = cli::run(cli, &ui) {
        ui.fail(&failure);
    }
    ui.weaker();
    ui.exit_code()
}
