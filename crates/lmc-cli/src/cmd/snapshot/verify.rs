//! `lmc snapshot verify`.

use clap::Args;
use lmc_store::{At, Problem, Step, VerifyOptions};
use serde_json::json;

use super::place::Place;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, count};
use crate::ui::messages::Ui;
use crate::work::args::Threads;

/// Verify that snapshots can be restored.
///
/// Checks that everything they need exists with its original length; with --deep, that all of it has its original hash and decodes to the
/// saved bytes. Continues after a problem; the exit status is 1 if there was one.
///
/// Without --at the records of the store are verified, too: each has a checksum, and names earlier ones, so that altered and lost records
/// are found. No record names the last one: --expect checks for it. And every tag has to name a snapshot that is there.
#[derive(Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    place: Place,

    /// Only this snapshot: a step, an id, a tag, or `latest`.
    #[arg(long, alias = "step", value_name = "WHICH")]
    at: Option<At>,

    /// Fail unless there is a snapshot of this step; may be given several times.
    #[arg(long, value_name = "STEP", conflicts_with = "at")]
    expect: Vec<u64>,

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
    let failure = |e: lmc_store::Error| args.place.failure(&e);
    let store = args.place.open()?;
    let found = match args.at.clone() {
        Some(at) => {
            store.find(at).and_then(|s| store.verify(std::slice::from_ref(&s), args.deep, args.threads.count()))
        }
        None => {
            let mut options = VerifyOptions::default();
            (options.deep, options.threads) = (args.deep, args.threads.count());
            options.expect = args.expect.iter().map(|&n| Step::new(n)).collect::<Result<_, _>>().map_err(failure)?;
            store.verify_all(&options)
        }
    };
    let found = found.map_err(failure)?;
    if args.json {
        let problem = |p: &Problem| {
            let lost: Vec<_> = p.lost.iter().map(|(file, tensor)| json!({ "file": file, "tensor": tensor })).collect();
            json!({ "step": p.step.get(), "message": p.message, "lost": lost, "intact": p.intact, "remedy": p.remedy })
        };
        ui.json(&json!({
            "snapshots": found.snapshots,
            "objects": found.objects,
            "block_sets": found.block_sets,
            "problems": found.problems.iter().map(problem).collect::<Vec<_>>(),
            "tags": found.tags,
            "notes": found.notes,
        }))?;
    } else if found.problems.is_empty() && found.tags.is_empty() {
        let store = Name::text(&args.place.store);
        let how = if args.deep { "decode to what was saved" } else { "are there" };
        ui.verdict(&format!(
            "{store} : {}, {}, {} {how}",
            count(found.snapshots, "snapshot"),
            count(found.objects, "object"),
            count(found.block_sets, "block set")
        ))?;
    }
    if !args.json {
        for note in &found.notes {
            ui.warn(format_args!("{}: {}", Name::text(&args.place.store), Name::text(note)));
        }
    }
    for bad in &found.tags {
        ui.fail(&Failure::Failed(format!("{}: {}", Name::text(&args.place.store), Name::text(bad))));
    }
    for p in &found.problems {
        let remedy = p.remedy.as_ref().map_or_else(String::new, |remedy| format!("; {remedy}"));
        ui.fail(&Failure::Failed(format!(
            "{}: step {}: {}: {}{remedy}",
            Name::text(&args.place.store),
            p.step,
            Name::text(&p.message),
            lost(p)
        )));
    }
    Ok(())
}

/// The loss that a problem causes: a few names, and how many more.
fn lost(p: &Problem) -> String {
    const NAMED: usize = 3;
    let name = |(file, tensor): &(String, Option<String>)| match tensor {
        Some(tensor) => format!("{} of {}", Name::text(tensor), Name::text(file)),
        None => format!("bytes between the tensors of {}", Name::text(file)),
    };
    let mut names: Vec<String> = p.lost.iter().take(NAMED).map(name).collect();
    if p.intact {
        return "all of the snapshot can be restored".to_owned();
    }
    if p.lost.is_empty() {
        return "nothing of the snapshot can be restored".to_owned();
    }
    if p.lost.len() > NAMED {
        names.push(format!("{} more", p.lost.len() - NAMED));
    }
    format!("cannot be restored: {}", names.join(", "))
}
