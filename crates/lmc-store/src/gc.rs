//! Garbage collection: deletes objects that no snapshot needs (`docs/store.md` §8).

use std::collections::{BTreeSet, HashSet};

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::catalog::{Budget, Catalog};
use crate::error::{Error, ErrorKind, Result};
use crate::history::DamagedRecord;
use crate::ids::ShardId;
use crate::layout;
use crate::leftovers::{Leftover, Orphan};
use crate::manifest::record::RecordId;
use crate::reach::{ObjectId, Reach};
use crate::records::{Current, Listed};
use crate::remote::{CONCURRENT, Object, Remote};
use crate::store::Store;

/// The objects that no snapshot needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Garbage {
    /// When they were determined, by the store's clock.
    pub time: u64,
    /// The objects that may be deleted, by key.
    pub orphans: Vec<Orphan>,
    /// Objects that may not be deleted yet, by key: a save under way may have written them, or a reader may still use
    /// the snapshot that needed them.
    pub young: Vec<Orphan>,
    /// Why incomplete uploads could not be listed, if they could not: the server may lack that request, or deny it.
    pub unseen: Option<String>,
}

/// How to collect.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct GcOptions {
    /// Delete nothing.
    pub dry_run: bool,
    /// Collect in a store that has shards, but not one record. Without this it is refused: the records may be lost, and then all data
    /// would be deleted.
    pub without_records: bool,
}

/// The objects to delete, in the order of deletion.
#[derive(Default)]
struct Found {
    records: Vec<Object>,
    shards: Vec<Object>,
    data: Vec<Object>,
    probes: Vec<Object>,
    tags: Vec<Object>,
    leftovers: Vec<Leftover>,
}

/// Shards and data objects.
#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    shards: HashSet<ShardId>,
    objects: BTreeSet<ObjectId>,
}

/// The objects in use.
#[derive(Default)]
struct Needed {
    /// Needed by snapshots.
    now: Used,
    /// Needed by snapshots, or by those pruned or re-based within the grace period.
    still: Used,
    /// Records superseded within the grace period.
    young: Vec<Object>,
    /// Records superseded earlier.
    old: Vec<Object>,
    /// Whether there is no record at all.
    without_records: bool,
}

impl Store {
    /// Deletes the objects that no snapshot needs, or has needed within the last grace period by the store's clock.
    /// Safe while others save, read, prune and collect.
    ///
    /// # Errors
    /// `Damaged` or `Unsupported` when a record or shard cannot be read, `Damaged` when there are shards to delete, but not one record: then
    /// nothing is deleted. `Store` or `Io` when requests fail; the next collection finds the rest.
    pub fn gc(&self, o: &GcOptions) -> Result<Garbage> {
        let (found, garbage) = self.find_garbage(o.without_records)?;
        if o.dry_run {
            return Ok(garbage);
        }
        let (mut left, mut first) = (0, None);
        // Referrers before what they refer to, although no reader uses what is deleted here.
        for objects in [found.records, found.shards, found.data, found.probes, found.tags] {
            let keys = objects.into_iter().map(|o| o.key).collect();
            if let Some((n, e)) = self.remote().wait(self.remote().delete_all(keys)) {
                left += n;
                first.get_or_insert(e);
            }
        }
        if let Some(place) = self.leftovers() {
            for leftover in &found.leftovers {
                if let Err(e) = self.remote().wait(place.remove(leftover)) {
                    left += 1;
                    first.get_or_insert(e);
                }
            }
        }
        match first {
            None => Ok(garbage),
            Some(e) => {
                Err(e
                    .and(&format!("; {left} of {} objects could not be deleted: collect again", garbage.orphans.len())))
            }
        }
    }

