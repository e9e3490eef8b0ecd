//! Selects a store, and a snapshot in it.

use clap::Args;
use lmc_store::{At, DamagedRecord, ErrorKind, Location, Snapshot, Step, Store, StoreOptions, Tags};

use crate::fs::guard::{Guard, Role};
use crate::fs::names::STORE_MARKER;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::Name;
use crate::ui::messages::Ui;

/// Entries of a directory that may be there before its store.
const NOT_OF_OTHERS: [&str; 9] = [
    "data",
    "probes",
    "shards",
    "snapshots",
    "tags",
    // Of file systems.
    "lost+found",
    "@eaDir",
    "$RECYCLE.BIN",
    "System Volume Information",
];
/// Beginnings of names of files about a directory.
const NOTES: [&str; 2] = ["README", "LICENSE"];

/// Selects a store.
#[derive(Args)]
pub(in crate::cmd) struct Place {
    /// A directory, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX.
    pub(in crate::cmd) store: String,
}

/// The grace period of a new store.
#[derive(Args)]
pub(in crate::cmd) struct Grace {
    /// The grace period of a new store: a number with s, m, h, d or w, as 7d. A save may take half of it, and data stay that long after a
    /// snapshot last needed them. That of an existing store cannot be changed. By default that of the copied store, or 1d.
    #[arg(long, value_name = "TIME", value_parser = parse_grace)]
    grace: Option<u64>,
}

fn parse_grace(text: &str) -> Result<u64, String> {
    parse_seconds(text).ok().filter(|seconds| StoreOptions::GRACE_SECONDS.contains(seconds)).ok_or_else(|| {
        let (least, most) = (StoreOptions::GRACE_SECONDS.start(), StoreOptions::GRACE_SECONDS.end() / 86_400);
        format!("a grace period is a whole number with a unit (s, m, h, d or w), from {least}s to {most}d")
    })
}

/// The seconds of a whole number with a unit.
pub(super) fn parse_seconds(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        "w" => Some(7 * 86_400),
        _ => None,
    };
    let seconds = number.parse::<u64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    seconds.ok_or_else(|| "give a whole number with a unit: s, m, h, d or w, as 2d".to_owned())
}

/// A grace period, for messages.
pub(super) fn period(seconds: u64) -> String {
    if seconds.is_multiple_of(3600) { format!("{} h", seconds / 3600) } else { format!("{seconds} s") }
}

impl Grace {
    pub(in crate::cmd) fn set(&self, o: &mut StoreOptions) {
        o.grace_seconds = self.grace.unwrap_or(o.grace_seconds);
    }

    /// Fails if a store has another one.
    pub(in crate::cmd) fn check(&self, place: &Place, store: &Store) -> Result {
        match (self.grace, store.grace_seconds()) {
            (Some(wanted), has) if wanted != has => Err(Failure::Usage(format!(
                "{}: has a grace period of {}, not of the {} that --grace says: that of an existing store cannot be changed; leave \
                 --grace out, or use a new store",
                Name::text(&place.store),
                period(has),
                period(wanted)
            ))),
            _ => Ok(()),
        }
    }
}

/// Selects a snapshot.
#[derive(Args)]
pub(super) struct Which {
    /// The snapshot: a step, an id, a tag, or `latest`.
    #[arg(long, alias = "step", value_name = "WHICH", default_value = "latest")]
    at: At,

    /// Fail if the latest snapshot is damaged, instead of taking the last one that is whole, with a warning.
    #[arg(long)]
    strict: bool,
}

impl Which {
    /// The snapshot. Says which later ones are passed over.
    pub(super) fn find(&self, place: &Place, store: &Store, ui: &Ui) -> Result<Snapshot> {
        let failure = |e| place.failure(&e);
        if self.strict || self.at != At::Latest {
            return store.find(self.at.clone()).map_err(failure);
        }
        let (found, passed) = store.find_whole().map_err(failure)?;
        for (step, why) in passed {
            ui.warn(format_args!(
                "{}: step {step} is damaged, and step {} is taken instead (--strict fails): {}",
                Name::text(&place.store),
                found.step,
                Name::text(&why)
            ));
        }
        Ok(found)
    }
}

