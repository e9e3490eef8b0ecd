//! `lmc hub`: the cache of the Hugging Face hub.

mod args;
mod cache;
mod choice;
mod compress;
mod list;
mod place;
mod restore;

use clap::{Args, Subcommand};

use crate::ui::failure::Result;
use crate::ui::messages::Ui;

/// Compress the models that huggingface_hub downloaded, where they are, and restore them.
///
/// `list` says what would be saved. Compressed models are loaded through `lmc mount CACHE CACHE`, which shows the cache
/// as it was, or in Python after `import lmc.hf`. Data sets and spaces are left alone.
#[derive(Args)]
pub(crate) struct HubCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::ListArgs),
    Compress(compress::CompressArgs),
    Restore(restore::RestoreArgs),
}

/// Runs a command on a cache.
pub(crate) fn run(command: &HubCommand, ui: &Ui) -> Result {
    match &command.command {
        Command::List(args) => list::run(args, ui),
        Command::Compress(args) => compress::run(args, ui),
        Command::Restore(args) => restore::run(args, ui),
    }
}
