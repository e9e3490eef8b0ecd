//! The generations of a step's record: which one counts, and how it is superseded (`docs/store.md` §3).

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};

use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{Hash, Step};
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::record::{MAX_SEEN, Record, RecordId, Seen};
use crate::records::listing::{Brief, Current, Keys, Listed, RECENT, heads};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// A record that cannot be read, or is missing although another one names it. Its snapshot is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedRecord {
    /// Its step.
    pub step: Step,
    /// Its key.
    pub key: String,
    /// The message, which names what is wrong.
    pub message: String,
    kind: ErrorKind,
    pub(crate) generation: u32,
    /// Whether it is missing.
    pub(crate) is_lost: bool,
}

/// The contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The snapshots, by step.
    pub snapshots: Vec<Snapshot>,
    /// Records that cannot be read, by step; each may be a snapshot's.
    pub damaged: Vec<DamagedRecord>,
    /// Whether the snapshots need what their saves stored, and nothing else: they are all, none was pruned or re-based, and it is no archive.
    pub(crate) adds_up: bool,
}

/// The records that count, of all steps or of some.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) steps: BTreeMap<Step, Result<Current, DamagedRecord>>,
}

/// Records that were to be read.
pub(crate) struct Looked<T> {
    pub(crate) there: Vec<(Step, Result<T, DamagedRecord>)>,
    /// They were listed, and are missing.
    pub(crate) gone: Vec<RecordId>,
}

impl DamagedRecord {
    /// The damaged record of an error of [`Store::record`]; errors of the request are passed on.
    pub(crate) fn of(RecordId { step, generation }: RecordId, e: Error) -> Result<Self> {
        let kind = match e.kind() {
            ErrorKind::Store | ErrorKind::Io => return Err(e),
            ErrorKind::NotFound => ErrorKind::Damaged,
            kind => kind,
        };
        // It names the key.
        let (key, message) = (keys::record(step, generation).to_string(), e.to_string());
        Ok(Self { step, key, message, kind, generation, is_lost: false })
    }

    /// A record that is missing although another one names it.
    fn missing(id: RecordId, by: RecordId) -> Self {
        Self { is_lost: true, ..Self::beyond(id, format!("{id}: is missing, although {by} names it")) }
    }

    /// A record that is missing although it was listed.
    fn gone(id: RecordId) -> Self {
        Self { is_lost: true, ..Self::beyond(id, format!("{id}: is missing, although it was listed")) }
    }

    /// A record that can be read, of a snapshot that cannot be restored.
    pub(crate) fn beyond(id: RecordId, message: String) -> Self {
        let RecordId { step, generation } = id;
        Self { step, key: id.to_string(), message, kind: ErrorKind::Damaged, generation, is_lost: false }
    }

    /// What is wrong with it, for a caller that can do without unless a newer lmc wrote it: `Unsupported` then, and else `Damaged`.
    pub(crate) fn cause(self) -> Error {
        let kind = if self.kind == ErrorKind::Unsupported { self.kind } else { ErrorKind::Damaged };
        Error::new(kind, self.message)
    }

    /// The error for a caller that needs this record, with advice.
    pub(crate) fn error(&self, meanwhile: &str) -> Error {
        let Self { step, message, .. } = self;
        let advice = format!("; {meanwhile}{}", self.remedy().unwrap_or_default());
        Error::new(self.kind, format!("step {step}: {message}{}", advice.trim_end_matches([' ', ',', ';'])))
    }

    /// Advice for the error. The message says which lmc reads a record that is not damaged.
    pub(crate) fn remedy(&self) -> Option<String> {
        (!self.is_of_other_version()).then(|| remedy("the record", self.step))
    }

    /// Whether another version of lmc wrote it, and can read it.
    pub(crate) fn is_of_other_version(&self) -> bool {
        self.kind == ErrorKind::Unsupported
    }
}

/// What to do about something that a snapshot needs, and that is missing or damaged.
pub(crate) fn remedy(what: &str, step: Step) -> String {
    remedy_of(what, [step])
}

