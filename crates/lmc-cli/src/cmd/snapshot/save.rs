//! `lmc snapshot save`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use lmc::{Level, ReadAt};
use lmc_store::{
    At, BasePolicy, Cache, Cancel, ErrorKind, Input, Location, MetaValue, Metadata, SaveOptions, Saved, Snapshot,
};
use lmc_store::{Step, Store, StoreOptions, TagName};
use serde_json::{Value, json};

use super::place::{Grace, Place};
use crate::cmd::poll::check_no_file;
use crate::fs::handles::Handles;
use crate::fs::input::Source;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, percent, ratio};
use crate::ui::interrupt::Stoppable;
use crate::ui::messages::Ui;
use crate::work::args::{Threads, level};
use crate::work::files::NamedFiles;

/// Save files as the snapshot of a step. The store is created if missing.
///
/// Files are identified by their names, those of a directory by their paths in it: it is saved with everything in it, except empty
/// directories. A file that lmc compressed is stored as it is, and a message says so: its tensors cost what they cost there, in each
/// snapshot. So is a file that ends before its tensors do. Tensors that did not change since the previous snapshot cost next to nothing,
/// others only their changes. The snapshot appears only when it is complete. A line on standard error says what was saved: its size, the
/// bytes stored for it, which snapshot it builds on or shares data with, and whether the store is new.
///
/// A directory with an index, *.index.json or *.index.fp16.json with a weight_map, is saved only with all the files that this names, each
/// whole. A file without weights whose name a store cannot hold, as one with a colon, is left out, and a message says so. A new store has a
/// directory of its own. Modes of files are not kept: the umask decides who may read the store, and restored files. An interrupt deletes
/// what was stored of an unfinished save.
#[derive(Args)]
pub(super) struct SaveArgs {
    #[command(flatten)]
    place: Place,

    /// Files to save, or directories of them. The index of a checkpoint (model.safetensors.index.json) stands for itself and its files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The step; by default the one after the last that has a snapshot.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    step: Option<u64>,

    /// Metadata of the snapshot. A value that is a number, as JSON writes them, is stored as one, so that prune --keep-best can compare it;
    /// others are text.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_meta)]
    meta: Vec<(String, MetaValue)>,

    /// Make this tag name the snapshot, whatever it named before: see lmc snapshot tag.
    #[arg(long, value_name = "NAME")]
    tag: Option<TagName>,

    /// What tensors are predicted from. `auto`: the previous snapshot, or the one with a tag that they are more like, where that pays;
    /// `previous`: the previous one, always; a step, an id or a tag: that one, where it pays.
    #[arg(long, value_name = "BASE", value_parser = parse_base, default_value = "auto")]
    base: Policy,

    /// Store tensors without a base every N saves, so that restoring one takes at most N. With 1, no differences are stored.
    #[arg(long, value_name = "N", default_value_t = SaveOptions::default().anchor_every, value_parser = clap::value_parser!(u32).range(1..=64))]
    anchor_every: u32,

    /// Cache the contents of the saved files, up to 16 GiB, in a directory `lmc-cache` in DIR, so that the next save need not decode them. It
    /// serves this store only, and may be deleted at any time. Nothing else in DIR is touched.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,

    #[command(flatten)]
    grace: Grace,

    /// Compression level: `fast`, `default` or `max`.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    /// Print a JSON object on standard output.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,
}

/// The most bytes in the cache.
const CACHE_SIZE: u64 = 16 << 30;

#[derive(Clone)]
enum Policy {
    Auto,
    Previous,
    At(At),
}

fn parse_base(text: &str) -> Result<Policy, String> {
    match text {
        "auto" => Ok(Policy::Auto),
        "previous" => Ok(Policy::Previous),
        at => at.parse().map(Policy::At).map_err(|_| "it is neither auto, nor previous, a step, an id or a tag".into()),
    }
}

fn parse_meta(text: &str) -> Result<(String, MetaValue), String> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("give it as KEY=VALUE")?;
    Ok((key.to_owned(), MetaValue::parse(value)))
}

