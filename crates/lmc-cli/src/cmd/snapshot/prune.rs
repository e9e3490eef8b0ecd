//! `lmc snapshot prune`.

use std::collections::BTreeSet;

use clap::Args;
use lmc_store::{Best, DamagedRecord, Keep, PrunePlan, Pruned, RebaseOptions, Snapshot, Step};
use serde_json::json;

use super::place::{Place, parse_seconds};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes};
use crate::ui::messages::Ui;

/// Prune snapshots: all that no --keep option matches, or only those of --drop. Shows the plan; --yes executes it.
///
/// A snapshot with a tag stays (lmc snapshot tag). Remaining snapshots can be restored at every moment. Those that depend mostly on data of
/// pruned ones are re-based: encoded again without it. Nothing is pruned as long as a snapshot that would remain lacks data (lmc snapshot
/// verify). With --drop-state, snapshots are not pruned, but lose the states of their optimizers. Space becomes free when `lmc snapshot gc`
/// runs after the store's grace period.
#[derive(Args)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    place: Place,

    /// Keep the N snapshots of the largest steps.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = "What stays")]
    keep_last: usize,

    /// Keep one snapshot of every K steps: for each multiple of K, that of this step, or else the first one after it, before the next
    /// multiple. They stay the same however often the store is pruned.
    #[arg(long, value_name = "K", help_heading = "What stays")]
    keep_every: Option<u64>,

    /// Keep snapshots that were saved in the last TIME: a number with s, m, h, d or w, as 2d. By the store's clock.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = "What stays")]
    keep_within: Option<u64>,

    /// Keep the snapshots with the N smallest (`min`) or largest (`max`) numbers KEY in their metadata, as loss=min:3; by default one. Of
    /// equal ones, later snapshots are kept. May be given several times.
    #[arg(long, value_name = "KEY=min|max[:N]", help_heading = "What stays")]
    keep_best: Vec<Best>,

    /// Keep the snapshot of this step; may be given several times.
    #[arg(long, value_name = "STEP", help_heading = "What stays")]
    keep_step: Vec<u64>,

    /// Prune the snapshot of this step, whatever else would keep it; may be given several times. Without --keep options, all others stay.
    #[arg(long, value_name = "STEP", help_heading = "What stays")]
    drop: Vec<u64>,

    /// End the snapshot of this step, which cannot be restored: its record or its data are damaged or lost for good, and no copy of the store
    /// has them. The snapshot is given up. May be given several times, with or without --keep options.
    #[arg(long, value_name = "STEP", help_heading = "What stays")]
    damaged: Vec<u64>,

    /// Keep the weights of the snapshots that would be pruned, and drop the states of their optimizers: files and tensors whose names say
    /// optimizer, exp_avg, exp_avg_sq, momentum_buffer and the like, and copies of weights that the snapshot also has otherwise. Files other
    /// than safetensors go whole or stay whole.
    #[arg(long, help_heading = "What stays")]
    drop_state: bool,

    /// Execute the plan instead of only showing it.
    #[arg(long)]
    yes: bool,

    /// Print a JSON object.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Prunes snapshots.
