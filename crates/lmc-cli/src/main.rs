//! The `lmc` command: compresses and restores checkpoints of language models.

#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // both panic when the other end is gone

mod args;
mod bases;
mod cmd;
mod failure;
mod format;
mod input;
mod interrupt;
mod output;
mod plan;
mod plot;
mod progress;
mod report;
mod shards;
mod ui;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    interrupt::install();
    let cli = args::Cli::parse();
    let ui = ui::Ui::new(&cli.global);
    match cmd::run(cli, &ui) {
        Ok(()) => ui.exit_code(),
        Err(failure) => {
            ui.fail(&failure);
            ui.exit_code()
        }
    }
}
