//! `lmc snapshot list`.

use clap::Args;
use lmc_store::Snapshot;
use serde_json::json;

use super::{Place, time};
use crate::failure::Result;
use crate::format::{Name, bytes, count, percent};
use crate::table::Table;
use crate::ui::Ui;

/// List the snapshots of a store.
#[derive(Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    place: Place,

    /// Print one JSON object a snapshot.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Lists snapshots.
pub(super) fn run(args: &ListArgs, ui: &Ui) -> Result {
    let store = args.place.open()?;
    let snapshots = store.snapshots().map_err(|e| args.place.failure(&e))?;
    if args.json {
        return snapshots.iter().try_for_each(|s| ui.json(&to_json(s)));
    }
    let mut text = summary(&args.place, &snapshots);
    let mut rows = Table::new(&["step", "time (UTC)", "raw", "stored", "ratio", "id", "metadata"], &[0, 2, 3, 4]);
    for s in &snapshots {
        let metadata: Vec<String> =
            s.metadata.iter().map(|(k, v)| Name::text(&format!("{k}={v}")).to_string()).collect();
        rows.add_row([
            s.step.to_string(),
            time(s.time),
            bytes(s.raw_size),
            bytes(s.new_size),
            percent(s.new_size, s.raw_size),
            s.id.to_string(),
            metadata.join(" "),
        ]);
    }
    rows.push_to(&mut text);
    ui.print(&text)
}

/// How many snapshots there are, and how large they are together.
pub(super) fn summary(place: &Place, snapshots: &[Snapshot]) -> String {
    let sum = |of: fn(&Snapshot) -> u64| snapshots.iter().map(of).fold(0, u64::saturating_add);
    let (raw, new) = (sum(|s| s.raw_size), sum(|s| s.new_size));
    format!(
        "{} : {}, {} => {} ({})\n",
        Name::text(&place.store),
        count(snapshots.len(), "snapshot"),
        bytes(raw),
        bytes(new),
        percent(new, raw)
    )
}

/// What is known of a snapshot without reading its parts.
pub(super) fn to_json(s: &Snapshot) -> serde_json::Value {
    json!({
        "step": s.step.get(),
        "id": s.id.to_string(),
        "time": s.time,
        "metadata": s.metadata,
        "raw_size": s.raw_size,
        "new_size": s.new_size,
        "parts": s.parts.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
