//! The records of the highest steps: what a save, a follower and a reader of the last snapshot look at. A listing begins with them
//! (`docs/store.md` §1), so their number does not depend on that of all.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::format::ids::Step;
use crate::format::manifest::record::{RecordId, Seen};
use crate::records::history::{DamagedRecord, Looked};
use crate::records::listing::{Brief, Current, Keys, RECENT, heads};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// How many records are listed at once where those of the highest steps are of no use.
const FURTHER: usize = 1000;

/// The records that count of some steps, and those that they name and that are lost.
pub(crate) struct Recent {
    pub(crate) keys: Keys,
    pub(crate) steps: BTreeMap<Step, Result<Brief, DamagedRecord>>,
}

impl Recent {
    pub(crate) fn damaged(&self) -> impl Iterator<Item = &DamagedRecord> {
        self.steps.values().filter_map(|r| r.as_ref().err())
    }

    /// The records that a new one names.
    pub(crate) fn heads(&self) -> Vec<Seen> {
        heads(self.steps.values().flatten())
    }
}

impl Store {
    /// The records of the highest steps, and, for a step that comes before these, of the highest up to that one.
    pub(crate) fn recent(&self, step: Option<Step>) -> Result<Recent> {
        let mut keys = self.highest(None, RECENT)?;
        if let Some(step) = step.filter(|step| keys.rest.is_some_and(|rest| *step <= rest)) {
            keys.add(self.highest(Some(step), RECENT)?);
        }
        self.read_recent(keys)
    }

    /// Reads those that are new.
    fn read_recent(&self, keys: Keys) -> Result<Recent> {
        let (mut steps, mut unread) = (BTreeMap::new(), vec![]);
        for id in keys.counting() {
            match self.known().get(&keys, id.step) {
                Some(brief) => _ = steps.insert(id.step, Ok(brief)),
                None => unread.push(id),
            }
        }
        let mut whole = None;
        let Looked { there, gone } = self.look(&keys, unread, |current| {
            let brief = current.brief();
            if whole.is_none() && current.is_kept() {
                whole = Some(current);
            }
            brief
        })?;
        steps.extend(there);
        let last = steps.values().rev().flatten().find_map(|b| b.is_kept.then_some(b.seen.key));
        self.known().replace(&keys, steps.values().flatten(), whole.filter(|w: &Current| Some(w.id()) == last));
        let names = steps.values().flatten().map(|b| (b.seen.key, &b.names[..]));
        for lost in self.lost(&keys, names, &gone)? {
            steps.insert(lost.step, Err(lost));
        }
        Ok(Recent { keys, steps })
    }

    /// The last snapshot. A later step with an unreadable record is an error: an older snapshot must not pass for the last.
    pub(crate) fn latest(&self) -> Result<Option<Snapshot>> {
        let recent = self.recent(None)?;
        match (self.latest_of(&recent)?, recent.keys.rest) {
            (None, Some(rest)) => self.first_kept(Some(rest), |read| read.map(Some).map_err(|bad| not_last(&bad))),
            (found, _) => Ok(found),
        }
    }

    /// [`Self::latest`], if its step is `from` or later, and one of the highest. Lists no earlier records.
    pub(crate) fn latest_from(&self, from: Step) -> Result<Option<Snapshot>> {
        let keys = self.keys_until(None, |keys, next| next < from || keys.steps.len() == RECENT)?;
        self.latest_of(&self.read_recent(keys)?)
    }

    fn latest_of(&self, recent: &Recent) -> Result<Option<Snapshot>> {
        for record in recent.steps.values().rev() {
            let brief = record.as_ref().map_err(not_last)?;
            if brief.is_kept {
                if let Some(current) = self.known().whole(brief.seen) {
                    return Ok(Some(Snapshot::of(current.record)));
                }
                let read = self.remote().wait(self.record(brief.seen.key));
                let current = read.or_else(|e| Err(not_last(&DamagedRecord::of(brief.seen.key, e)?)))?;
                return Ok(Some(Snapshot::of(current.record)));
            }
        }
        Ok(None)
    }

    /// The largest step that has a snapshot, or may have one, because its record cannot be read.
    pub(crate) fn last_step(&self) -> Result<Option<Step>> {
        let recent = self.recent(None)?;
        let is_one = |(&step, r): (&Step, &Result<Brief, _>)| r.as_ref().map_or(true, |b| b.is_kept).then_some(step);
        match (recent.steps.iter().rev().find_map(is_one), recent.keys.rest) {
            (None, Some(rest)) => {
                self.first_kept(Some(rest), |read| Ok(Some(read.map_or_else(|bad| bad.step, |s| s.step))))
            }
            (found, _) => Ok(found),
        }
    }

    /// The last snapshot before a step for which `take` gives something; it is called with records that cannot be read, too.
    pub(crate) fn last_before<T>(
        &self,
        step: Step,
        take: impl FnMut(Result<Snapshot, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        match step.get().checked_sub(1) {
            None => Ok(None),
            Some(before) => self.first_kept(Some(Step::new(before)?), take),
        }
    }

    /// The first one after a step: lists all records.
    pub(crate) fn first_after<T>(
        &self,
        step: Step,
        take: impl FnMut(Result<Snapshot, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let keys = self.keys_until(None, |_, next| next <= step)?;
        let mut records = keys.counting();
        records.reverse();
        self.first(&keys, &records, take)
    }

    /// The first snapshot, from a step on downwards, for which `take` gives something.
    fn first_kept<T>(
        &self,
        mut from: Option<Step>,
        mut take: impl FnMut(Result<Snapshot, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut count = RECENT;
        while from.is_some() {
            let keys = self.highest(from, count)?;
            if let Some(taken) = self.first(&keys, &keys.counting(), &mut take)? {
                return Ok(Some(taken));
            }
            (from, count) = (keys.rest, FURTHER);
        }
        Ok(None)
    }

    /// The first of these records that are snapshots for which `take` gives something. Reads first one, then several at once.
    fn first<T>(
        &self,
        keys: &Keys,
        mut records: &[RecordId],
        mut take: impl FnMut(Result<Snapshot, DamagedRecord>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut at_once = 1;
        while !records.is_empty() {
            let (some, others) = records.split_at(at_once.min(records.len()));
            let Looked { there, gone } = self.look(keys, some.to_vec(), |current| current)?;
            let mut read: BTreeMap<Step, Result<Current, DamagedRecord>> = there.into_iter().collect();
            read.extend(self.lost(keys, [], &gone)?.into_iter().map(|lost| (lost.step, Err(lost))));
            for record in some.iter().filter_map(|id| read.remove(&id.step)) {
                let taken = match record {
                    Ok(current) if !current.is_kept() => None,
                    record => take(record.map(|c| Snapshot::of(c.record)))?,
                };
                if taken.is_some() {
                    return Ok(taken);
                }
            }
            (records, at_once) = (others, keys.at_once());
        }
        Ok(None)
    }
}

/// The error for a record that may be the last snapshot's.
fn not_last(bad: &DamagedRecord) -> crate::error::Error {
    bad.error("restore another one (--at STEP), ")
}
