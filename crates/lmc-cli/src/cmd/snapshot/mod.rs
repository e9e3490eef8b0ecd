//! `lmc snapshot`: a training run's snapshots in one store.

mod copy;
mod gc;
mod list;
mod log;
pub(super) mod place;
mod prune;
mod restore;
pub(super) mod save;
mod show;
mod tag;
mod verify;

use clap::{Args, Subcommand};

use crate::ui::failure::Result;
use crate::ui::messages::Ui;

/// Keep every snapshot of a training run in one store, a directory or a bucket, where each takes only the space of its changes.
///
/// STORE is a directory, an archive that `lmc snapshot export` wrote, or a bucket with the usual environment variables:
/// s3://BUCKET/PREFIX (AWS_PROFILE, or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION; AWS_ENDPOINT_URL for servers other than
/// Amazon's), gs://BUCKET/PREFIX (GOOGLE_APPLICATION_CREDENTIALS), az://CONTAINER/PREFIX (AZURE_STORAGE_ACCOUNT_NAME and
/// AZURE_STORAGE_ACCOUNT_KEY). Any number of processes may use it at once; a crash at any moment loses nothing that was saved before.
#[derive(Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Save(save::SaveArgs),
    List(list::ListArgs),
    Log(log::LogArgs),
    Show(show::ShowArgs),
    Restore(restore::RestoreArgs),
    Verify(verify::VerifyArgs),
    Copy(copy::CopyArgs),
    Export(copy::ExportArgs),
    Tag(tag::TagArgs),
    Prune(prune::PruneArgs),
    Gc(gc::GcArgs),
}

/// Runs a command on a store.
pub(crate) fn run(args: &SnapshotArgs, ui: &Ui) -> Result {
    match &args.command {
        Command::Save(args) => save::run(args, ui),
        Command::List(args) => list::run(args, ui),
        Command::Log(args) => log::run(args, ui),
        Command::Show(args) => show::run(args, ui),
        Command::Restore(args) => restore::run(args, ui),
        Command::Verify(args) => verify::run(args, ui),
        Command::Copy(args) => copy::copy(args, ui),
        Command::Export(args) => copy::export(args, ui),
        Command::Tag(args) => tag::run(args, ui),
        Command::Prune(args) => prune::run(args, ui),
        Command::Gc(args) => gc::run(args, ui),
    }
}
