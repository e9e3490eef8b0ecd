//! `lmc publish`.

mod versions;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use lmc::Level;
use lmc_store::{BasePolicy, Cache, SaveOptions, Store, StoreOptions};
use serde_json::Value;

use self::versions::{Finished, Version};
use super::looks::Looks;
use super::snapshot::files::named;
use super::snapshot::place::Place;
use super::snapshot::save::save;
use crate::args::{Threads, level};
use crate::failure::{Failure, Result};
use crate::format::{Name, parse_size};
use crate::ui::Ui;

/// Save the versions of a model to a store, as a run finishes them in a directory.
///
/// DIR has a directory or a file for each version, whose name ends with its step: checkpoint-1000, global_step1000, model-1000.safetensors.
/// Those that come after the last step of the store are saved, in order, each as the snapshot of its step, for lmc follow. Other names are
/// ignored, as are those that begin with a dot or "tmp", or end with "tmp".
///
/// A version must be finished when it is saved. Give the run's sign of that with --marker, or let it write elsewhere and rename, with
/// --settle 0. Without a sign, a version counts as finished when nothing in it has changed for a while; and never as long as files are
/// missing that an index in it (*.index.json) names. A version that changes while it is read is not saved.
#[derive(Args)]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    place: Place,

    /// The directory of versions.
    dir: PathBuf,

    #[command(flatten)]
    looks: Looks,

    /// A version is a directory that is finished when it has a file NAME, as STABLE.
    #[arg(long, value_name = "NAME", conflicts_with = "settle")]
    marker: Option<String>,

    /// A version is finished when nothing in it has changed for S seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = parse_seconds)]
    settle: f64,

    /// Of several new versions, save only the last.
    #[arg(long)]
    newest: bool,

    /// Store tensors without a base every N versions: a follower that begins reads at most N of each.
    #[arg(long, value_name = "N", default_value_t = SaveOptions::default().anchor_every, value_parser = clap::value_parser!(u32).range(1..=64))]
    anchor_every: u32,

    /// Keep up to SIZE of the last version in memory, so that the next one need not read it from the store.
    #[arg(long, value_name = "SIZE", default_value = "16Gi", value_parser = parse_size)]
    cache_size: usize,

    /// Compression level: `fast`, `default` or `max`.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::Fast.name())]
    level: Level,

    /// Print a JSON object for every version.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("a time is 0 to 86400 seconds".to_owned());
    }
    Ok(seconds)
}

/// Publishes a directory.
pub(crate) fn run(args: &PublishArgs, ui: &Ui) -> Result {
    let finished = match &args.marker {
        Some(name) => Finished::Marker(name.clone()),
        None => Finished::Settled(Duration::from_secs_f64(args.settle)),
    };
    let mut store = None;
    args.looks.run(ui, || {
        let versions = versions::found(&args.dir)?;
        if store.is_none() {
            let mut o = StoreOptions::default();
            o.cache = Cache::Memory { budget: args.cache_size as u64 };
            store = Some(args.place.create_with(o)?);
        }
        let store = store.as_ref().expect("it was opened");
        let next = store.step(None).map_err(|e| args.place.failure(&e))?;
        let mut new: Vec<Version> = versions.into_iter().filter(|v| v.step >= next).collect();
        if args.newest {
            // An unfinished one must not hide the last that is finished.
            let last = new.iter().rposition(|v| finished.why_not(v).is_ok_and(|why| why.is_none()));
            new.drain(..last.unwrap_or(0));
        }
        for version in &new {
            if let Some(why) = finished.why_not(version)? {
                // Later ones wait: steps of a store are saved in order.
                let text = format!("{}: is not finished: {why}", Name::path(&version.path));
                if args.looks.once {
                    ui.warn(text)
                } else {
                    ui.detail(text)
                }
                break;
            }
            publish(args, store, version, ui)?;
        }
        Ok(())
    })
}

/// Saves a version as a snapshot.
fn publish(args: &PublishArgs, store: &Store, version: &Version, ui: &Ui) -> Result {
    let start = Instant::now();
    let mut options = SaveOptions::default();
    options.level = args.level;
    options.threads = args.threads.count();
    options.anchor_every = args.anchor_every;
    options.base = BasePolicy::Previous;
    let paths = [version.path.clone()];
    let files = named(&paths, &args.place.store)?;
    let still = || {
        let now = named(&paths, &args.place.store)?;
        let same = now.iter().map(|f| &f.name).eq(files.iter().map(|f| &f.name));
        let changed = || Failure::at(&version.path, "got or lost files while it was read: it is not finished");
        if same { Ok(()) } else { Err(changed()) }
    };
    let saved = save(&args.place, store, &files, Some(version.step), BTreeMap::new(), &options, still)?;
    if args.json {
        let mut json = saved.json(&args.place, start);
        json["path"] = Value::from(version.path.to_string_lossy());
        return ui.json(&json);
    }
    ui.done(saved.text(&args.place, start));
    Ok(())
}
