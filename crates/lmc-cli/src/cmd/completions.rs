//! `lmc completions` and `lmc man`: what packagers install beside the program.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::{Failure, Result};
use crate::output::create_directories;
use crate::ui::Ui;

/// Print completions for a shell.
///
/// For bash: lmc completions bash > ~/.local/share/bash-completion/completions/lmc
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Write the manual pages into a directory.
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// The directory; it is created if it is not there.
    dir: PathBuf,
}

/// Prints the completions of a shell.
pub(crate) fn run(args: &CompletionsArgs, ui: &Ui) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lmc", &mut text);
    ui.print(&String::from_utf8_lossy(&text))
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs) -> Result {
    create_directories(&args.dir)?;
    clap_mangen::generate_to(Cli::command().version(env!("CARGO_PKG_VERSION")), &args.dir)
        .map_err(|e| Failure::io(&args.dir, "cannot write the manual pages", &e))
}
