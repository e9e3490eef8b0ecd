//! Selects a store, and a snapshot in it.

use clap::Args;
use lmc_store::{DamagedRecord, ErrorKind, Location, Step, Store, StoreOptions};

use crate::failure::{Failure, Result};
use crate::format::Name;
use crate::guard::{Guard, Role};
use crate::ui::Ui;

/// Selects a store.
#[derive(Args)]
pub(in crate::cmd) struct Place {
    /// A directory, or s3://BUCKET/PREFIX.
    pub(in crate::cmd) store: String,
}

/// Selects a snapshot.
#[derive(Args)]
pub(super) struct Which {
    /// The snapshot: a step, an id, or `latest`.
    #[arg(long, value_name = "WHICH", default_value = "latest")]
    pub(super) at: lmc_store::At,
}

impl Place {
    pub(in crate::cmd) fn open(&self) -> Result<Store> {
        self.try_open().map_err(|e| self.failure(&e))
    }

    /// [`Self::open`] with the store's own error, for a place that may be something else.
    pub(in crate::cmd) fn try_open(&self) -> lmc_store::Result<Store> {
        self.location().and_then(|l| Store::open(&l, Default::default()))
    }

    /// Says which steps a command passes over because their records cannot be read. It goes on, and its exit status is 1.
    pub(in crate::cmd) fn left_out(&self, damaged: &[DamagedRecord], ui: &Ui) {
        damaged.iter().for_each(|bad| self.skipped(bad.step, &bad.message, ui));
    }

    /// Says that a command passes over a step. It goes on, and its exit status is 1.
    pub(super) fn skipped(&self, step: Step, why: &str, ui: &Ui) {
        ui.fail(&Failure::Failed(format!(
            "{}: step {step} is skipped: {}; lmc snapshot verify shows what can be done",
            Name::text(&self.store),
            Name::text(why)
        )));
    }

    pub(in crate::cmd) fn create_with(&self, o: StoreOptions) -> Result<Store> {
        self.location().and_then(|l| Store::create(&l, o)).map_err(|e| self.failure(&e))
    }

    pub(in crate::cmd) fn location(&self) -> lmc_store::Result<Location> {
        self.store.parse()
    }

    /// Registers a store on this machine, so that nothing is written into it.
    pub(in crate::cmd) fn guard(&self) -> Guard {
        let guard = Guard::default();
        if let Ok(Location::Directory(path)) = self.location()
            && let Ok(metadata) = std::fs::metadata(&path)
        {
            guard.keep(Role::Store, &path, &metadata);
        }
        guard
    }

    /// An error of the store, as shown to the user.
    pub(in crate::cmd) fn failure(&self, e: &lmc_store::Error) -> Failure {
        let store = Name::text(&self.store);
        // The store's message may already say where.
        let text = e.to_string();
        let location = self.location().map_or_else(|_| self.store.clone(), |l| l.to_string());
        let text = if [&self.store, &location].iter().any(|place| text.starts_with(&format!("{place}: "))) {
            Name::text(&text).to_string()
        } else {
            format!("{store}: {}", Name::text(&text))
        };
        match e.kind() {
            ErrorKind::Usage => Failure::Usage(text),
            // The store's message contains advice where it has some.
            kind @ ErrorKind::Damaged
                if !["lmc snapshot", "copy of the store", "an archive of"].iter().any(|s| text.contains(s)) =>
            {
                Failure::Store(kind, format!("{text}; lmc snapshot verify shows what is lost, and what can be done"))
            }
            kind => Failure::Store(kind, text),
        }
    }
}