    /// Correctness depends on the order of requests: the time, then the objects, then the records that may need them.
    fn find_garbage(&self, without_records: bool) -> Result<(Found, Garbage)> {
        let list = |prefix| self.remote().wait(self.remote().list(&prefix));
        let time = self.begin()?;
        let is_old = |written: u64| written.saturating_add(self.grace_seconds()) < time;
        let (shards, data, probes) = (list(layout::shards())?, list(layout::all_data())?, list(layout::probes())?);
        let needed = self.needed(time)?;
        let all_lost = needed.without_records && !without_records;
        let (mut found, mut young) = (Found { records: needed.old, ..Found::default() }, needed.young);
        let mut judge = |object: Object, now: bool, still: bool, old: &mut Vec<Object>| match object {
            _ if now => {}
            _ if still || !is_old(object.time) => young.push(object),
            _ => old.push(object),
        };
        // Unknown keys are not ours, and are left alone.
        for object in shards {
            if let Some(id) = layout::parse_shard(&object.key) {
                judge(object, needed.now.shards.contains(&id), needed.still.shards.contains(&id), &mut found.shards);
            }
        }
        // A save writes its shard right before the record. Data alone are of saves that did not get that far.
        if all_lost && !found.shards.is_empty() {
            return Err(Error::damaged(format!(
                "the store has {} shards, and not one record: either the records are lost, or no save was ever finished; nothing was \
                 deleted; put {} back from a copy of the store, or, if no snapshot was saved in it, collect with --without-records \
                 (without_records)",
                found.shards.len(),
                layout::records()
            )));
        }
        for object in data {
            if let Some(id) = layout::parse_data(&object.key) {
                let (now, still) = (&needed.now.objects, &needed.still.objects);
                judge(object, now.contains(&id), still.contains(&id), &mut found.data);
            }
        }
        found.probes = probes.into_iter().filter(|p| layout::parse_probe(&p.key).is_some() && is_old(p.time)).collect();
        let (tags, young_tags) = self.old_tags(time)?;
        found.tags = tags;
        young.extend(young_tags);
        let (leftovers, unseen) = match self.leftovers().map_or(Ok(vec![]), |place| self.remote().wait(place.list())) {
            Ok(leftovers) => (leftovers, None),
            Err(e) if e.kind() == ErrorKind::Store => (vec![], Some(e.to_string())),
            Err(e) => return Err(e),
        };
        let (old, fresh): (Vec<_>, Vec<_>) = leftovers.into_iter().partition(|l| is_old(l.orphan().time));
        found.leftovers = old;
        let fresh = fresh.iter().filter(|l| !l.is_directory()).map(Leftover::orphan);
        let young = orphans(young.iter().map(orphan).chain(fresh));
        let garbage = Garbage { time, orphans: found.orphans(), young, unseen };
        Ok((found, garbage))
    }

    /// The objects that are needed at a time.
    fn needed(&self, time: u64) -> Result<Needed> {
        let mut needed = Needed::default();
        // Each record, and whether it counts.
        let mut records = vec![];
        let keys = self.keys()?;
        needed.without_records = keys.steps.is_empty();
        for (&step, generations) in &keys.steps {
            for (i, &Listed { generation, time: written, nanos, size }) in generations.iter().enumerate() {
                let object = Object { key: layout::record(step, generation), size, time: written, nanos };
                let next = generations.get(i + 1);
                match next {
                    Some(next) if next.time.saturating_add(self.grace_seconds()) < time => {
                        needed.old.push(object);
                        continue;
                    }
                    Some(_) => needed.young.push(object),
                    None => {}
                }
                records.push((RecordId { step, generation }, next.is_none()));
            }
        }
        let read = stream::iter(records)
            .map(async |(id, counts)| match self.record(id).await {
                Ok(current) => Ok(Some((counts, current))),
                // Another collector began later.
                Err(e) if !counts && e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(refused(&DamagedRecord::of(id, e)?, counts)),
            })
            .buffered(CONCURRENT);
        let records: Vec<(bool, Current)> = self.remote().wait(read.try_filter_map(async |r| Ok(r)).try_collect())?;
        if let Some(lost) = self.lost(&keys, records.iter().map(|(_, current)| current))?.first() {
            return Err(refused(lost, true));
        }
        let records: Vec<(bool, Vec<ShardId>)> =
            records.into_iter().map(|(counts, c)| (counts, c.record.shards)).collect();
        needed.add(self.remote(), &records, Budget::default()).map_err(|e| {
            // Those that count may need nothing of what is lost.
            let counting: Vec<_> = records.into_iter().filter(|(counts, _)| *counts).collect();
            let counts = Needed::default().add(self.remote(), &counting, Budget::default()).is_err();
            nothing_deleted(e, counts)
        })?;
        Ok(needed)
    }
}

