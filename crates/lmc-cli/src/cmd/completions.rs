//! `lmc completions` and `lmc man`: files that packagers install with the program.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

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
    /// The directory; it is created if missing.
    dir: PathBuf,
}

/// Prints the completions of a shell for the given grammar of `lmc`.
pub(crate) fn run(args: &CompletionsArgs, mut lmc: Command, ui: &Ui) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut lmc, "lmc", &mut text);
    ui.print(&String::from_utf8_lossy(&text))
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs, lmc: Command) -> Result {
    create_directories(&args.dir)?;
    clap_mangen::generate_to(lmc.version(env!("CARGO_PKG_VERSION")), &args.dir)
        .map_err(|e| Failure::io(&args.dir, "cannot write the manual pages", &e))
}
