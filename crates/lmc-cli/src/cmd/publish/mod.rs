//! `lmc publish`.

mod health;
mod interchange;
mod settling;
mod versions;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use lmc::Level;
use lmc_store::{At, BasePolicy, Cache, ErrorKind, Location, SaveOptions, Step, Store, StoreOptions};
use regex_lite::Regex;
use serde_json::Value;

use self::interchange::{Exporter, InterchangeArgs};
use self::settling::Settling;
use self::versions::{Files, Finished, Identity, Names, Version, Why};
use super::poll::{Looks, check_no_file, parse_seconds};
use super::snapshot::place::{Grace, Place};
use super::snapshot::save::Opened;
use crate::ui::failure::{Failure, Result, both};
use crate::ui::format::{Name, parse_size};
use crate::ui::messages::Ui;
use crate::work::args::{Threads, level};
use crate::work::files::NamedFiles;

/// Save the versions of a model to a store, as a run finishes them in a directory.
///
/// DIR has a directory or a file for each version, whose name has its step: checkpoint-1000, global_step1000, epoch=0-step=1000.ckpt,
/// ep0-ba1000-rank0.pt, step1000-unsharded, model-1000.safetensors, 1000. A rank, a fraction or an epoch beside a step is none.
/// Those that come after the last snapshot of the store are saved, in order, each as the snapshot of its step, for lmc follow. Other names
/// are ignored, as are those that begin with a dot or "tmp", end with "tmp", have "-tmp-" in them, or are one file of several (00001-of-00002). What appears later
/// with an earlier step, as after a run was rewound, or with that of a pruned snapshot, is not saved, and reported; with --once, also what
/// was there before, unless --newest may have left it out.
///
/// A version must be finished when it is saved. Give the run's sign of that with --marker, or let it write elsewhere and rename, with
/// --settle 0. Without a sign, a version counts as finished when looks have seen it unchanged for a while, whatever the times of its files
/// are (with --once: by these); and never as long as files are missing that an index in it (*.index.json, *.index.fp16.json) names, or a
/// safetensors or GGUF file is shorter than its header says. What is waited for longer than usual is said. A version that changes while it
/// is read is not saved. A file without weights whose name a store cannot hold is left out, and a message says so.
///
/// The store is created with its first version. A bucket that refuses objects is reported before. With --once, the exit status is 1 if
/// there is no version in DIR, or if one is left unsaved. Earlier versions that the store does not have are reported, and are no failure.
#[derive(Args)]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    place: Place,

    /// The directory of versions.
    dir: PathBuf,

    #[command(flatten)]
    looks: Looks,

    /// A version is a directory that is finished when it has a file NAME, as STABLE.
    #[arg(long, value_name = "NAME", conflicts_with = "settle", help_heading = "Versions")]
    marker: Option<String>,

    /// A version is finished when nothing in it has changed for S seconds.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = parse_settle, help_heading = "Versions")]
    settle: f64,

    /// Versions are only what has a name that begins with PREFIX.
    #[arg(long, value_name = "PREFIX", help_heading = "Versions")]
    prefix: Option<String>,

    /// Versions are what has a name that matches REGEX, and their steps are what its first group matches, or all of it.
    #[arg(long, value_name = "REGEX", help_heading = "Versions")]
    step_pattern: Option<Regex>,

    /// Of several new versions, save only the last.
    #[arg(long, help_heading = "Versions")]
    newest: bool,

    /// Store tensors whole, and as a delta, every N versions: a follower that begins reads at most N of each.
    #[arg(long, value_name = "N", default_value_t = SaveOptions::default().anchor_every, value_parser = clap::value_parser!(u32).range(1..=64))]
    anchor_every: u32,

    /// Keep up to SIZE of the last version in memory, so that the next one need not read it from the store.
    #[arg(long, value_name = "SIZE", default_value = "16Gi", value_parser = parse_size)]
    cache_size: usize,

    #[command(flatten)]
    grace: Grace,

    /// Compression level: `fast`, `default` or `max`.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::Fast.name())]
    level: Level,

    /// Write FILE anew at every look, for whoever watches this command: a JSON object with time (in seconds since 1970), step (of the last
    /// version that the store has), waiting (for what) and error, the last three null where there is none.
    #[arg(long, value_name = "FILE", help_heading = "Messages")]
    health_file: Option<PathBuf>,

    /// Print a JSON object for every version.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,

    #[command(flatten)]
    interchange: InterchangeArgs,
}

