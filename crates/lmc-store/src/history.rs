//! The generations of a step: which of its records counts, and how one is superseded (`docs/store.md` §3).

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;

use crate::error::{Error, Result};
use crate::ids::Step;
use crate::layout;
use crate::manifest::Document;
use crate::manifest::record::{Record, State};
use crate::remote::CONCURRENT;
use crate::store::{Snapshot, Store};

/// A record as it is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) generation: u32,
    /// When it was written, by the store's clock.
    pub(crate) time: u64,
    pub(crate) size: u64,
}

impl Store {
    /// All records of every step, lowest generations first.
    pub(crate) fn generations(&self) -> Result<BTreeMap<Step, Vec<Listed>>> {
        self.generations_under(&layout::records())
    }

    /// The records that count, by step, and their generations.
    fn records(&self) -> Result<Vec<(u32, Record)>> {
        let highest = self.generations()?.into_iter().map(|(step, g)| (step, highest(&g)));
        let read = stream::iter(highest)
            .map(async |(step, generation)| Ok((generation, self.record(step, generation).await?)))
            .buffered(CONCURRENT);
        self.remote().wait(read.try_collect())
    }

    /// The record of a step that counts, and its generation.
    pub(crate) fn newest(&self, step: Step) -> Result<Option<(u32, Record)>> {
        let Some(generations) = self.generations_under(&layout::records_of(step))?.remove(&step) else {
            return Ok(None);
        };
        let generation = highest(&generations);
        Ok(Some((generation, self.remote().wait(self.record(step, generation))?)))
    }

    /// The snapshots, by step, and the generations of their records.
    pub(crate) fn kept_generations(&self) -> Result<Vec<(u32, Record)>> {
        Ok(self.records()?.into_iter().filter(|(_, r)| r.state == State::Kept).collect())
    }

    pub(crate) fn kept(&self, step: Step) -> Result<Option<Snapshot>> {
        Ok(self.newest(step)?.map(|(_, r)| r).filter(|r| r.state == State::Kept).map(Snapshot::of))
    }

    /// The last snapshot, or the last one before a step.
    pub(crate) fn last_before(&self, step: Option<Step>) -> Result<Option<Snapshot>> {
        for (s, g) in self.generations()?.into_iter().rev().filter(|&(s, _)| step.is_none_or(|step| s < step)) {
            let record = self.remote().wait(self.record(s, highest(&g)))?;
            if record.state == State::Kept {
                return Ok(Some(Snapshot::of(record)));
            }
        }
        Ok(None)
    }

    /// The largest step that has or had a snapshot.
    pub(crate) fn last_step(&self) -> Result<Option<Step>> {
        Ok(self.generations()?.into_keys().next_back())
    }

    pub(crate) async fn record(&self, step: Step, generation: u32) -> Result<Record> {
        let key = layout::record(step, generation);
        let record = Record::parse(&self.remote().get(&key, Record::MAX).await?).map_err(|e| e.at(&key))?;
        if record.step != step {
            return Err(Error::damaged(format!("{key}: is the record of step {}", record.step)));
        }
        Ok(record)
    }

    /// Makes a record the one that counts, if nobody has created that generation before; whether it is ours.
    pub(crate) async fn create_record(&self, generation: u32, record: &Record) -> Result<bool> {
        self.remote().create(&layout::record(record.step, generation), record.to_bytes()?.into()).await
    }

    fn generations_under(&self, prefix: &Path) -> Result<BTreeMap<Step, Vec<Listed>>> {
        let mut found: BTreeMap<Step, Vec<Listed>> = BTreeMap::new();
        for object in self.remote().wait(self.remote().list(prefix))? {
            let Some((step, generation)) = layout::parse_record(&object.key) else {
                let key = object.key;
                return Err(Error::damaged(format!("{key}: is no record of a snapshot; move it out of the store")));
            };
            found.entry(step).or_default().push(Listed { generation, time: object.time, size: object.size });
        }
        found.values_mut().for_each(|g| g.sort_unstable_by_key(|l| l.generation));
        Ok(found)
    }
}

fn highest(generations: &[Listed]) -> u32 {
    generations.last().expect("a step that is listed has one").generation
}

/// The generation that supersedes another one.
pub(crate) fn next_generation(step: Step, generation: u32) -> Result<u32> {
    generation.checked_add(1).ok_or_else(|| Error::limit(format!("step {step} was superseded too often")))
}
