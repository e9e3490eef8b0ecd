//! `lmc hub list`, and what would be saved.

use std::collections::{HashMap, HashSet};

use clap::Args;
use lmc::CompressOptions;
use serde_json::json;

use super::args::HubArgs;
use super::cache::Cache;
use super::choice::{Choice, choose};
use crate::ui::failure::Result;
use crate::ui::format::{Name, bytes, count, percent};
use crate::ui::messages::Ui;
use crate::ui::table::Table;

/// List the models of the cache: the size of their files with weights, what they take on disk, and what they would take
/// compressed.
///
/// The last is estimated from samples of what is not compressed yet. A file that several models have counts in each,
/// and once in the sum.
#[derive(Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    hub: HubArgs,

    /// Print one JSON object per model.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Lists models.
pub(super) fn run(args: &ListArgs, ui: &Ui) -> Result {
    let cache = args.hub.open(ui)?;
    let models = cache.select(&args.hub.models)?;
    let choices = choose(&cache, &cache.files_of(&models), &CompressOptions::default(), ui);
    show(&Listing::new(&cache, &models, &choices), args.json, ui)
}

/// Models, and what was chosen for their files.
pub(super) struct Listing<'a> {
    cache: &'a Cache,
    models: &'a [usize],
    /// What files would take that would be compressed.
    estimates: HashMap<usize, u64>,
}

#[derive(Default)]
struct Totals {
    raw: u64,
    now: u64,
    then: u64,
}

impl<'a> Listing<'a> {
    pub(super) fn new(cache: &'a Cache, models: &'a [usize], choices: &[Choice]) -> Self {
        let kept = choices.iter().filter(|c| c.is_base || c.is_worth_it(cache.files[c.file].raw_size));
        Self { cache, models, estimates: kept.map(|c| (c.file, c.estimate)).collect() }
    }

    fn sizes(&self, files: &[usize]) -> Totals {
        let (mut sizes, mut seen) = (Totals::default(), HashSet::new());
        for &number in files {
            let file = &self.cache.files[number];
            sizes.raw = sizes.raw.saturating_add(file.raw_size);
            // Of one file, all names but the first take nothing.
            if file.compressed.as_ref().is_none_or(|c| seen.insert(c.identity)) {
                sizes.now += file.size();
                sizes.then += self.estimates.get(&number).copied().unwrap_or(file.size());
            }
        }
        sizes
    }
}

/// Shows a listing.
pub(super) fn show(of: &Listing<'_>, as_json: bool, ui: &Ui) -> Result {
    let cache = of.cache;
    let mut table = Table::new(
        &["model", "revisions", "files", "compressed", "deltas", "size", "on disk", "would take", ""],
        &[1, 2, 3, 4, 5, 6, 7, 8],
    );
    for model in of.models.iter().map(|&model| &cache.models[model]) {
        let sizes = of.sizes(&model.files);
        let compressed = model.files.iter().filter(|&&f| cache.files[f].compressed.is_some()).count();
        let deltas = model.files.iter().filter(|&&f| cache.files[f].is_delta()).count();
        if as_json {
            ui.json(&json!({
                "model": model.name,
                "revisions": model.revisions,
                "files": model.files.len(),
                "compressed_files": compressed,
                "deltas": deltas,
                "raw_size": sizes.raw,
                "size": sizes.now,
                "estimated_size": sizes.then,
            }))?;
        } else {
            let numbers = [model.revisions, model.files.len(), compressed, deltas].map(|n| n.to_string());
            let texts = [bytes(sizes.raw), bytes(sizes.now), bytes(sizes.then), percent(sizes.then, sizes.raw)];
            table.add_row([Name::text(&model.name).to_string()].into_iter().chain(numbers).chain(texts));
        }
    }
    if as_json {
        return Ok(());
    }
    let Totals { raw, now, then } = of.sizes(&cache.files_of(of.models));
    let mut text = format!(
        "{} : {}, {} of weights, {} on disk; compressed they would take {} ({})\n",
        Name::path(&cache.dir),
        count(of.models.len(), "model"),
        bytes(raw),
        bytes(now),
        bytes(then),
        percent(then, raw)
    );
    table.push_to(&mut text);
    if !cache.others.is_empty() {
        let others: Vec<_> = cache.others.iter().map(|name| Name::text(name).to_string()).collect();
        text += &format!("\nleft alone, no models: {}\n", others.join(", "));
    }
    ui.print(&text)
}