/// Saves a snapshot.
pub(super) fn run(args: &SaveArgs, ui: &Ui) -> Result {
    let start = Instant::now();
    let place = &args.place;
    let failure = |e: lmc_store::Error| place.failure(&e);
    let mut options = SaveOptions::default();
    options.level = args.level;
    options.threads = args.threads.count();
    options.anchor_every = args.anchor_every;
    if let Policy::Previous = args.base {
        options.base = BasePolicy::Previous;
    }
    let mut metadata = Metadata::new();
    for (key, value) in &args.meta {
        if metadata.insert(key.clone(), value.clone()).is_some() {
            return Err(Failure::Usage(format!("--meta {}: is given twice", Name::text(key))));
        }
    }
    let asked = args.step.map(Step::new).transpose().map_err(failure)?;
    if let Ok(Location::Directory(dir)) = place.location() {
        check_no_file(&dir)?;
    }
    let files = Opened::new(NamedFiles::find(&args.files, &place.store)?)?;
    files.note_compressed(ui)?;
    files.notes()?.iter().for_each(|note| ui.warn(note));
    let mut store = StoreOptions::default();
    if let Some(path) = &args.cache {
        store.cache = Cache::Directory { path: path.clone(), budget: CACHE_SIZE };
    }
    args.grace.set(&mut store);
    if let Policy::At(at) = &args.base {
        // No store is created where there is no such snapshot.
        options.from = Some(place.open()?.find(at.clone()).map_err(failure)?.step);
    }
    let (store, is_new) = place.open_or_create(store)?;
    args.grace.check(place, &store)?;
    let mut saved = files.save(place, (&store, is_new), asked, metadata, &options)?;
    saved.note_damage(place, ui);
    if let Some(tag) = &args.tag {
        saved.set_tag(place, &store, tag, ui);
    }
    if args.json {
        return ui.json(&saved.json(place, start));
    }
    ui.done(saved.text(place, start));
    Ok(())
}

/// The result of a save, and its sources.
pub(in crate::cmd) struct Done {
    snapshot: Snapshot,
    saved: Saved,
    /// Whether the store is.
    is_new: bool,
    /// The tag that was set.
    tag: Option<TagName>,
    commit: Duration,
    /// A signal that came too late ends the process when the result was shown.
    _stoppable: Stoppable,
}

/// Files to be saved, which can be read.
pub(in crate::cmd) struct Opened {
    named: NamedFiles,
    sources: Vec<Source>,
}

impl Opened {
    pub(in crate::cmd) fn new(named: NamedFiles) -> Result<Self> {
        let handles = Arc::new(Handles::default());
        let sources = named.files().iter().map(|f| Source::open_one_of(&f.path, &handles));
        let sources = sources.collect::<Result<_>>()?;
        Ok(Self { named, sources })
    }

    /// Says which of them are compressed: they are saved, but nothing in them is found again in other snapshots.
    pub(in crate::cmd) fn note_compressed(&self, ui: &Ui) -> Result {
        let mut compressed = Vec::new();
        for source in &self.sources {
            let mut start = [0; lmc::MAGIC.len()];
            if source.start(&mut start)? == lmc::MAGIC {
                compressed.push(source.path());
            }
        }
        let Some(first) = compressed.first() else { return Ok(()) };
        let what = match compressed.len() - 1 {
            0 => "is compressed, and stored as it is".to_owned(),
            n => format!("and {n} more are compressed, and stored as they are"),
        };
        let first = Name::path(first);
        ui.warn(format_args!(
            "{first}: {what}: for tensors that are compared with other snapshots, save what lmc decompress restores"
        ));
        Ok(())
    }

    /// What else is to be said of them.
    pub(in crate::cmd) fn notes(&self) -> Result<Vec<String>> {
        self.named.notes()
    }

    /// Saves them as the snapshot of a step in a store, which may be new, unless they change while they are read.
    pub(in crate::cmd) fn save(
        &self,
        place: &Place,
        (store, is_new): (&Store, bool),
        step: Option<Step>,
        metadata: Metadata,
        options: &SaveOptions<'_>,
    ) -> Result<Done> {
        let failure = |e: lmc_store::Error| place.failure(&e);
        // What was stored before is deleted, as after any failure.
        let stoppable = Stoppable::begin();
        let sources: Vec<_> =
            self.sources.iter().map(|source| UnlessStopped { source, stoppable: &stoppable }).collect();
        let files = self.named.files().iter().zip(&sources);
        let inputs: Vec<Input<'_>> = files.map(|(f, s)| Input::new(&f.name, s)).collect();
        Store::check_metadata(&metadata).map_err(failure)?;
        let asked = step;
        let step = store.step(asked).map_err(failure)?;
        // Files that changed while they were read must not be published, and explain a read error.
        let unchanged = || self.sources.iter().try_for_each(Source::check_unchanged);
        let refused = OnceLock::new();
        let check = || {
            let stopped = |e: io::Error| Failure::Failed(e.to_string());
            let may_go_on = stoppable.check().map_err(stopped).and_then(|()| unchanged());
            may_go_on.and_then(|()| self.named.check_same()).map_err(|why| {
                let e = lmc_store::Error::new(ErrorKind::Io, why.to_string());
                let _ = refused.set(why);
                e
            })
        };
        let mut options = *options;
        options.cancel = Cancel::new(&check);
        let saved = store.save_shard(&inputs, step, &options);
        let saved =
            saved.map_err(|e| refused.into_inner().or_else(|| unchanged().err()).unwrap_or_else(|| failure(e)))?;
        let start = Instant::now();
        let snapshot = match asked {
            Some(step) => store.publish(step, metadata, &[saved.shard]),
            None => store.publish_next(step, metadata, &[saved.shard]),
        };
        let snapshot = snapshot.map_err(failure)?;
        Ok(Done { snapshot, saved, is_new, tag: None, commit: start.elapsed(), _stoppable: stoppable })
    }
}

