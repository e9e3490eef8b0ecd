//! The generations of a step's record: which one counts, and how it is superseded (`docs/store.md` §3).

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Hash, SaveId, Step};
use crate::layout;
use crate::manifest::Document;
use crate::manifest::record::{MAX_SEEN, Record, RecordId, Seen};
use crate::records::{Current, Keys, Listed};
use crate::remote::{CONCURRENT, Object};
use crate::snapshot::{At, Snapshot};
use crate::store::Store;
use crate::tags;

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
}

/// The contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The snapshots, by step.
    pub snapshots: Vec<Snapshot>,
    /// Records that cannot be read, by step; each may be a snapshot's.
    pub damaged: Vec<DamagedRecord>,
    /// Whether the snapshots need what their saves stored, and nothing else: none was pruned or re-based, and it is no archive.
    pub(crate) adds_up: bool,
}

/// The records that count, of all steps or of some.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) steps: BTreeMap<Step, Result<Current, DamagedRecord>>,
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
        let (key, message) = (layout::record(step, generation).to_string(), e.to_string());
        Ok(Self { step, key, message, kind, generation })
    }

    /// A record that is missing although another one names it.
    fn missing(RecordId { step, generation }: RecordId, by: RecordId) -> Self {
        let key = layout::record(step, generation).to_string();
        let message = format!("{key}: is missing, although {by} names it");
        Self { step, key, message, kind: ErrorKind::Damaged, generation }
    }

    /// A record that can be read, of a snapshot that cannot be restored.
    pub(crate) fn beyond(RecordId { step, generation }: RecordId, message: String) -> Self {
        let key = layout::record(step, generation).to_string();
        Self { step, key, message, kind: ErrorKind::Damaged, generation }
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
    /// [`Store::needed_size`], if the records say it: not if some snapshots were pruned or re-based, and not of an archive.
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

    /// The records that a new one names: those not named by another.
    pub(crate) fn heads(&self) -> Vec<Seen> {
        let named: BTreeSet<RecordId> =
            self.steps.values().flatten().flat_map(|c| &c.record.seen).map(|s| s.key).collect();
        self.steps.values().flatten().map(Current::seen).filter(|s| !named.contains(&s.key)).collect()
    }
}

impl Store {
    /// Lists snapshots, and records that cannot be read. Foreign keys are ignored.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn list(&self) -> Result<Listing> {
        let history = self.history()?;
        let damaged = history.damaged().cloned().collect();
        let as_saved = |c: &Current| c.is_kept() && c.generation == 0;
        let adds_up = !self.is_archive() && history.steps.values().all(|r| r.as_ref().is_ok_and(as_saved));
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

