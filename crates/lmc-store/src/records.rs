//! Records as they are listed and read: which one of a step counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ids::{Hash, Step};
use crate::manifest::record::{Record, RecordId, Seen, State};

/// The number of records, most recent first, that are read to find those that a new record names.
const RECENT: usize = 32;

/// A record's entry in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) generation: u32,
    /// When it was written, by the store's clock.
    pub(crate) time: u64,
    pub(crate) nanos: u32,
    pub(crate) size: u64,
}

/// The keys of all records.
#[derive(Default)]
pub(crate) struct Keys {
    /// Generations of each step, ascending; at least one.
    pub(crate) steps: BTreeMap<Step, Vec<Listed>>,
    /// Keys that are not of records: foreign files.
    pub(crate) foreign: Vec<String>,
    /// The first step that was listed, if not all were.
    pub(crate) from: Option<Step>,
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) generation: u32,
    pub(crate) record: Record,
    /// Hash of its bytes.
    pub(crate) hash: Hash,
}

/// The recent records that were read last, with their entries in the listing: a record does not change.
#[derive(Default)]
pub(crate) struct Known(Mutex<BTreeMap<Step, (Listed, Current)>>);

impl Current {
    pub(crate) fn id(&self) -> RecordId {
        RecordId { step: self.record.step, generation: self.generation }
    }

    /// How other records name it.
    pub(crate) fn seen(&self) -> Seen {
        Seen { key: self.id(), hash: self.hash }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.record.state == State::Kept
    }
}

impl Keys {
    /// The most recently written of the records that count.
    pub(crate) fn recent(&self) -> Vec<RecordId> {
        let mut highest: Vec<(Listed, Step)> = self.steps.iter().map(|(&step, g)| (highest(g), step)).collect();
        highest.sort_unstable_by_key(|(l, step)| std::cmp::Reverse((l.time, l.nanos, *step)));
        // Clocks may be wrong, and the last step matters most: it is always among them.
        let last = self.last();
        let recent = highest.into_iter().take(RECENT).map(|(l, step)| RecordId { step, generation: l.generation });
        recent.chain(last).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn all(&self) -> Vec<RecordId> {
        self.steps.iter().map(|(&step, g)| RecordId { step, generation: highest(g).generation }).collect()
    }

    pub(crate) fn last(&self) -> Option<RecordId> {
        let (&step, generations) = self.steps.last_key_value()?;
        Some(RecordId { step, generation: highest(generations).generation })
    }

    /// The entry of the record that counts for a step.
    pub(crate) fn entry(&self, step: Step) -> Option<Listed> {
        self.steps.get(&step).map(|g| highest(g))
    }

    /// Whether a record, or one that supersedes it, exists: superseded records may have been collected. One that was not
    /// listed counts as there.
    pub(crate) fn has(&self, of: RecordId) -> bool {
        self.from.is_some_and(|from| of.step < from)
            || self.entry(of.step).is_some_and(|l| l.generation >= of.generation)
    }
}

impl Known {
    /// A record that has the entry in the listing that it had when it was read.
    pub(crate) fn get(&self, keys: &Keys, step: Step) -> Option<Current> {
        let known = self.lock();
        let (listed, current) = known.get(&step)?;
        (keys.entry(step)? == *listed).then(|| current.clone())
    }

    /// Forgets all but these, of the steps that were listed.
    pub(crate) fn replace<'r>(&self, keys: &Keys, records: impl Iterator<Item = &'r Current>) {
        let entry = |c: &Current| Some((c.record.step, (keys.entry(c.record.step)?, c.clone())));
        let mut known = self.lock();
        known.retain(|&step, _| keys.from.is_some_and(|from| step < from));
        known.extend(records.filter_map(entry));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Step, (Listed, Current)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn highest(generations: &[Listed]) -> Listed {
    *generations.last().expect("a listed step has a generation")
}