/// The same for several snapshots.
pub(crate) fn remedy_of(what: &str, steps: impl IntoIterator<Item = Step>) -> String {
    let options: Vec<String> = steps.into_iter().map(|step| format!("--damaged {step}")).collect();
    let end = if options.len() > 1 { "end the snapshots" } else { "end the snapshot" };
    format!(
        "put {what} back from a copy of the store, or, if there is none, {end}: lmc snapshot prune {}",
        options.join(" ")
    )
}

impl Listing {
    /// [`Store::needed_size`], if the records say it: not if some snapshots were left out, pruned or re-based, and not of an archive.
    pub fn needed_size(&self) -> Option<u64> {
        self.adds_up.then(|| self.snapshots.iter().map(|s| s.new_size).fold(0, u64::saturating_add))
    }
}

impl History {
    /// The snapshots of the records.
    pub(crate) fn into_kept(self) -> Vec<Current> {
        self.steps.into_values().flatten().filter(Current::is_kept).collect()
    }

    pub(crate) fn damaged(&self) -> impl Iterator<Item = &DamagedRecord> {
        self.steps.values().filter_map(|r| r.as_ref().err())
    }

    /// The records that a new one names.
    pub(crate) fn heads(&self) -> Vec<Seen> {
        let highest: Vec<Brief> = self.steps.values().rev().take(RECENT).flatten().map(Current::brief).collect();
        heads(highest.iter())
    }
}

