//! The `lmc` command: compresses and restores checkpoints of language models. A library, so that the Python package can provide it, too.

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "lab"), allow(dead_code, unused_imports, reason = "some of it is for the lab alone"))]
#![deny(clippy::print_stdout, clippy::print_stderr)] // both panic when the other end is gone

#[cfg(not(unix))]
compile_error!("lmc runs on Linux and other Unix systems: build it there, or for one of them (on Windows, in WSL)");

mod cli;
mod cmd;
mod fs;
#[cfg(all(feature = "mount", target_os = "linux"))]
mod mount;
mod platform;
mod ui;
mod work;

use std::ffi::OsString;
use std::io::Write;

use clap::FromArgMatches;

#[cfg(feature = "lab")]
pub use cmd::analyze::Study;
pub use fs::durable::{DurableFile, Unfinished, create_directories, finish_in_order};
pub use fs::guard::{Guard, Refusal, Role};
pub use fs::handles::{Handles, InputFile};
pub use fs::output::allow_open;
pub use lmc_inspect::truncated;
pub use ui::failure::Failure;
pub use work::beside::bases_beside;
pub use work::files::{NamedFile, NamedFiles};

/// Runs the command, and returns its exit code: 0 for success, 1 if something failed, 2 for an invalid command line. `args`: the program's
/// name, and its arguments.
///
/// Installs handlers for the whole process: an interrupt removes unfinished output and ends the process by the signal.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    if let Err(e) = ui::interrupt::install() {
        let (why, what) =
            (ui::format::io_error(&e), "raise the limit of processes (ulimit -u, or that of the container)");
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
    let ui = ui::messages::Ui::new(&cli.global);
    if let Err(failure) = cli::run(cli, &ui) {
        ui.fail(&failure);
    }
    ui.weaker();
    ui.exit_code()
}
