//! The `lmc` command.

#![deny(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(lmc_cli::run(std::env::args_os()))
}
