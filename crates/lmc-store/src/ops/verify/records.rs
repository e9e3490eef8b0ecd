//! Verification of a store's records: all are present, and unchanged.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};

use super::{Problem, Verified};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Step;
use crate::format::keys;
use crate::format::manifest::record::RecordId;
use crate::records::floors::LastFloor;
use crate::records::history::DamagedRecord;
use crate::records::listing::{Current, Keys};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;
use crate::records::tags::remedy;

/// Options of verifying a store.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Whether to read and decode everything.
    pub deep: bool,
    /// Threads to decode with; 0 for one per core.
    pub threads: usize,
    /// Steps that must have a snapshot. The loss of the most recent record cannot be detected otherwise: no other record names it.
    pub expect: Vec<Step>,
}

/// All records of a store.
#[derive(Default)]
struct Records {
    read: BTreeMap<RecordId, Current>,
    /// Records that count and are unreadable or missing.
    damaged: BTreeMap<Step, DamagedRecord>,
    /// Unreadable records that were superseded.
    superseded: Vec<DamagedRecord>,
}

impl Store {
    /// Verifies a store: all records that others name are present and unchanged; then all snapshots, as [`Self::verify`] does.
    ///
    /// # Errors
    /// `Store` when requests fail; `Damaged` when the store has shards, but not one record. Other problems are not errors but part of the
    /// result.
    pub fn verify_all(&self, o: &VerifyOptions) -> Result<Verified> {
        let keys = self.keys()?;
        let records = self.read_all(&keys)?;
        let snapshots = records.snapshots(&keys);
        let mut found = self.verify(&snapshots, o.deep, o.threads)?;
        let lost = |step, message| Problem { step, lost: vec![], intact: false, message, remedy: None };
        let damaged = |bad: &DamagedRecord| Problem { remedy: bad.remedy(), ..lost(bad.step, bad.message.clone()) };
        found.problems.extend(records.damaged.values().map(damaged));
        found.problems.extend(records.replaced());
        if let Some(LastFloor { step, kept: Err(e) }) = self.last_floor()? {
            let message = format!(
                "{e}; whether records up to this step are lost is unknown until the next collection replaces it"
            );
            found.problems.push(Problem { intact: true, ..lost(step, message) });
        }
        for &step in &o.expect {
            if snapshots.iter().all(|s| s.step != step) && !records.damaged.contains_key(&step) {
                let message = match keys.steps.contains_key(&step) {
                    true => "is expected, but was pruned",
                    false => "is expected, but the store has no record of it",
                };
                found.problems.push(lost(step, message.to_owned()));
            }
        }
        let tags = self.tags()?;
        for tag in &tags.tags {
            // What is wrong with a snapshot that is there is a problem of it.
            let is_there = snapshots.iter().any(|s| (s.step, s.id) == (tag.step, tag.id));
            if !is_there && !records.damaged.contains_key(&tag.step) {
                let (name, step, id) = (&tag.name, tag.step, tag.id);
                let gone = format!(
                    "the tag {name} names the snapshot {id} of step {step}, which is not there; {}",
                    remedy(name)
                );
                found.tags.push(gone);
            }
        }
        found.tags.extend(tags.damaged.iter().map(|bad| bad.error().to_string()));
        let superseded = |bad: &DamagedRecord| format!("{}; it was superseded, and nothing is lost", bad.message);
        found.notes.extend(records.superseded.iter().map(superseded));
        let foreign =
            |key: &String| format!("{key}: is not a record of a snapshot, and is ignored; move it out of the store");
        found.notes.extend(keys.foreign.iter().map(foreign));
        if keys.steps.is_empty() && found.problems.is_empty() {
            self.check_recorded()?;
        }
        found.problems.sort_by_key(|p| p.step);
        Ok(found)
    }

    /// Fails if there are shards, although there is no record.
    fn check_recorded(&self) -> Result<()> {
        let list = |prefix| self.remote().wait(self.remote().list(&prefix));
        let shards = list(keys::shards())?;
        if shards.iter().all(|o| keys::parse_shard(&o.key).is_none()) {
            return Ok(());
        }
        // A shard is written before its record, and these were listed after the records.
        if !self.keys()?.steps.is_empty() {
            return Ok(());
        }
        let data = list(keys::all_data())?;
        let bytes = shards.iter().chain(&data).map(|o| o.size).fold(0, u64::saturating_add);
        Err(Error::damaged(format!(
            "{} objects of {bytes} bytes belong to no snapshot: the store has not one record; unless its first snapshot is being \
             saved, put all of {} back from a copy of the store",
            shards.len() + data.len(),
            keys::records()
        )))
    }

    /// Reads all generations of all steps.
    fn read_all(&self, keys: &Keys) -> Result<Records> {
        let generations = keys.steps.iter().flat_map(|(&step, listed)| {
            let last = listed.len() - 1;
            listed.iter().enumerate().map(move |(i, l)| (RecordId { step, generation: l.generation }, i == last))
        });
        let mut records = Records::default();
        let mut read = stream::iter(generations)
            .map(async |(id, counts)| (id, counts, self.record(id).await))
            .buffer_unordered(keys.at_once());
        let mut gone = vec![];
        self.remote().wait(async {
            while let Some((id, counts, done)) = read.next().await {
                match done {
                    Ok(current) => _ = records.read.insert(id, current),
                    Err(e) if e.kind() == ErrorKind::NotFound => gone.extend(counts.then_some(id)),
                    Err(e) if counts => _ = records.damaged.insert(id.step, DamagedRecord::of(id, e)?),
                    Err(e) => records.superseded.push(DamagedRecord::of(id, e)?),
                }
            }
            Ok::<_, Error>(())
        })?;
        drop(read);
        let names = records.read.values().map(|c| (c.id(), &c.record.seen[..]));
        for lost in self.lost(keys, names, &gone)? {
            records.damaged.insert(lost.step, lost);
        }
        Ok(records)
    }
}

impl Records {
    /// The existing snapshots.
    fn snapshots(&self, keys: &Keys) -> Vec<Snapshot> {
        let counts = keys.steps.iter().filter_map(|(&step, listed)| {
            let generation = listed.last()?.generation;
            self.read.get(&RecordId { step, generation })
        });
        let there = counts.filter(|c| c.is_kept() && !self.damaged.contains_key(&c.record.step));
        there.map(|c| Snapshot::of(c.record.clone())).collect()
    }

    /// Records that differ from the ones seen by later writers.
    fn replaced(&self) -> Vec<Problem> {
        let mut found: BTreeMap<RecordId, Problem> = BTreeMap::new();
        for by in self.read.values() {
            for seen in &by.record.seen {
                if self.read.get(&seen.key).is_some_and(|there| there.hash != seen.hash) {
                    let message = format!("{}: differs from the record that {} names", seen.key, by.id());
                    let remedy = Some("put the record back from a copy of the store".to_owned());
                    let problem = Problem { step: seen.key.step, lost: vec![], intact: false, message, remedy };
                    found.entry(seen.key).or_insert(problem);
                }
            }
        }
        found.into_values().collect()
    }
}
