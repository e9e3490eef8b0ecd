//! `lmc snapshot gc`.

use clap::Args;
use lmc_store::{GcOptions, Orphan};
use serde_json::json;

use super::place::{Place, period};
use crate::ui::failure::Result;
use crate::ui::format::{Name, bytes, count};
use crate::ui::messages::Ui;

/// Delete what no snapshot needs: data of pruned snapshots, and leftovers of unfinished saves.
///
/// What was written or needed within the store's grace period stays, whatever the clock of this machine says. Others may use the store at
/// the same time. Where snapshots before the last 1,024 steps were pruned, their records go, too, and nothing is saved at such early steps
/// any more.
#[derive(Args)]
pub(super) struct GcArgs {
    #[command(flatten)]
    place: Place,

    /// Delete nothing, and list what would be deleted.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Collect in a store that has the documents of snapshots, but not one record of a snapshot. Without this it is refused: the records
    /// may be lost, and then everything would be deleted.
    #[arg(long)]
    without_records: bool,

    /// Print a JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Collects garbage.
pub(super) fn run(args: &GcArgs, ui: &Ui) -> Result {
    let store = args.place.open()?;
    let mut options = GcOptions::default();
    (options.dry_run, options.without_records) = (args.dry_run, args.without_records);
    let found = store.gc(&options).map_err(|e| args.place.failure(&e))?;
    if args.json {
        let list = |of: &[Orphan]| -> Vec<_> {
            of.iter().map(|o| json!({ "key": o.key, "size": o.size, "time": o.time })).collect()
        };
        return ui.json(&json!({
            "store": args.place.store,
            "time": found.time,
            "dry_run": args.dry_run,
            "orphans": list(&found.orphans),
            "young": list(&found.young),
            "grace_seconds": store.grace_seconds(),
            "unseen": found.unseen,
        }));
    }
    if let Some(why) = &found.unseen {
        ui.warn(format!(
            "{}: {why}; incomplete uploads of dead processes may still take space",
            Name::text(&args.place.store)
        ));
    }
    let sum = |of: &[Orphan]| bytes(of.iter().map(|o| o.size).fold(0, u64::saturating_add));
    let grace = period(store.grace_seconds());
    let text = format!(
        "{} : {} {}, {}; {} more, {}, are within the grace period, {grace} since they were written or needed",
        Name::text(&args.place.store),
        if args.dry_run { "would delete" } else { "deleted" },
        count(found.orphans.len(), "object"),
        sum(&found.orphans),
        found.young.len(),
        sum(&found.young)
    );
    if !args.dry_run {
        ui.done(text);
        return Ok(());
    }
    let keys = found.orphans.iter().map(|o| format!("  {}\n", Name::text(&o.key)));
    ui.print(&format!("{text}\n{}", keys.collect::<String>()))
}
