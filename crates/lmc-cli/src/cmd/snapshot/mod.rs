//! `lmc snapshot`: a training run's snapshots in one store.

mod copy;
mod files;
mod gc;
mod list;
mod log;
mod prune;
mod restore;
mod save;
mod show;
mod verify;

use clap::{Args, Subcommand};
use lmc_store::{DamagedRecord, ErrorKind, Location, Store, StoreOptions};

use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::guard::{Guard, Role};
use crate::ui::Ui;

/// Keep every snapshot of a training run in one store, a directory or a bucket, where each costs what changed.
///
/// STORE is a directory, an archive that `lmc snapshot export` wrote, or s3://BUCKET/PREFIX with the usual environment variables (AWS_ACCESS_KEY_ID,
/// AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for servers other than Amazon's). Any number of processes may use it
/// at once; a crash at any moment loses nothing that was saved before.
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
    Import(copy::ImportArgs),
    Prune(prune::PruneArgs),
    Gc(gc::GcArgs),
}

/// Which store.
#[derive(Args)]
struct Place {
    /// A directory, or s3://BUCKET/PREFIX.
    store: String,
}

/// Which snapshot.
#[derive(Args)]
struct Which {
    /// The snapshot: a step, an id, or `latest`.
    #[arg(long, value_name = "WHICH", default_value = "latest")]
    at: lmc_store::At,
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
        Command::Import(args) => copy::import(args, ui),
        Command::Prune(args) => prune::run(args, ui),
        Command::Gc(args) => gc::run(args, ui),
    }
}

impl Place {
    fn open(&self) -> Result<Store> {
        self.location().and_then(|l| Store::open(&l, Default::default())).map_err(|e| self.failure(&e))
    }

    /// Says which steps a command passes over because their records cannot be read. It goes on, and its exit status is 1.
    fn left_out(&self, damaged: &[DamagedRecord], ui: &Ui) {
        for bad in damaged {
            ui.fail(&Failure::Failed(format!(
                "{}: step {} is left out: {}; lmc snapshot verify says what can be done",
                Name::text(&self.store),
                bad.step,
                Name::text(&bad.message)
            )));
        }
    }

    fn create(&self) -> Result<Store> {
        self.create_with(StoreOptions::default())
    }

    fn create_with(&self, o: StoreOptions) -> Result<Store> {
        self.location().and_then(|l| Store::create(&l, o)).map_err(|e| self.failure(&e))
    }

    fn location(&self) -> lmc_store::Result<Location> {
        self.store.parse()
    }

    /// What keeps anything from being written into the store, where it is on this machine.
    fn guard(&self) -> Guard {
        let guard = Guard::default();
        if let Ok(Location::Directory(path)) = self.location()
            && let Ok(metadata) = std::fs::metadata(&path)
        {
            guard.keep(Role::Store, &path, &metadata);
        }
        guard
    }

    /// What an error of the store is to the user.
    fn failure(&self, e: &lmc_store::Error) -> Failure {
        let store = Name::text(&self.store);
        // The store may be first to say where.
        let text = e.to_string();
        let text = if text.starts_with(&self.store) {
            Name::text(&text).to_string()
        } else {
            format!("{store}: {}", Name::text(&text))
        };
        match e.kind() {
            ErrorKind::Usage => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    }
}

/// A time in UTC, from seconds since 1970 (Hinnant's `civil_from_days`).
fn time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_700_000_000, "2023-11-14 22:13:20"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }
}