impl Needed {
    /// Adds the objects that records need; a flag says whether a record counts.
    fn add(&mut self, remote: &Remote, records: &[(bool, Vec<ShardId>)], budget: Budget) -> Result<()> {
        Catalog::default().load_in_parts(remote, records, &|(_, shards)| shards, budget, &mut |catalog, some| {
            let (catalog, mut now, mut still) = (catalog?, Reach::default(), Reach::default());
            for (counts, shards) in some {
                still.add(&catalog, shards)?;
                if *counts {
                    now.add(&catalog, shards)?;
                }
            }
            for (all, some) in [(&mut self.now, now), (&mut self.still, still)] {
                all.shards.extend(some.shards);
                all.objects.extend(some.objects.into_keys());
            }
            Ok(())
        })
    }
}

/// The error that explains why nothing is collected while a record cannot be read.
fn refused(bad: &DamagedRecord, counts: bool) -> Error {
    const NOTHING: &str = "what its snapshot needs is unknown, and nothing was deleted; ";
    match counts {
        true => bad.error(NOTHING),
        // Saves that began before may still need its snapshot's data.
        false => Error::damaged(format!(
            "step {}: {}; {NOTHING}it was superseded: collect when the grace period has passed since",
            bad.step, bad.message
        )),
    }
}

/// The error of a shard that a record names; whether one of them `counts`.
fn nothing_deleted(e: Error, counts: bool) -> Error {
    let what = match counts {
        true => {
            "put it back from a copy of the store, or, if there is none, end the snapshots that need it: lmc snapshot verify names them"
        }
        false => "only superseded records name it: collect when the grace period has passed since",
    };
    match e.kind() {
        ErrorKind::Store => e,
        kind => Error::new(kind, format!("{e}; what its snapshot needs is unknown, and nothing was deleted; {what}")),
    }
}

impl Found {
    fn orphans(&self) -> Vec<Orphan> {
        let objects =
            [&self.records, &self.shards, &self.data, &self.probes, &self.tags].into_iter().flatten().map(orphan);
        orphans(objects.chain(self.leftovers.iter().map(Leftover::orphan)))
    }
}

fn orphan(o: &Object) -> Orphan {
    Orphan { key: o.key.to_string(), size: o.size, time: o.time }
}

fn orphans(found: impl Iterator<Item = Orphan>) -> Vec<Orphan> {
    let mut found: Vec<Orphan> = found.collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::{Input, SaveOptions, Snapshot, Step, StoreOptions, catalog};

    /// The lengths of all documents that a snapshot needs.
    fn documents(remote: &Remote, s: &Snapshot) -> u64 {
        let mut reach = Reach::default();
        reach.add(&remote.wait(Catalog::load(remote, &s.shards)).unwrap(), &s.shards).unwrap();
        reach.shards.iter().map(|&id| remote.wait(catalog::read(remote, id)).unwrap().2).sum()
    }

    #[test]
    fn what_many_snapshots_need_is_found_within_the_budget_of_one() {
        let store = Store::create_on(Arc::new(InMemory::new()), StoreOptions::default()).unwrap();
        let remote = store.remote();
        let mut records = vec![];
        let (mut largest, mut all) = (0, 0);
        let mut file = vec![0u8; 1 << 20];
        for n in 0..12u64 {
            // Some stand alone, and some need the shards before.
            (0..file.len()).step_by(4096).for_each(|i| file[i] = file[i].wrapping_add(1 + n as u8));
            let o = SaveOptions { anchor_every: 4, ..SaveOptions::default() };
            let saved =
                store.save(&[Input::new("x", &file)], Some(Step::new(n).unwrap()), Default::default(), &o).unwrap();
            let size = documents(remote, &saved);
            (largest, all) = (largest.max(size), all + size);
            records.push((n % 3 > 0, saved.shards));
        }
        assert!(largest * 4 < all, "{largest} {all}");
        let needed = |bytes, segments| {
            let mut needed = Needed::default();
            needed.add(remote, &records, Budget { bytes, segments }).map(|()| (needed.now, needed.still))
        };
        // Several snapshots may have a part of it.
        let whole = needed(16 * all, 1600).unwrap();
        assert!(whole.0.objects.len() < whole.1.objects.len() && whole.1.shards.len() == 12, "{whole:?}");
        assert_eq!(needed(largest, 100).unwrap(), whole);
        assert_eq!(needed(16 * all, 2).unwrap(), whole);
        // Less than a single one needs.
        for (bytes, segments) in [(largest - 1, 100), (all, 0)] {
            assert_eq!(needed(bytes, segments).unwrap_err().kind(), ErrorKind::Limit);
        }
    }
}
