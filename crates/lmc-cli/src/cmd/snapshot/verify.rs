//! `lmc snapshot verify`.

use clap::Args;
use lmc_store::{At, Problem};
use serde_json::json;

use super::Place;
use crate::args::Threads;
use crate::failure::{Failure, Result};
use crate::format::{Name, count};
use crate::ui::Ui;

/// Verify that snapshots can be restored.
///
/// That everything that they take is there, with the length that it had; with --deep, that all of it has the hash that it had and decodes to what was saved. Goes on after a
/// problem; the exit status is 1 if there was one.
#[derive(Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    place: Place,

    /// Only this snapshot: a step, an id, or `latest`.
    #[arg(long, value_name = "WHICH")]
    at: Option<At>,

    /// Read and decode everything.
    #[arg(long)]
    deep: bool,

    /// Print a JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,
}

/// Verifies snapshots.
pub(super) fn run(args: &VerifyArgs, ui: &Ui) -> Result {
    let failure = |e| args.place.failure(&e);
    let store = args.place.open()?;
    let snapshots = match args.at {
        Some(at) => store.find(at).map(|s| vec![s]),
        None => store.snapshots(),
    };
    let snapshots = snapshots.map_err(failure)?;
    let found = store.verify(&snapshots, args.deep, args.threads.count()).map_err(failure)?;
    if args.json {
        let problem = |p: &Problem| {
            let lost: Vec<_> = p.lost.iter().map(|(file, tensor)| json!({ "file": file, "tensor": tensor })).collect();
            json!({ "step": p.step.get(), "message": p.message, "lost": lost })
        };
        ui.json(&json!({
            "snapshots": snapshots.len(),
            "objects": found.objects,
            "block_sets": found.block_sets,
            "problems": found.problems.iter().map(problem).collect::<Vec<_>>(),
        }))?;
    } else if found.problems.is_empty() {
        let store = Name::text(&args.place.store);
        let how = if args.deep { "decode to what was saved" } else { "are there" };
        ui.verdict(&format!(
            "{store} : {}, {}, {} {how}",
            count(snapshots.len(), "snapshot"),
            count(found.objects, "object"),
            count(found.block_sets, "block set")
        ))?;
    }
    for p in &found.problems {
        ui.fail(&Failure::Failed(format!(
            "{}: step {}: {}: {}",
            Name::text(&args.place.store),
            p.step,
            Name::text(&p.message),
            lost(p)
        )));
    }
    Ok(())
}

/// What a problem costs, in words: a few names, and how many more.
fn lost(p: &Problem) -> String {
    const NAMED: usize = 3;
    let name = |(file, tensor): &(String, Option<String>)| match tensor {
        Some(tensor) => format!("{} of {}", Name::text(tensor), Name::text(file)),
        None => format!("what is between the tensors of {}", Name::text(file)),
    };
    let mut names: Vec<String> = p.lost.iter().take(NAMED).map(name).collect();
    if p.lost.is_empty() {
        return "nothing of the snapshot can be restored".to_owned();
    }
    if p.lost.len() > NAMED {
        names.push(format!("{} more", p.lost.len() - NAMED));
    }
    format!("cannot be restored: {}", names.join(", "))
}
