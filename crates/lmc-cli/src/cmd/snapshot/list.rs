//! `lmc snapshot list`.

use std::num::NonZeroUsize;

use clap::Args;
use lmc_store::{DamagedRecord, ErrorKind, Listing, Snapshot, Store, Tags};
use serde_json::json;

use super::place::Place;
use crate::ui::failure::Result;
use crate::ui::format::{Name, bytes, count, percent};
use crate::ui::messages::Ui;
use crate::ui::table::Table;
use crate::ui::time::time;

/// List the snapshots of a store. Steps whose records cannot be read are shown as damaged.
///
/// The first line has the size of all their files, and the size of the data that they need, each object counted once. Once snapshots were
/// pruned, if a record is damaged, for an archive, and with --last, only lmc snapshot log has the latter, as it reads more. The column "stored" has what each save added.
#[derive(Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    which: WhichArgs,

    /// Print one JSON object per snapshot.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Which snapshots are listed.
#[derive(Args)]
pub(super) struct WhichArgs {
    /// Only the last N snapshots. No more of the store is read than it takes to find them.
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<NonZeroUsize>,
}

impl WhichArgs {
    pub(super) fn list(&self, store: &Store) -> lmc_store::Result<Listing> {
        self.last.map_or_else(|| store.list(), |n| store.list_last(n.get()))
    }
}

/// Lists snapshots.
pub(super) fn run(args: &ListArgs, ui: &Ui) -> Result {
    let store = args.place.open()?;
    let listing = args.which.list(&store).map_err(|e| args.place.failure(&e))?;
    let tags = args.place.tags(&store, ui)?;
    let Listing { snapshots, damaged, .. } = &listing;
    if args.json {
        return by_step(snapshots, damaged, |s| to_json(s, &tags)).iter().try_for_each(|line| ui.json(line));
    }
    let mut text = summary(&args.place, &listing, listing.needed_size().map(Ok))?;
    let mut rows =
        Table::new(&["step", "time (UTC)", "raw", "stored", "ratio", "id", "tags", "metadata"], &[0, 2, 3, 4]);
    let row = |s: &Snapshot| {
        let metadata = s.metadata.iter().map(|(k, v)| Name::text(&format!("{k}={v}")).to_string());
        let metadata: Vec<String> = weights_only(s).into_iter().chain(metadata).collect();
        [
            s.step.to_string(),
            time(s.time),
            bytes(s.raw_size),
            bytes(s.new_size),
            percent(s.new_size, s.raw_size),
            s.id.to_string(),
            names(s, &tags).join(" "),
            metadata.join(" "),
        ]
    };
    let rows_of_damaged = damaged.iter().map(|bad| (bad.step, damaged_row(bad)));
    let mut all: Vec<_> = snapshots.iter().map(|s| (s.step, row(s))).chain(rows_of_damaged).collect();
    all.sort_by_key(|(step, _)| *step);
    all.into_iter().for_each(|(_, row)| rows.add_row(row));
    rows.push_to(&mut text);
    ui.print(&text)
}

/// The entry of a step whose record cannot be read.
pub(super) fn damaged_row<const N: usize>(bad: &DamagedRecord) -> [String; N] {
    let mut row = [const { String::new() }; N];
    (row[0], row[1]) = (bad.step.to_string(), "damaged".to_owned());
    row
}

/// JSON objects of snapshots and of unreadable records, by step.
pub(super) fn by_step<'s, S>(
    snapshots: impl IntoIterator<Item = &'s S>,
    damaged: &[DamagedRecord],
    to_json: impl Fn(&S) -> serde_json::Value,
) -> Vec<serde_json::Value>
where
    S: 's,
{
    let of_damaged =
        damaged.iter().map(|bad| json!({ "step": bad.step.get(), "key": bad.key, "damaged": bad.message }));
    let mut all: Vec<_> = snapshots.into_iter().map(to_json).chain(of_damaged).collect();
    all.sort_by_key(|object| object["step"].as_u64());
    all
}

/// The number of snapshots, their total size, and what is stored for them.
pub(super) fn summary(place: &Place, listing: &Listing, stored: Option<lmc_store::Result<u64>>) -> Result<String> {
    let raw = listing.snapshots.iter().map(|s| s.raw_size).fold(0, u64::saturating_add);
    let stored = match stored {
        Some(Ok(stored)) => format!(" => {} ({})", bytes(stored), percent(stored, raw)),
        Some(Err(e)) if matches!(e.kind(), ErrorKind::Store | ErrorKind::Io) => return Err(place.failure(&e)),
        Some(Err(e)) => format!(" => unknown: {}", Name::text(&e.to_string())),
        None => "; lmc snapshot log says what is stored for them".to_owned(),
    };
    let mut text = format!(
        "{} : {}, {}{stored}\n",
        Name::text(&place.store),
        count(listing.snapshots.len(), "snapshot"),
        bytes(raw),
    );
    for bad in &listing.damaged {
        text += &format!("step {} is damaged: {}\n", bad.step, Name::text(&bad.message));
    }
    Ok(text)
}

/// What to say of a snapshot that lost the states of its optimizer.
pub(super) fn weights_only(s: &Snapshot) -> Option<String> {
    (s.dropped > 0).then(|| format!("weights only ({} of states dropped)", bytes(s.dropped)))
}

/// The tags of a snapshot.
pub(super) fn names(s: &Snapshot, tags: &Tags) -> Vec<String> {
    tags.of(s.step, s.id).into_iter().map(ToString::to_string).collect()
}

/// JSON of a snapshot, without reading its shards.
pub(super) fn to_json(s: &Snapshot, tags: &Tags) -> serde_json::Value {
    json!({
        "step": s.step.get(),
        "id": s.id.to_string(),
        "time": s.time,
        "tags": names(s, tags),
        "metadata": s.metadata,
        "raw_size": s.raw_size,
        "new_size": s.new_size,
        "dropped": s.dropped,
        "shards": s.shards.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