fn parse_settle(text: &str) -> Result<f64, String> {
    parse_seconds(text, 0.0, "a time")
}

/// Publishes a directory.
pub(crate) fn run(args: &PublishArgs, ui: &Ui) -> Result {
    let rule = match &args.marker {
        Some(name) => Finished::Marker(name.clone()),
        None => Finished::Settled(Duration::from_secs_f64(args.settle)),
    };
    if let Ok(Location::Directory(store)) = args.place.location() {
        check_no_file(&store)?;
    }
    check_no_file(&args.dir)?;
    if let Some(path) = &args.health_file {
        args.place.guard().check_replace(path)?;
        let parent = health::directory(path).canonicalize().ok();
        if parent.zip(args.dir.canonicalize().ok()).is_some_and(|(parent, dir)| parent.starts_with(dir)) {
            let (path, dir) = (Name::path(path), Name::path(&args.dir));
            return Err(Failure::Usage(format!(
                "--health-file {path} is in {dir}, which has the versions: name another place"
            )));
        }
    }
    if let Some(out) = args.interchange.directory() {
        check_no_file(out)?;
        args.place.guard().check_replace(&out.join("version"))?;
    }
    let (settling, seen, last, waited_for, left, exporter, newest, waiting) = Default::default();
    let (store, is_new, can_create, has_looked) = (None, false, false, false);
    let mut publisher = Publisher {
        args,
        ui,
        rule,
        store,
        is_new,
        can_create,
        has_looked,
        settling,
        seen,
        last,
        waited_for,
        left,
        exporter,
        newest,
        waiting,
    };
    args.looks.run(ui, || {
        publisher.waiting = None;
        let looked = publisher.look();
        publisher.report_left();
        // Also versions saved before, if another version cannot be saved.
        let looked = both(looked, publisher.export());
        let Some(path) = &args.health_file else { return looked };
        let told = health::write(path, publisher.newest, publisher.waiting.as_deref(), looked.as_ref().err());
        both(looked, told)
    })
}

struct Publisher<'a> {
    args: &'a PublishArgs,
    ui: &'a Ui,
    rule: Finished,
    /// None before the first version, unless it was there.
    store: Option<Store>,
    /// Whether the store was created, and nothing was saved in it yet.
    is_new: bool,
    /// Whether it was seen that a store can be created there.
    can_create: bool,
    has_looked: bool,
    settling: Settling,
    /// Versions that were saved, were there from the start, or were reported.
    seen: HashMap<PathBuf, Identity>,
    /// The version that was saved last, and its files then, until a change of them is reported.
    last: Option<(Version, Files)>,
    /// Unfinished versions that were reported, because later ones wait for them.
    waited_for: HashSet<PathBuf>,
    /// Why versions were not saved by a single look.
    left: Vec<String>,
    exporter: Exporter,
    /// The last step of the store.
    newest: Option<Step>,
    /// What the last look waits for.
    waiting: Option<String>,
}