pub(super) fn run(args: &PruneArgs, ui: &Ui) -> Result {
    let failure = |e: lmc_store::Error| args.place.failure(&e);
    let mut keep = Keep::default();
    (keep.last, keep.every, keep.within) = (args.keep_last, args.keep_every, args.keep_within);
    keep.best.clone_from(&args.keep_best);
    let steps = |of: &[u64]| of.iter().map(|&n| Step::new(n)).collect::<Result<_, _>>().map_err(failure);
    (keep.steps, keep.drop, keep.damaged) = (steps(&args.keep_step)?, steps(&args.drop)?, steps(&args.damaged)?);
    if keep == Keep::default() {
        return Err(Failure::Usage(format!(
            "{}: nothing says which snapshots to keep: give --keep-last N, --keep-every K, --keep-within TIME, --keep-best KEY=min or \
             --keep-step STEP, or --drop STEP to prune that one, or --damaged STEP",
            Name::text(&args.place.store)
        )));
    }
    keep.drop_state = args.drop_state;
    let store = args.place.open()?;
    let plan = store.plan_prune(&keep).map_err(failure)?;
    args.place.left_out(&plan.left_out, ui);
    for (s, file) in plan.states.iter().flat_map(|s| s.left_out.iter().map(move |file| (s, file))) {
        ui.warn(format_args!(
            "{}: step {}: {}: has weights and the state of an optimizer, and stays as it is: only safetensors files can lose a part",
            Name::text(&args.place.store),
            s.step,
            Name::text(file)
        ));
    }
    for bad in &plan.damaged {
        ui.warn(format_args!(
            "{}: step {}: {}: its snapshot is given up",
            Name::text(&args.place.store),
            bad.step,
            Name::text(&bad.message)
        ));
    }
    if !args.yes {
        for p in &plan.broken {
            let text = format!(
                "{}: step {}: would stay, but cannot be restored: {}",
                Name::text(&args.place.store),
                p.step,
                Name::text(&p.message)
            );
            // It is an obstacle to pruning others, but not to giving up what is lost.
            match plan.prune.is_empty() && plan.states.is_empty() {
                true => ui.warn(text),
                false => ui.fail(&Failure::Failed(text)),
            }
        }
        return if args.json { ui.json(&to_json(args, &plan, None)) } else { ui.print(&to_text(args, &plan)) };
    }
    let options = RebaseOptions::default();
    let done = store.prune(&plan, &options).map_err(failure)?;
    for step in &done.changed {
        ui.warn(format_args!(
            "{}: step {step} was changed by another process and is left alone",
            Name::text(&args.place.store)
        ));
    }
    if args.json {
        return ui.json(&to_json(args, &plan, Some(&done)));
    }
    let reduced = match done.reduced.len() {
        0 => String::new(),
        n => format!(", {n} reduced to their weights"),
    };
    ui.done(format_args!(
        "{} : {} pruned{reduced}, {} re-based",
        Name::text(&args.place.store),
        done.pruned.len(),
        done.rebased.len()
    ));
    Ok(())
}

fn to_text(args: &PruneArgs, plan: &PrunePlan) -> String {
    let store = Name::text(&args.place.store);
    let mut text = format!("{store} : would keep {} and prune {}\n", plan.keep.len(), plan.prune.len());
    let mut line = |what: &str, steps: &[String]| {
        if !steps.is_empty() {
            text += &format!("  {what:<8}{}\n", steps.join(" "));
        }
    };
    let texts = |steps: &[u64]| steps.iter().map(u64::to_string).collect::<Vec<_>>();
    let kept = plan.keep.iter().zip(&plan.why).map(|(s, why)| match &why[..] {
        [] => s.step.to_string(),
        why => format!("{} ({})", s.step, Name::text(&why.join(", "))),
    });
    line("keep", &kept.collect::<Vec<_>>());
    line("prune", &texts(&steps(&plan.prune)));
    let states = plan.states.iter().map(|s| format!("{} ({} of states)", s.step, bytes(s.raw_size)));
    line("weights", &states.collect::<Vec<_>>());
    line("end", &texts(&damaged(&plan.damaged)));
    line("re-base", &texts(&numbers(&plan.rebase)));
    text += &match &plan.obstacle {
        Some(why) => format!("  {why}\n"),
        None => format!("  data    {} => {} after the grace period\n", bytes(plan.before), bytes(plan.after)),
    };
    if !plan.is_empty() && (plan.broken.is_empty() || plan.prune.is_empty()) {
        text += "with --yes it is done\n";
    }
    text
}

fn to_json(args: &PruneArgs, plan: &PrunePlan, done: Option<&Pruned>) -> serde_json::Value {
    let mut json = json!({
        "store": args.place.store,
        "keep": steps(&plan.keep),
        "why": plan.why,
        "prune": steps(&plan.prune),
        "states": plan.states.iter().map(|s| s.step.get()).collect::<Vec<_>>(),
        "damaged": damaged(&plan.damaged),
        "left_out": damaged(&plan.left_out),
        "rebase": numbers(&plan.rebase),
        "broken": plan.broken.iter().map(|p| p.step.get()).collect::<BTreeSet<_>>(),
        "before": plan.before,
        "after": plan.after,
        "obstacle": plan.obstacle,
        "done": null,
    });
    if let Some(done) = done {
        json["done"] = json!({
            "pruned": numbers(&done.pruned),
            "rebased": steps(&done.rebased),
            "reduced": steps(&done.reduced),
            "changed": numbers(&done.changed),
        });
    }
    json
}

fn steps(snapshots: &[Snapshot]) -> Vec<u64> {
    snapshots.iter().map(|s| s.step.get()).collect()
}

fn damaged(records: &[DamagedRecord]) -> Vec<u64> {
    records.iter().map(|bad| bad.step.get()).collect()
}

fn numbers(steps: &[Step]) -> Vec<u64> {
    steps.iter().map(|s| s.get()).collect()
}
