//! `lmc snapshot tag`.

use clap::Args;
use lmc_store::{At, TagName};
use serde_json::json;

use super::place::Place;
use crate::ui::failure::Result;
use crate::ui::format::Name;
use crate::ui::messages::Ui;

/// Make a tag name a snapshot, or delete the tag.
///
/// A tag stands for the snapshot wherever one is selected, as in lmc snapshot restore --at best, and keeps it from being pruned. One that
/// there is already is moved: a tag names one snapshot, and a snapshot may have several tags. lmc snapshot list shows them.
#[derive(Args)]
pub(super) struct TagArgs {
    #[command(flatten)]
    place: Place,

    /// The tag: up to 128 letters (A to Z), digits, and `.`, `_` and `-`, which two do not come first. It is no number and not `latest`.
    #[arg(value_name = "NAME")]
    name: TagName,

    /// The snapshot: a step, an id, another tag, or `latest`.
    #[arg(value_name = "WHICH", default_value = "latest")]
    at: At,

    /// Delete the tag. The snapshot stays.
    #[arg(long, conflicts_with = "at")]
    delete: bool,

    /// Print a JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Sets or deletes a tag.
pub(super) fn run(args: &TagArgs, ui: &Ui) -> Result {
    let failure = |e| args.place.failure(&e);
    let (store, name) = (args.place.open()?, &args.name);
    let tag = match args.delete {
        true => store.untag(name).map(|()| None),
        false => store.find(args.at.clone()).and_then(|snapshot| store.tag(name, &snapshot)).map(Some),
    };
    let tag = tag.map_err(failure)?;
    if args.json {
        return ui.json(&json!({
            "store": args.place.store,
            "tag": name.to_string(),
            "step": tag.as_ref().map(|tag| tag.step.get()),
            "id": tag.as_ref().map(|tag| tag.id.to_string()),
        }));
    }
    let what = tag.map_or_else(|| "deleted".to_owned(), |tag| format!("step {}", tag.step));
    ui.done(format_args!("{} : {name}, {what}", Name::text(&args.place.store)));
    Ok(())
}