impl Publisher<'_> {
    fn failure(&self, e: &lmc_store::Error) -> Failure {
        self.args.place.failure(e)
    }

    fn options(&self) -> StoreOptions {
        let mut o = StoreOptions::default();
        o.cache = Cache::Memory { budget: self.args.cache_size as u64 };
        self.args.grace.set(&mut o);
        o
    }

    fn hold(&mut self, store: Store) -> Result {
        self.args.grace.check(&self.args.place, &store)?;
        self.exporter.begin(&store).map_err(|e| self.failure(&e))?;
        self.store = Some(store);
        Ok(())
    }

    /// Says why a version is not saved; of a single look when it is over.
    fn unsaved(&mut self, text: impl Display) {
        match self.args.looks.once {
            true => self.left.push(text.to_string()),
            false => self.ui.warn(text),
        }
    }

    /// Says what a single look left, which is a failure.
    fn report_left(&mut self) {
        std::mem::take(&mut self.left).into_iter().for_each(|text| self.ui.fail(&Failure::Failed(text)));
    }

    fn look(&mut self) -> Result {
        self.report_written();
        let Self { args, ui, .. } = *self;
        let names = Names {
            prefix: args.prefix.as_deref().unwrap_or_default(),
            pattern: args.step_pattern.as_ref(),
            only_directories: matches!(self.rule, Finished::Marker(_)),
        };
        let versions = versions::found(&args.dir, &names)?;
        if self.store.is_none() {
            match args.place.open_if_there(self.options())? {
                Some(store) => self.hold(store)?,
                // Not only when there is something to save.
                None => {
                    args.place.check_vacant()?;
                    if !self.can_create {
                        args.place.check_new(&self.options())?;
                        self.can_create = true;
                    }
                }
            }
        }
        if args.looks.once && versions.is_empty() {
            return Err(versions::none(&args.dir, &names));
        }
        let next = self.store.as_ref().map(|store| store.step(None)).transpose().map_err(|e| self.failure(&e))?;
        self.newest = next.and_then(|next| Step::new(next.get().checked_sub(1)?).ok());
        let is_later = |v: &Version| next.is_none_or(|next| v.step >= next);
        let (new, mut old): (Vec<Version>, Vec<Version>) = versions.into_iter().partition(is_later);
        let mut pruned = BTreeSet::new();
        if let (Some(store), Some(first)) = (&self.store, new.iter().map(|v| v.step).min()) {
            // Later than the last snapshot are steps of pruned ones.
            pruned = store.steps(first).map_err(|e| self.failure(&e))?;
        }
        let (ended, mut new): (Vec<Version>, Vec<Version>) = new.into_iter().partition(|v| pruned.contains(&v.step));
        old.extend(ended);
        versions::check(&new, &names)?;
        if new.is_empty() {
            self.waiting = Some(format!("waiting for a version in {}", Name::path(&args.dir)));
            if args.looks.once {
                ui.done(format_args!("{} : nothing new in {}", Name::text(&args.place.store), Name::path(&args.dir)));
            }
        }
        if !std::mem::replace(&mut self.has_looked, true) {
            if args.looks.once && !args.newest {
                self.report_passed_over(&old)?;
            }
            self.seen.extend(old.iter().map(|v| (v.path.clone(), v.identity.clone())));
        }
        for version in old {
            self.report_earlier(version)?;
        }
        self.settling.keep(&new);
        if self.settle().is_some() {
            // All of them, so that none waits for its turn before it begins to settle.
            new.iter().for_each(|v| _ = self.settling.age(v, self.settle()));
        }
        if args.newest {
            // An unfinished one must not hide the last that is finished.
            let last = new.iter().rposition(|v| self.is_finished(v));
            self.seen.extend(new.drain(..last.unwrap_or(0)).map(|v| (v.path, v.identity)));
        }
        for (i, version) in new.iter().enumerate() {
            let Some(why) = self.why_not(version)? else {
                self.publish(version)?;
                continue;
            };
            // Later ones wait: steps of a store are saved in order.
            let text = format!("{}: is not finished: {}", Name::path(&version.path), why.text);
            let waiting = format!("waiting for {} to be complete: {}", Name::path(&version.path), why.text);
            let later = new[i + 1..].iter().find(|v| self.is_finished(v));
            if let Some(later) = later.filter(|_| self.waited_for.insert(version.path.clone())) {
                let later = Name::path(&later.path);
                self.unsaved(format_args!("{text}; {later} waits for it: finish it, move it away, or use --newest"));
            } else if args.looks.once {
                self.unsaved(text);
            } else if self.is_late(version, &why) {
                ui.warn(format_args!("{waiting}; finish it, move it away, or use --newest"));
            } else {
                ui.detail(&waiting);
            }
            self.waiting = Some(waiting);
            break;
        }
        Ok(())
    }

    /// For how long a version has to be seen as it is; `None` if something else says when one is finished.
    fn settle(&self) -> Option<Duration> {
        match self.rule {
            Finished::Settled(settle) if !settle.is_zero() && !self.args.looks.once => Some(settle),
            _ => None,
        }
    }

    fn why_not(&mut self, version: &Version) -> Result<Option<Why>> {
        let age = self.settle().map(|_| self.settling.age(version, None));
        self.rule.why_not(version, age)
    }

    /// Whether a version is finished, as far as it was seen.
    fn is_finished(&mut self, version: &Version) -> bool {
        let age = self.settle().map(|settle| self.settling.age(version, Some(settle)));
        self.rule.why_not(version, age).is_ok_and(|why| why.is_none())
    }

    /// Whether the wait for a version is longer than usual, and no message has said why.
    fn is_late(&mut self, version: &Version, why: &Why) -> bool {
        let patience = self.args.looks.patience();
        match why.changes {
            // Large ones are written for minutes.
            true => {
                let settle = self.settle().unwrap_or_default();
                self.settling.watched(version) >= patience.max(30 * settle) && self.settling.is_news(version, "changes")
            }
            false => self.settling.age(version, None) >= patience && self.settling.is_news(version, &why.text),
        }
    }

    /// Writes saved versions for receivers without lmc.
    fn export(&mut self) -> Result {
        let Self { args, ui, .. } = *self;
        let Some(store) = &self.store else { return Ok(()) };
        self.exporter.look(&args.interchange, store, &args.dir, args.threads.count(), args.json, ui)
    }

    /// Reports versions that the store has not, and that come before its last step.
    fn report_passed_over(&mut self, old: &[Version]) -> Result {
        let (Some(store), Some(first)) = (&self.store, old.iter().map(|v| v.step).min()) else { return Ok(()) };
        let saved = store.steps(first).map_err(|e| self.failure(&e))?;
        let passed: Vec<&Version> = old.iter().filter(|v| !saved.contains(&v.step)).collect();
        let Some(first) = passed.first() else { return Ok(()) };
        let what = match passed.len() - 1 {
            0 => "is not saved: the store does not have this step".to_owned(),
            n => format!("and {n} more are not saved: the store does not have these steps"),
        };
        let name = Name::path(&first.path);
        // A choice that was made before, as with --newest, is no failure of each look.
        self.ui
            .warn(format_args!("{name}: {what}, but later ones; if the run was rewound, publish it to another store"));
        Ok(())
    }

    /// Reports a version that appeared with a step that is not after the last one of the store, or was written again.
    fn report_earlier(&mut self, version: Version) -> Result {
        let Version { step, path, identity } = version;
        let before = self.seen.get(&path);
        if before == Some(&identity) {
            return Ok(());
        }
        if let (None, Some(store)) = (before, &self.store) {
            // Another publisher may have saved it.
            match store.find(At::Step(step)) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(self.failure(&e)),
                Ok(_) => {
                    self.seen.insert(path, identity);
                    return Ok(());
                }
            }
        }
        let name = Name::path(&path);
        self.unsaved(format_args!(
            "{name}: is not saved: the store has or had this step, or has later ones; if the run was rewound, publish it to another store"
        ));
        self.seen.insert(path, identity);
        Ok(())
    }

    /// Reports that the version that was saved last was written to since.
    fn report_written(&mut self) {
        let Some((version, before)) = &self.last else { return };
        if let Some(file) = version.written(before) {
            self.ui.warn(format_args!(
                "{}: was written to after the version was saved: the store has it as it was; use --marker, a longer \
                 --settle, or let the run rename a version when it is finished",
                Name::path(&file)
            ));
            self.last = None;
        }
    }

    /// Saves a version as a snapshot.
    fn publish(&mut self, version: &Version) -> Result {
        // So that nothing is missed if several are saved at one look.
        self.report_written();
        let Self { args, ui, .. } = *self;
        let before = version.files();
        let start = Instant::now();
        let mut options = SaveOptions::default();
        options.level = args.level;
        options.threads = args.threads.count();
        options.anchor_every = args.anchor_every;
        options.alternatives = true;
        options.base = BasePolicy::Previous;
        let files = Opened::new(NamedFiles::find(std::slice::from_ref(&version.path), &args.place.store)?)?;
        files.note_compressed(ui)?;
        let notes = files.notes()?;
        if self.store.is_none() {
            let (store, is_new) = args.place.open_or_create(self.options())?;
            self.is_new = is_new;
            self.hold(store)?;
        }
        let store = self.store.as_ref().expect("it was opened");
        let saved = files.save(&args.place, (store, self.is_new), Some(version.step), BTreeMap::new(), &options)?;
        self.is_new = false;
        self.newest = Some(version.step);
        self.seen.insert(version.path.clone(), version.identity.clone());
        self.last = Some((version.clone(), before));
        notes.iter().for_each(|note| ui.warn(note));
        saved.note_damage(&args.place, ui);
        if args.json {
            let mut json = saved.json(&args.place, start);
            json["path"] = Value::from(version.path.to_string_lossy());
            return ui.json(&json);
        }
        ui.done(format_args!("{}{}", saved.text(&args.place, start), saved.changed()));
        Ok(())
    }
}
