//! Records as they are listed and read: which one of a step counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::format::ids::{Hash, Step};
use crate::format::manifest::record::{Record, RecordId, Seen, State};
use crate::objects::remote::CONCURRENT;

/// The number of highest steps whose records are read to find those that a new one names.
pub(crate) const RECENT: usize = 32;

/// The most bytes of records that are read at once, unless a single one has more.
const READ_AT_ONCE: u64 = 1 << 25;

/// A record's entry in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) generation: u32,
    /// When it was written, by the store's clock.
    pub(crate) time: u64,
    pub(crate) nanos: u32,
    pub(crate) size: u64,
}

/// The keys of records.
#[derive(Default)]
pub(crate) struct Keys {
    /// Generations of each step, ascending; at least one.
    pub(crate) steps: BTreeMap<Step, Vec<Listed>>,
    /// Keys that are not of records: foreign files.
    pub(crate) foreign: Vec<String>,
    /// The steps that were listed.
    pub(crate) listed: Vec<RangeInclusive<Step>>,
    /// The highest step that has records and comes after those that were listed.
    pub(crate) rest: Option<Step>,
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) generation: u32,
    pub(crate) record: Record,
    /// Hash of its bytes.
    pub(crate) hash: Hash,
}

/// What others need of a record that was read: whole ones may take much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Brief {
    /// How other records name it.
    pub(crate) seen: Seen,
    pub(crate) is_kept: bool,
    /// The records that it names.
    pub(crate) names: Vec<Seen>,
}

/// The records that were read last, with their entries in the listing: a record does not change.
#[derive(Default)]
pub(crate) struct Known(Mutex<Read>);

#[derive(Default)]
struct Read {
    records: BTreeMap<Step, (Listed, Brief)>,
    /// The last snapshot's.
    last: Option<Current>,
}

impl Current {
    pub(crate) fn id(&self) -> RecordId {
        RecordId { step: self.record.step, generation: self.generation }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.record.state == State::Kept
    }

    pub(crate) fn brief(&self) -> Brief {
        let seen = Seen { key: self.id(), hash: self.hash };
        Brief { seen, is_kept: self.is_kept(), names: self.record.seen.clone() }
    }
}

impl Keys {
    /// The records that count, from the highest step on.
    pub(crate) fn counting(&self) -> Vec<RecordId> {
        let id = |(&step, g): (&Step, &Vec<Listed>)| RecordId { step, generation: highest(g).generation };
        self.steps.iter().rev().map(id).collect()
    }

    pub(crate) fn last(&self) -> Option<Step> {
        self.steps.last_key_value().map(|(&step, _)| step)
    }

    /// The entry of the record that counts for a step.
    pub(crate) fn entry(&self, step: Step) -> Option<Listed> {
        self.steps.get(&step).map(|g| highest(g))
    }

    /// Whether a record, or one that supersedes it, exists: superseded records may have been collected. One that was not
    /// listed counts as there.
    pub(crate) fn has(&self, of: RecordId) -> bool {
        self.listed.iter().all(|steps| !steps.contains(&of.step))
            || self.entry(of.step).is_some_and(|l| l.generation >= of.generation)
    }

    /// Adds what was listed of other steps.
    pub(crate) fn add(&mut self, other: Self) {
        self.steps.extend(other.steps);
        self.foreign.extend(other.foreign);
        self.listed.extend(other.listed);
        self.rest = other.rest;
    }

    /// How many records may be read at once, so that memory is bounded.
    pub(crate) fn at_once(&self) -> usize {
        let largest = self.steps.values().flatten().map(|l| l.size).max().unwrap_or_default();
        (READ_AT_ONCE / largest.max(1)).clamp(1, CONCURRENT as u64) as usize
    }
}

impl Known {
    /// A record that has the entry in the listing that it had when it was read.
    pub(crate) fn get(&self, keys: &Keys, step: Step) -> Option<Brief> {
        let known = self.lock();
        let (listed, brief) = known.records.get(&step)?;
        (keys.entry(step)? == *listed).then(|| brief.clone())
    }

    /// All of a record, if it is the last snapshot's.
    pub(crate) fn whole(&self, of: Seen) -> Option<Current> {
        self.lock().last.as_ref().filter(|last| last.id() == of.key && last.hash == of.hash).cloned()
    }

    /// Forgets all but these. `whole`: all of the last snapshot's record, if that was read.
    pub(crate) fn replace<'r>(&self, keys: &Keys, records: impl Iterator<Item = &'r Brief>, whole: Option<Current>) {
        let entry = |b: &Brief| Some((b.seen.key.step, (keys.entry(b.seen.key.step)?, b.clone())));
        let mut known = self.lock();
        known.records = records.filter_map(entry).collect();
        known.last = whole.or(known.last.take());
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The records that a new one names, of these: those that none of them names.
pub(crate) fn heads<'b>(records: impl Iterator<Item = &'b Brief> + Clone) -> Vec<Seen> {
    let named: BTreeSet<RecordId> = records.clone().flat_map(|b| &b.names).map(|s| s.key).collect();
    records.map(|b| b.seen).filter(|s| !named.contains(&s.key)).collect()
}

fn highest(generations: &[Listed]) -> Listed {
    *generations.last().expect("a listed step has a generation")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_records_are_not_read_at_once() {
        let keys = |sizes: &[u64]| {
            let listed = |&size| Listed { generation: 0, time: 0, nanos: 0, size };
            let steps = (0..).map(|n| Step::new(n).unwrap()).zip(sizes.iter().map(|size| vec![listed(size)])).collect();
            Keys { steps, ..Keys::default() }
        };
        for (sizes, at_once) in
            [(&[][..], 16), (&[0, 500], 16), (&[1 << 21, 7], 16), (&[1 << 24, 7], 2), (&[1 << 30], 1)]
        {
            assert_eq!(keys(sizes).at_once(), at_once, "{sizes:?}");
        }
    }
}
