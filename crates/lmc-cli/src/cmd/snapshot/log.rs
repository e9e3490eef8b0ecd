//! `lmc snapshot log`.

use clap::Args;
use lmc_store::{Cost, Error, ErrorKind, Listing, Snapshot, Tags};

use super::list::{self, WhichArgs};
use super::place::Place;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, percent, ratio};
use crate::ui::messages::Ui;
use crate::ui::plot;
use crate::ui::table::Table;
use crate::ui::time::time;

/// Show the cost of each snapshot: bytes stored for it, and bytes read to restore it.
///
/// The chain is the largest number of block sets that are decoded one after the other for any tensor; the bytes read are those for
/// restoring the whole snapshot. If they are unknown, because something is damaged, the chain says so, and the exit status is 1. On a
/// terminal, the stored bytes are plotted, too.
#[derive(Args)]
pub(super) struct LogArgs {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    which: WhichArgs,

    /// Print one JSON object per snapshot.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Shows the cost of snapshots.
pub(super) fn run(args: &LogArgs, ui: &Ui) -> Result {
    let failure = |e| args.place.failure(&e);
    let store = args.place.open()?;
    let listing = args.which.list(&store).map_err(failure)?;
    let Listing { snapshots, damaged, .. } = &listing;
    let tags = args.place.tags(&store, ui)?;
    let costs = store.costs(snapshots).map_err(failure)?;
    for (s, cost) in snapshots.iter().zip(&costs) {
        let Err(e) = cost else { continue };
        let text = format!(
            "{}: step {}: its cost is unknown: {}",
            Name::text(&args.place.store),
            s.step,
            Name::text(&e.to_string())
        );
        ui.fail(&Failure::Failed(format!("{text}; lmc snapshot verify shows what can be done")));
    }
    if args.json {
        let costs: Vec<_> = snapshots.iter().zip(&costs).collect();
        return list::by_step(&costs, damaged, |(s, c)| to_json(s, &tags, c)).iter().try_for_each(|line| ui.json(line));
    }
    let mut rows = Table::new(
        &["step", "time (UTC)", "raw", "stored", "ratio", "chain", "block sets", "read to restore", "of raw", "tags"],
        &[0, 2, 3, 4, 5, 6, 7, 8],
    );
    let row = |(s, cost): (&Snapshot, &Result<Cost, Error>)| {
        let [chain, block_sets, read, of_raw] = match cost {
            Ok(c) => [
                c.longest_chain.to_string(),
                c.block_sets.to_string(),
                bytes(c.stored_size),
                percent(c.stored_size, s.raw_size),
            ],
            Err(e) if e.kind() == ErrorKind::Damaged => ["damaged", "", "", ""].map(str::to_owned),
            Err(_) => ["unknown", "", "", ""].map(str::to_owned),
        };
        let [raw, new] = [bytes(s.raw_size), bytes(s.new_size)];
        let ratio = percent(s.new_size, s.raw_size);
        let tags = list::names(s, &tags).into_iter().chain(list::weights_only(s)).collect::<Vec<_>>().join(" ");
        (s.step, [s.step.to_string(), time(s.time), raw, new, ratio, chain, block_sets, read, of_raw, tags])
    };
    let of_damaged = damaged.iter().map(|bad| (bad.step, list::damaged_row(bad)));
    let mut all: Vec<_> = snapshots.iter().zip(&costs).map(row).chain(of_damaged).collect();
    all.sort_by_key(|(step, _)| *step);
    all.into_iter().for_each(|(_, row)| rows.add_row(row));
    let mut text = list::summary(&args.place, &listing, Some(store.needed_size(&listing)))?;
    rows.push_to(&mut text);
    if let (true, [first, .., last]) = (ui.stdout_is_terminal(), &snapshots[..]) {
        let stored: Vec<f64> = snapshots.iter().map(|s| 100.0 * ratio(s.new_size, s.raw_size).unwrap_or(0.0)).collect();
        let caption = format!("stored, % of raw: steps {} to {}", first.step, last.step);
        text += &format!("\n{}", plot::line(&stored, caption));
    }
    ui.print(&text)
}

fn to_json(s: &Snapshot, tags: &Tags, cost: &Result<Cost, Error>) -> serde_json::Value {
    let c = cost.as_ref().ok();
    let mut object = list::to_json(s, tags);
    object["ratio"] = ratio(s.new_size, s.raw_size).into();
    object["chain"] = c.map(|c| c.longest_chain).into();
    object["block_sets"] = c.map(|c| c.block_sets).into();
    object["read_size"] = c.map(|c| c.stored_size).into();
    object
}