/// A file that cannot be read any more once the save is to end.
struct UnlessStopped<'a> {
    source: &'a Source,
    stoppable: &'a Stoppable,
}

impl ReadAt for UnlessStopped<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.stoppable.check()?;
        self.source.read_exact_at(buf, offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.source.size()
    }

    fn path(&self) -> Option<&Path> {
        ReadAt::path(self.source)
    }
}

impl Done {
    /// The share of elements that changed, if it is known.
    fn density(&self) -> Option<f64> {
        self.saved.changed.and_then(|n| ratio(n, self.saved.elements))
    }

    /// Says what is wrong with earlier snapshots.
    pub(in crate::cmd) fn note_damage(&self, place: &Place, ui: &Ui) {
        place.note(&self.saved.notes, ui);
    }

    /// Makes a tag name the snapshot. That it is saved is said even if this fails, and the exit status is 1.
    fn set_tag(&mut self, place: &Place, store: &Store, tag: &TagName, ui: &Ui) {
        match store.tag(tag, &self.snapshot) {
            Ok(_) => self.tag = Some(tag.clone()),
            Err(e) => {
                let why = place.failure(&e);
                ui.fail(&Failure::Failed(format!(
                    "{why}; step {} was saved, and the tag {tag} does not name it: set it with lmc snapshot tag",
                    self.snapshot.step
                )));
            }
        }
    }

    /// How many elements changed, for a message; nothing if it is not known.
    pub(in crate::cmd) fn changed(&self) -> String {
        let share = self.saved.changed.map(|n| percent(n, self.saved.elements));
        share.map_or_else(String::new, |share| format!(", {share} of the elements changed"))
    }

    pub(in crate::cmd) fn json(&self, place: &Place, start: Instant) -> Value {
        let Self { snapshot, saved, is_new, tag, commit, .. } = self;
        let Saved { document_size, base, shares, elements, changed, read, compress, upload, notes, .. } = saved;
        json!({
            "store": place.store,
            "new_store": is_new,
            "step": snapshot.step.get(),
            "id": snapshot.id.to_string(),
            "time": snapshot.time,
            "tag": tag.as_ref().map(TagName::to_string),
            "raw_size": snapshot.raw_size,
            "new_size": snapshot.new_size,
            "document_size": document_size,
            "base": base.map(Step::get),
            "shares": shares.map(Step::get),
            "elements": elements,
            "changed": changed,
            "density": self.density(),
            "notes": notes,
            "seconds": start.elapsed().as_secs_f64(),
            "phases": {
                "read": read.as_secs_f64(),
                "compress": compress.as_secs_f64(),
                "upload": upload.as_secs_f64(),
                "commit": commit.as_secs_f64(),
            },
        })
    }

    pub(in crate::cmd) fn text(&self, place: &Place, start: Instant) -> String {
        let Self { snapshot, saved, is_new, tag, .. } = self;
        let base = match (saved.base, saved.shares) {
            (Some(step), _) => format!("from step {step}"),
            // Not what is small in any snapshot, such as headers.
            (None, Some(step)) if snapshot.new_size < snapshot.raw_size / 2 => format!("shares data with step {step}"),
            (None, _) => "without a base".to_owned(),
        };
        format!(
            "{} : step {}{}, {} => {} ({}), {base}, {}{:.2} s",
            Name::text(&place.store),
            snapshot.step,
            tag.as_ref().map_or_else(String::new, |tag| format!(" ({tag})")),
            bytes(snapshot.raw_size),
            bytes(snapshot.new_size),
            percent(snapshot.new_size, snapshot.raw_size),
            if *is_new { "new store, " } else { "" },
            start.elapsed().as_secs_f64()
        )
    }
}