impl Store {
    /// Lists snapshots, and records that cannot be read. Foreign keys are ignored.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn list(&self) -> Result<Listing> {
        self.listing_of(self.history()?, true)
    }

    /// [`Self::list`] of the last `n` snapshots. Lists and reads no more than it takes to find them.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn list_last(&self, n: usize) -> Result<Listing> {
        let (mut keys, mut steps, mut gone) = (Keys::default(), BTreeMap::new(), vec![]);
        let (mut from, mut at_once) = (None, n);
        let is_kept = |r: &Result<Current, DamagedRecord>| r.as_ref().is_ok_and(Current::is_kept);
        loop {
            let more = self.highest(from, at_once)?;
            let looked = self.look(&more, more.counting(), |current| current)?;
            steps.extend(looked.there);
            gone.extend(looked.gone);
            keys.add(more);
            // Others may be pruned.
            (from, at_once) = (keys.rest, RECENT);
            if from.is_none() || steps.values().filter(|r| is_kept(r)).count() >= n {
                break;
            }
        }
        let mut history = self.with_lost(&keys, steps, gone)?;
        let first =
            history.steps.iter().rev().filter(|(_, r)| is_kept(r)).nth(n.saturating_sub(1)).map(|(&step, _)| step);
        let before = history.steps.len();
        history.steps.retain(|step, _| first.is_none_or(|first| *step >= first));
        let whole = from.is_none() && before == history.steps.len();
        self.listing_of(history, whole)
    }

    /// What a listing says of these records; `whole`: whether they are all.
    fn listing_of(&self, history: History, whole: bool) -> Result<Listing> {
        let damaged = history.damaged().cloned().collect();
        let as_saved = |c: &Current| c.is_kept() && c.generation == 0;
        let as_saved = history.steps.values().all(|r| r.as_ref().is_ok_and(as_saved));
        // Below a floor, the records of those that were pruned are gone.
        let adds_up = whole && as_saved && !self.is_archive() && self.floors()?.is_empty();
        let snapshots = history.into_kept().into_iter().map(|c| Snapshot::of(c.record)).collect();
        Ok(Listing { snapshots, damaged, adds_up })
    }

    /// All snapshots whose records can be read, by step. [`Self::list`] also returns the records that cannot.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        Ok(self.list()?.snapshots)
    }

    /// The steps, from this one on, that have or had a snapshot: those of pruned ones, too. Reads no record, and lists none of earlier steps.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn steps(&self, from: Step) -> Result<BTreeSet<Step>> {
        Ok(self.keys_until(None, |_, next| next < from)?.steps.into_keys().collect())
    }

    /// The keys of all records.
    pub(crate) fn keys(&self) -> Result<Keys> {
        self.keys_until(None, |_, _| false)
    }

    /// The keys of the records of the `count` highest steps; of those up to `from`, if it is given.
    pub(crate) fn highest(&self, from: Option<Step>, count: usize) -> Result<Keys> {
        self.keys_until(from, |keys, _| keys.steps.len() == count)
    }

    /// Lists keys of records, from the highest step or that of `from` on downwards, until `enough` says so of what was listed, before the
    /// step that comes next.
    pub(crate) fn keys_until(&self, from: Option<Step>, enough: impl Fn(&Keys, Step) -> bool) -> Result<Keys> {
        let offset = from.map(keys::before_records);
        let mut objects = self.remote().objects_after(&keys::records(), offset.as_ref())?;
        let mut keys = Keys::default();
        self.remote().wait(async {
            while let Some(object) = objects.next().await? {
                let Some((step, generation)) = keys::parse_record(&object.key) else {
                    keys.foreign.push(object.key.to_string());
                    continue;
                };
                if !keys.steps.contains_key(&step) && enough(&keys, step) {
                    keys.rest = Some(step);
                    break;
                }
                let (time, nanos, size) = (object.time, object.nanos, object.size);
                keys.steps.entry(step).or_default().push(Listed { generation, time, nanos, size });
            }
            Ok::<_, Error>(())
        })?;
        let lowest = keys.rest.map_or(Step::new(0), Step::next)?;
        keys.listed.push(lowest..=from.unwrap_or(Step::MAX));
        Ok(keys)
    }

    /// The records that count.
    pub(crate) fn history(&self) -> Result<History> {
        let keys = self.keys()?;
        let Looked { there, gone } = self.look(&keys, keys.counting(), |current| current)?;
        self.with_lost(&keys, there.into_iter().collect(), gone)
    }

    /// Reads records, several at once, and keeps some of each.
    pub(crate) fn look<T>(
        &self,
        keys: &Keys,
        which: Vec<RecordId>,
        mut keep: impl FnMut(Current) -> T,
    ) -> Result<Looked<T>> {
        let mut looked = Looked { there: vec![], gone: vec![] };
        let mut read = stream::iter(which).map(async |id| (id, self.record(id).await)).buffered(keys.at_once());
        self.remote().wait(async {
            while let Some((id, read)) = read.next().await {
                match read {
                    Ok(current) => looked.there.push((id.step, Ok(keep(current)))),
                    Err(e) if e.kind() == ErrorKind::NotFound => looked.gone.push(id),
                    Err(e) => looked.there.push((id.step, Err(DamagedRecord::of(id, e)?))),
                }
            }
            Ok::<_, Error>(())
        })?;
        drop(read);
        Ok(looked)
    }

    fn with_lost(
        &self,
        keys: &Keys,
        mut steps: BTreeMap<Step, Result<Current, DamagedRecord>>,
        gone: Vec<RecordId>,
    ) -> Result<History> {
        let names = steps.values().flatten().map(|c| (c.id(), &c.record.seen[..]));
        for lost in self.lost(keys, names, &gone)? {
            steps.insert(lost.step, Err(lost));
        }
        Ok(History { steps })
    }

    /// Records that others name, and that are missing without having been superseded; and those that were listed, and are `gone`. Not those
    /// of steps at or below the last floor that it does not list: they were pruned, and collected.
    pub(crate) fn lost<'r>(
        &self,
        keys: &Keys,
        names: impl IntoIterator<Item = (RecordId, &'r [Seen])>,
        gone: &[RecordId],
    ) -> Result<Vec<DamagedRecord>> {
        let mut missing: BTreeMap<Step, DamagedRecord> = BTreeMap::new();
        for (by, seen) in names {
            for seen in seen.iter().filter(|s| !keys.has(s.key)) {
                let lost = DamagedRecord::missing(seen.key, by);
                let known = missing.entry(lost.step).or_insert_with(|| lost.clone());
                if known.generation < lost.generation {
                    *known = lost;
                }
            }
        }
        if missing.is_empty() && gone.is_empty() {
            return Ok(vec![]);
        }
        let floor = self.last_floor()?;
        let may_be_lost = |step: Step| floor.as_ref().is_none_or(|floor| floor.may_lose(step));
        let mut lost = vec![];
        for bad in missing.into_values().filter(|bad| may_be_lost(bad.step)) {
            let id = RecordId { step: bad.step, generation: bad.generation };
            // A listing takes time: a record may have been written after the listing passed its place.
            if !self.keys_of(bad.step)?.has(id) {
                lost.push(bad);
            }
        }
        lost.extend(gone.iter().filter(|id| may_be_lost(id.step)).map(|&id| DamagedRecord::gone(id)));
        Ok(lost)
    }

    /// The keys of a step's records.
    fn keys_of(&self, step: Step) -> Result<Keys> {
        self.keys_until(Some(step), |_, next| next < step)
    }

    /// The record that counts for a step, if it is there.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub(crate) fn newest_or_damaged(&self, step: Step) -> Result<Option<Result<Current, DamagedRecord>>> {
        let Some(Listed { generation, .. }) = self.keys_of(step)?.entry(step) else { return Ok(None) };
        let id = RecordId { step, generation };
        Ok(Some(match self.remote().wait(self.record(id)) {
            Ok(current) => Ok(current),
            Err(e) => Err(DamagedRecord::of(id, e)?),
        }))
    }

    /// [`Self::newest_or_damaged`] of a record that can be read.
    ///
    /// # Errors
    /// Those of [`DamagedRecord::error`] when it cannot be read, `Store` when requests fail.
    pub(crate) fn newest(&self, step: Step) -> Result<Option<Current>> {
        self.newest_or_damaged(step)?.transpose().map_err(|bad| bad.error(""))
    }

    /// Reads a record.
    pub(crate) async fn record(&self, RecordId { step, generation }: RecordId) -> Result<Current> {
        let key = keys::record(step, generation);
        let bytes = self.remote().get(&key, Record::MAX).await?;
        let record = Record::parse(&bytes).map_err(|e| e.at(&key))?;
        if record.step != step {
            return Err(Error::damaged(format!("{key}: is the record of step {}", record.step)));
        }
        Ok(Current { generation, record, hash: Hash::of(&bytes) })
    }

    /// Makes `record` the one that counts, unless that generation exists already. Returns how others name it, if it was created.
    pub(crate) async fn create_record(&self, generation: u32, record: &Record) -> Result<Option<Seen>> {
        let bytes = record.to_bytes()?;
        let seen = Seen { key: RecordId { step: record.step, generation }, hash: Hash::of(&bytes) };
        let ours = self.remote().create(&keys::record(record.step, generation), bytes.into()).await?;
        Ok(ours.then_some(seen))
    }
}

/// The records that a new one names: the one it supersedes, those not named yet, and those that the superseded one names, as it will be
/// collected.
pub(crate) fn to_name(heads: &[Seen], superseded: Option<&Brief>) -> Vec<Seen> {
    let mut names: Vec<Seen> = superseded.map(|b| b.seen).into_iter().collect();
    for seen in heads.iter().chain(superseded.iter().flat_map(|b| &b.names)) {
        let of_its_step = superseded.is_some_and(|b| b.seen.key.step == seen.key.step);
        if !of_its_step && names.iter().all(|n| n.key != seen.key) {
            names.push(*seen);
        }
    }
    names.truncate(MAX_SEEN);
    names
}

/// The next generation.
pub(crate) fn next_generation(step: Step, generation: u32) -> Result<u32> {
    generation.checked_add(1).ok_or_else(|| Error::limit(format!("step {step} was superseded too often")))
}