impl Place {
    pub(in crate::cmd) fn open(&self) -> Result<Store> {
        self.try_open().map_err(|e| self.failure(&e))
    }

    /// [`Self::open`] with the store's own error, for a place that may be something else.
    pub(in crate::cmd) fn try_open(&self) -> lmc_store::Result<Store> {
        self.location().and_then(|l| Store::open(&l, Default::default()))
    }

    /// The tags of the store. Those that cannot be read are reported, and make the command fail at the end.
    pub(super) fn tags(&self, store: &Store, ui: &Ui) -> Result<Tags> {
        let tags = store.tags().map_err(|e| self.failure(&e))?;
        tags.damaged.iter().for_each(|bad| ui.fail(&self.failure(&bad.error())));
        Ok(tags)
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

    /// Says what is wrong with earlier snapshots.
    pub(super) fn note(&self, notes: &[String], ui: &Ui) {
        for note in notes {
            ui.warn(format_args!("{}: {}", Name::text(&self.store), Name::text(note)));
        }
    }

    /// Opens the store, if there is one.
    pub(in crate::cmd) fn open_if_there(&self, o: StoreOptions) -> Result<Option<Store>> {
        match self.location().and_then(|l| Store::open(&l, o)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|e| self.failure(&e)),
        }
    }

    /// Opens the store, and creates it if it is missing; and whether it is new.
    pub(in crate::cmd) fn open_or_create(&self, o: StoreOptions) -> Result<(Store, bool)> {
        // An archive can be opened, but not be saved into: the store says so.
        let is_file = matches!(self.location(), Ok(Location::Directory(path)) if path.is_file());
        if !is_file && let Some(store) = self.open_if_there(o.clone())? {
            return Ok((store, false));
        }
        self.check_vacant()?;
        let store = self.location().and_then(|l| Store::create(&l, o)).map_err(|e| self.failure(&e))?;
        Ok((store, true))
    }

    /// Fails if there is no store, and none can be created.
    pub(in crate::cmd) fn check_new(&self, o: &StoreOptions) -> Result {
        self.location().and_then(|l| Store::check_new(&l, o)).map_err(|e| self.failure(&e))
    }

    /// Fails if a new store would be among other things: then a path was meant to be another argument, or is misspelt.
    pub(in crate::cmd) fn check_vacant(&self) -> Result {
        let Ok(Location::Directory(path)) = self.location() else { return Ok(()) };
        let Ok(entries) = std::fs::read_dir(&path) else { return Ok(()) };
        // An interrupted creation may have left directories of a store.
        let is_of_others = |name: &str| {
            let is_note = NOTES.iter().any(|note| name.starts_with(note));
            // Another process may be writing the marker, under such a name.
            let is_marker = name.starts_with(STORE_MARKER);
            !name.starts_with('.') && !is_note && !is_marker && !NOT_OF_OTHERS.contains(&name)
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let Some(name) = names.filter(|name| is_of_others(name)).min() else { return Ok(()) };
        // Another process may have created it meanwhile.
        if path.join(STORE_MARKER).exists() {
            return Ok(());
        }
        let what =
            "is no store, and a new one needs a directory of its own: name another; the store comes before other paths";
        Err(Failure::usage(&path, format_args!("has {} in it, {what}", Name::text(&name))))
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
                if !["lmc snapshot", "copy of the store", "an archive of", "not a store"]
                    .iter()
                    .any(|s| text.contains(s)) =>
            {
                Failure::Store(
                    kind,
                    format!("{text}; lmc snapshot verify shows what is lost, and with --deep what was altered"),
                )
            }
            kind => Failure::Store(kind, text),
        }
    }
}
