//! `lmc snapshot copy` and `export`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use lmc_store::{At, Cancel, CopyOptions, Error, ErrorKind, Location, Snapshot, Step, Store, StoreOptions};
use serde_json::json;

use super::place::{Grace, Place};
use crate::fs::names::is_dash;
use crate::fs::output::{Origin, Output, Target};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count};
use crate::ui::interrupt::Stoppable;
use crate::ui::messages::Ui;

/// Copy snapshots into another store.
///
/// They keep their ids, times, metadata and tags; a tag that was set later in the other store stays there as it is. Stored data is copied verbatim after its hashes were verified. Data that the other store
/// already has is skipped, so that an interrupted copy resumes when it is started again. A snapshot that is damaged is skipped, as is one
/// whose record in the other store is damaged; the exit status is then 1. The other store is created if missing, with the run and, unless
/// --grace says another, the grace period of the first one: what follows that can follow it. One that exists must be of the same run.
#[derive(Args)]
pub(super) struct CopyArgs {
    #[command(flatten)]
    from: Place,

    /// The store to copy into: a directory or a bucket.
    #[arg(value_name = "TO")]
    to: String,

    #[command(flatten)]
    some: Chosen,

    #[command(flatten)]
    grace: Grace,

    /// Print a JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Write snapshots, and everything that they need, into one file: a tar archive.
///
/// Snapshots that lack data are left out; the exit status is then 1. The archive can be used like a read-only store (list, show, log, restore, verify), and `lmc snapshot copy` copies its
/// snapshots into a store.
#[derive(Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    place: Place,

    /// The archive to write; `-` is standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    some: Chosen,

    /// Overwrite an existing file, write binary data to a terminal.
    #[arg(short, long)]
    force: bool,
}

/// Selects snapshots.
#[derive(Args)]
struct Chosen {
    /// Only this snapshot, or several: a step, an id, a tag, or `latest`. One that is named twice counts once.
    #[arg(long, alias = "step", value_name = "WHICH")]
    at: Vec<At>,
}

impl Chosen {
    /// The selected snapshots of a store, each once. Missing ones are reported, and make the command fail at the end.
    fn of(&self, place: &Place, store: &Store, ui: &Ui) -> Result<Vec<Snapshot>> {
        let failure = |e| place.failure(&e);
        match &self.at[..] {
            [] => {
                let listing = store.list().map_err(failure)?;
                place.left_out(&listing.damaged, ui);
                Ok(listing.snapshots)
            }
            some => {
                let found = some.iter().map(|at| store.find(at.clone())).collect::<Result<Vec<_>, _>>();
                let mut found = found.map_err(failure)?;
                found.sort_by_key(|s| s.step);
                found.dedup();
                Ok(found)
            }
        }
    }
}

/// Copies snapshots from one store to another.
pub(super) fn copy(args: &CopyArgs, ui: &Ui) -> Result {
    let CopyArgs { from, some, grace, json, .. } = args;
    let to = &Place { store: args.to.clone() };
    let source = from.open()?;
    if let Ok(Location::Directory(path)) = to.location() {
        from.guard().check_replace(&path)?;
    }
    let snapshots = some.of(from, &source, ui)?;
    // A new store is like this one; an existing one may differ.
    let mut options = StoreOptions::default();
    (options.run, options.grace_seconds) = (Some(source.run()), source.grace_seconds());
    grace.set(&mut options);
    if let Ok(None) = to.open_if_there(options.clone()) {
        let bad = broken(&snapshots, from, &source)?;
        if bad.len() == snapshots.len() {
            bad.iter().for_each(|(step, why)| from.skipped(*step, why, ui));
            return Err(Failure::Failed(format!("{}: no snapshot is left to copy", Name::text(&from.store))));
        }
    }
    let (store, is_new) = to.open_or_create(options)?;
    grace.check(to, &store)?;
    let mut options = CopyOptions::default();
    options.skip_damaged = true;
    // The store says which of the two stores an error belongs to.
    let of_source = |e: &Error| from.location().is_ok_and(|l| e.to_string().starts_with(&format!("{l}: ")));
    let stoppable = Stoppable::begin();
    let may_go_on = || stoppable.check().map_err(|e| Error::new(ErrorKind::Io, e.to_string()));
    options.cancel = Cancel::new(&may_go_on);
    let copied = store.copy_from(&source, &snapshots, options);
    let copied = copied.map_err(|e| if of_source(&e) { from.failure(&e) } else { to.failure(&e) })?;
    copied.damaged.iter().for_each(|(step, why)| from.skipped(*step, why, ui));
    to.left_out(&copied.left_out, ui);
    to.note(&copied.notes, ui);
    let size = copied.snapshots.iter().map(|s| s.new_size).fold(0, u64::saturating_add);
    if *json {
        let steps: Vec<_> = copied.snapshots.iter().map(|s| s.step.get()).collect();
        let damaged: Vec<_> = copied.damaged.iter().map(|(step, _)| step.get()).collect();
        return ui.json(&json!({
            "store": to.store,
            "new_store": is_new,
            "copied": steps,
            "skipped": copied.skipped,
            "damaged": damaged,
            "left_out": copied.left_out.iter().map(|bad| bad.step.get()).collect::<Vec<_>>(),
            "notes": copied.notes,
            "new_size": size,
        }));
    }
    ui.done(format_args!(
        "{} : {} copied, {}; {} already there{}",
        Name::text(&to.store),
        count(copied.snapshots.len(), "snapshot"),
        bytes(size),
        copied.skipped,
        if is_new { "; new store" } else { "" }
    ));
    Ok(())
}

/// The snapshots that lack data, each with the reason.
fn broken(snapshots: &[Snapshot], place: &Place, store: &Store) -> Result<BTreeMap<Step, String>> {
    let found = store.verify(snapshots, false, 0).map_err(|e| place.failure(&e))?;
    let mut bad = BTreeMap::new();
    for p in found.problems.into_iter().filter(|p| !p.intact) {
        bad.entry(p.step).or_insert(p.message);
    }
    Ok(bad)
}

/// The snapshots whose data are all there. The others are reported, and make the command fail at the end.
fn intact(snapshots: Vec<Snapshot>, place: &Place, store: &Store, ui: &Ui) -> Result<Vec<Snapshot>> {
    let bad = broken(&snapshots, place, store)?;
    bad.iter().for_each(|(step, why)| place.skipped(*step, why, ui));
    let rest: Vec<Snapshot> = snapshots.into_iter().filter(|s| !bad.contains_key(&s.step)).collect();
    match rest.is_empty() && !bad.is_empty() {
        true => Err(Failure::Failed(format!("{}: no snapshot is left to export", Name::text(&place.store)))),
        false => Ok(rest),
    }
}

/// Writes an archive.
pub(super) fn export(args: &ExportArgs, ui: &Ui) -> Result {
    let failure = |e| args.place.failure(&e);
    let store = args.place.open()?;
    let snapshots = intact(args.some.of(&args.place, &store, ui)?, &args.place, &store, ui)?;
    let target = if is_dash(&args.file) { Target::Stdout } else { Target::File(args.file.clone()) };
    let guard = args.place.guard();
    let mut output = Output::create(&target, args.force, Origin::Stdin(None), &guard)?;
    store.export(&snapshots, &mut output).map_err(|e| output.take_failure().unwrap_or_else(|| failure(e)))?;
    output.finish(&guard)?;
    ui.done(format_args!("{} : {}", Name::path(&args.file), count(snapshots.len(), "snapshot")));
    Ok(())
}
