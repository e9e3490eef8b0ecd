//! `lmc completions` and `lmc man`: files that packagers install with the program.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::ui::failure::Result;
use crate::ui::messages::Ui;

/// Print completions for a shell.
///
/// For bash: lmc completions bash > ~/.local/share/bash-completion/completions/lmc
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Write the manual pages into a directory.
#[cfg(feature = "man")]
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// The directory; it is created if missing.
    dir: std::path::PathBuf,
}

/// Prints the completions of a shell for the given grammar of `lmc`.
pub(crate) fn run(args: &CompletionsArgs, mut lmc: Command, ui: &Ui) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut lmc, "lmc", &mut text);
    ui.print(&String::from_utf8_lossy(&text))
}

/// Writes the manual pages.
#[cfg(feature = "man")]
pub(crate) fn man(args: &ManArgs, lmc: Command) -> Result {
    crate::fs::output::create_directories(&args.dir)?;
    clap_mangen::generate_to(lmc.version(env!("CARGO_PKG_VERSION")), &args.dir)
        .map_err(|e| crate::ui::failure::Failure::io(&args.dir, "cannot write the manual pages", &e))
}