    /// The steps that have or had a snapshot: those of pruned ones, too. Reads no record.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn steps(&self) -> Result<BTreeSet<Step>> {
        Ok(self.keys()?.steps.into_keys().collect())
    }

    /// One snapshot.
    ///
    /// # Errors
    /// `NotFound` when it is not there, `Damaged` or `Unsupported` when that is unknown because a record cannot be read, `Store` when
    /// requests fail.
    pub fn find(&self, at: At) -> Result<Snapshot> {
        let found = match at {
            At::Latest => self.latest()?,
            At::Tag(ref name) => {
                let (step, id) = self.tagged(name)?;
                let there = self.find(At::Step(step)).map_err(|e| e.at(format_args!("the tag {name}")))?;
                if there.id != id {
                    return Err(Error::not_found(format!(
                        "the tag {name} names the snapshot {id} of step {step}, which was pruned; {}",
                        tags::remedy(name)
                    )));
                }
                Some(there)
            }
            At::Step(step) => match self.newest(step)? {
                Some(current) if current.is_kept() => Some(Snapshot::of(current.record)),
                Some(_) => {
                    return Err(Error::not_found(format!("the store has no snapshot of step {step}: it was pruned")));
                }
                // Others may name its record.
                None => match self.about(&self.keys()?, &[step])?.steps.get(&step) {
                    Some(Err(bad)) => return Err(bad.error("")),
                    _ => None,
                },
            },
            At::Id(id) => self.of_id(id)?,
        };
        found.ok_or_else(|| {
            Error::not_found(match at {
                At::Latest | At::Tag(_) => "the store has no snapshots".to_owned(),
                At::Step(step) => format!("the store has no snapshot of step {step}"),
                At::Id(id) => format!("the store has no snapshot with the id {id}"),
            })
        })
    }

    /// The keys of all records.
    pub(crate) fn keys(&self) -> Result<Keys> {
        self.keys_under(&layout::records())
    }

    /// The records that count.
    pub(crate) fn history(&self) -> Result<History> {
        self.all(&self.keys()?)
    }

    fn all(&self, keys: &Keys) -> Result<History> {
        let steps = self.read(keys.all())?;
        self.with_lost(keys, steps)
    }

    /// The records that may name records of steps that have none. For steps after all others these are the recent ones: such a
    /// step may be asked for again and again, until it is there.
    pub(crate) fn about(&self, keys: &Keys, steps: &[Step]) -> Result<History> {
        match keys.last() {
            Some(last) if steps.iter().any(|&step| step < last.step) => self.all(keys),
            _ => self.recent(keys),
        }
    }

    /// The records that count, of the most recently written steps, and the missing records that they name. Reads those that are new.
    pub(crate) fn recent(&self, keys: &Keys) -> Result<History> {
        let (mut steps, mut unread) = (BTreeMap::new(), vec![]);
        for id in keys.recent() {
            match self.known().get(keys, id.step) {
                Some(current) => _ = steps.insert(id.step, Ok(current)),
                None => unread.push(id),
            }
        }
        steps.extend(self.read(unread)?);
        self.known().replace(keys, steps.values().flatten());
        self.with_lost(keys, steps)
    }

    /// Reads records, several at once.
    fn read(&self, which: Vec<RecordId>) -> Result<BTreeMap<Step, Result<Current, DamagedRecord>>> {
        let read = stream::iter(which)
            .map(async |id| match self.record(id).await {
                Ok(current) => Ok((id.step, Ok(current))),
                Err(e) => DamagedRecord::of(id, e).map(|bad| (id.step, Err(bad))),
            })
            .buffered(CONCURRENT);
        self.remote().wait(read.try_collect())
    }

    fn with_lost(&self, keys: &Keys, mut steps: BTreeMap<Step, Result<Current, DamagedRecord>>) -> Result<History> {
        for lost in self.lost(keys, steps.values().flatten())? {
            steps.insert(lost.step, Err(lost));
        }
        Ok(History { steps })
    }

    /// Records that others name, and that are missing without having been superseded.
    pub(crate) fn lost<'r>(
        &self,
        keys: &Keys,
        records: impl IntoIterator<Item = &'r Current>,
    ) -> Result<Vec<DamagedRecord>> {
        let mut missing: BTreeMap<Step, DamagedRecord> = BTreeMap::new();
        for current in records {
            for seen in current.record.seen.iter().filter(|s| !keys.has(s.key)) {
                let lost = DamagedRecord::missing(seen.key, current.id());
                let known = missing.entry(lost.step).or_insert_with(|| lost.clone());
                if known.generation < lost.generation {
                    *known = lost;
                }
            }
        }
        let mut lost = vec![];
        for bad in missing.into_values() {
            let id = RecordId { step: bad.step, generation: bad.generation };
            // A listing takes time: a record may have been written after the listing passed its place.
            if !self.keys_under(&layout::records_of(bad.step))?.has(id) {
                lost.push(bad);
            }
        }
        Ok(lost)
    }

    /// The record that counts for a step, if it is there.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub(crate) fn newest_or_damaged(&self, step: Step) -> Result<Option<Result<Current, DamagedRecord>>> {
        self.newest_of(&self.keys_under(&layout::records_of(step))?, step)
    }

    /// [`Self::newest_or_damaged`] of listed records.
    pub(crate) fn newest_of(&self, keys: &Keys, step: Step) -> Result<Option<Result<Current, DamagedRecord>>> {
        let Some(Listed { generation, .. }) = keys.entry(step) else { return Ok(None) };
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

    /// The last snapshot before a step for which `take` gives something; it is called with records that cannot be read, too.
    pub(crate) fn last_before<T>(
        &self,
        step: Step,
        take: impl FnMut(Result<Snapshot, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.first_kept(self.keys()?.all().into_iter().rev().filter(|id| id.step < step), take)
    }

    /// The first one after a step.
    pub(crate) fn first_after<T>(
        &self,
        step: Step,
        take: impl FnMut(Result<Snapshot, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.first_kept(self.keys()?.all().into_iter().filter(|id| id.step > step), take)
    }

    fn first_kept<T>(
        &self,
        records: impl Iterator<Item = RecordId>,
        mut take: impl FnMut(Result<Snapshot, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.first(records.collect(), History::default(), |record| match record {
            Ok(current) if !current.is_kept() => Ok(None),
            record => take(record.map(|c| Snapshot::of(c.record))),
        })
    }

    /// The first of these records for which `take` gives something. Those that are not `known` are read: first one, then several at once.
    fn first<T>(
        &self,
        records: Vec<RecordId>,
        known: History,
        mut take: impl FnMut(Result<Current, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (mut known, mut rest, mut at_once) = (known.steps, &records[..], 1);
        while !rest.is_empty() {
            let (some, others) = rest.split_at(at_once.min(rest.len()));
            known.extend(self.read(some.iter().filter(|id| !known.contains_key(&id.step)).copied().collect())?);
            for id in some {
                if let Some(taken) = take(known.remove(&id.step).expect("it was read"))? {
                    return Ok(Some(taken));
                }
            }
            (rest, at_once) = (others, CONCURRENT);
        }
        Ok(None)
    }

    /// The last snapshot. A later step with an unreadable record is an error: an older snapshot must not pass for the last.
    fn latest(&self) -> Result<Option<Snapshot>> {
        self.latest_of(&self.keys()?)
    }

    /// [`Self::latest`], if its step is `from` or later. Lists no earlier records: a missing one is noticed if one from there on names it.
    pub(crate) fn latest_from(&self, from: Step) -> Result<Option<Snapshot>> {
        let listed = self.remote().wait(self.remote().list_after(&layout::records(), &layout::records_of(from)));
        self.latest_of(&Keys { from: Some(from), ..keys_of(listed?) })
    }

    fn latest_of(&self, keys: &Keys) -> Result<Option<Snapshot>> {
        let recent = self.recent(keys)?;
        let lost = recent.damaged().map(|bad| RecordId { step: bad.step, generation: bad.generation });
        let steps: BTreeMap<Step, RecordId> = keys.all().into_iter().chain(lost).map(|id| (id.step, id)).collect();
        self.first(steps.into_values().rev().collect(), recent, |record| match record {
            Ok(current) => Ok(current.is_kept().then(|| Snapshot::of(current.record))),
            Err(bad) => Err(bad.error("restore another one (--at STEP), ")),
        })
    }

    /// The snapshot with an id.
    pub(crate) fn of_id(&self, id: SaveId) -> Result<Option<Snapshot>> {
        let Listing { snapshots, damaged, .. } = self.list()?;
        match (snapshots.into_iter().find(|s| s.id == id), damaged.first()) {
            // The unreadable record may be its.
            (None, Some(bad)) => Err(bad.error(&format!("no other snapshot has the id {id}; "))),
            (found, _) => Ok(found),
        }
    }

    /// The largest step that has a snapshot, or may have one, because its record cannot be read.
    pub(crate) fn last_step(&self) -> Result<Option<Step>> {
        let keys = self.keys()?;
        let recent = self.recent(&keys)?;
        let damaged = recent.damaged().map(|bad| bad.step).max();
        let later = keys.all().into_iter().rev().filter(|id| Some(id.step) > damaged).collect();
        let last = self.first(later, recent, |record| {
            let is_one = |c: Current| c.is_kept().then_some(c.record.step);
            Ok(record.map_or_else(|bad| Some(bad.step), is_one))
        })?;
        Ok(last.or(damaged))
    }

    /// Reads a record.
    pub(crate) async fn record(&self, RecordId { step, generation }: RecordId) -> Result<Current> {
        let key = layout::record(step, generation);
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
        let ours = self.remote().create(&layout::record(record.step, generation), bytes.into()).await?;
        Ok(ours.then_some(seen))
    }

    fn keys_under(&self, prefix: &Path) -> Result<Keys> {
        Ok(keys_of(self.remote().wait(self.remote().list(prefix))?))
    }
}

/// The keys of records that were listed.
fn keys_of(objects: Vec<Object>) -> Keys {
    let mut found = Keys::default();
    for object in objects {
        let Some((step, generation)) = layout::parse_record(&object.key) else {
            found.foreign.push(object.key.to_string());
            continue;
        };
        let (time, nanos, size) = (object.time, object.nanos, object.size);
        found.steps.entry(step).or_default().push(Listed { generation, time, nanos, size });
    }
    found.steps.values_mut().for_each(|g| g.sort_unstable_by_key(|l| l.generation));
    found.foreign.sort_unstable();
    found
}

/// The records that a new one names: the one it supersedes, those not named yet, and those that the superseded one names, as it will be
/// collected.
pub(crate) fn to_name(heads: &[Seen], superseded: Option<&Current>) -> Vec<Seen> {
    let mut names: Vec<Seen> = superseded.map(Current::seen).into_iter().collect();
    for seen in heads.iter().chain(superseded.iter().flat_map(|c| &c.record.seen)) {
        let of_its_step = superseded.is_some_and(|c| c.record.step == seen.key.step);
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
