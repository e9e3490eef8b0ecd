//! Garbage collection: deletes objects that no snapshot needs (`docs/store.md` §8).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::stream::{self, StreamExt};

use crate::chunks::catalog::{Budget, Catalog};
use crate::chunks::reach::{ObjectId, Reach};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{ShardId, Step};
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::floor::Floor;
use crate::format::manifest::record::RecordId;
use crate::objects::leftovers::{Leftover, Orphan};
use crate::objects::remote::{Object, Remote};
use crate::records::floors::{LastFloor, ListedFloor};
use crate::records::history::{DamagedRecord, next_generation};
use crate::records::listing::{Keys, Listed};
use crate::records::store::Store;

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
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GcOptions {
    /// Delete nothing.
    pub dry_run: bool,
    /// Collect in a store that has shards, but not one record. Without this it is refused: the records may be lost, and then all data
    /// would be deleted.
    pub without_records: bool,
    /// A run that resumes from an earlier snapshot may go back by so many: no floor is written at the highest steps, and their pruned
    /// records stay. By default 1,024.
    pub rewindable: usize,
}

impl Default for GcOptions {
    fn default() -> Self {
        Self { dry_run: false, without_records: false, rewindable: 1024 }
    }
}

/// The objects to delete, in the order of deletion, and the floor to write before, with its generation.
#[derive(Default)]
struct Found {
    floor: Option<(u32, Floor)>,
    records: Vec<Object>,
    /// Records of pruned snapshots whose steps are not saved again: once the other records of their steps are deleted.
    pruned: Vec<Object>,
    floors: Vec<Object>,
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
    /// Records of snapshots that were pruned earlier, at or below the floor.
    pruned: Vec<Object>,
    /// The floor to write.
    floor: Option<(u32, Floor)>,
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
        let (found, garbage) = self.find_garbage(o)?;
        if o.dry_run {
            return Ok(garbage);
        }
        if let Some((generation, floor)) = &found.floor {
            self.write_floor(*generation, floor, garbage.time)?;
        }
        let (mut left, mut left_out, mut first) = (0, 0, None);
        let mut delete = |objects: Vec<Object>| {
            let keys = objects.into_iter().map(|o| o.key).collect();
            let failed = self.remote().wait(self.remote().delete_all(keys));
            let done = failed.is_none();
            if let Some((n, e)) = failed {
                left += n;
                first.get_or_insert(e);
            }
            done
        };
        // A kept generation must not become the highest: the pruned one goes last.
        match delete(found.records) {
            true => _ = delete(found.pruned),
            false => left_out = found.pruned.len(),
        }
        // Referrers before what they refer to, although no reader uses what is deleted here.
        for objects in [found.floors, found.shards, found.data, found.probes, found.tags] {
            delete(objects);
        }
        left += left_out;
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

    /// Writes a floor, unless that takes too long: what it lists was kept a moment ago, and cannot be deleted before.
    fn write_floor(&self, generation: u32, floor: &Floor, began: u64) -> Result<()> {
        match self.time_to_commit(began) {
            Err(e) if e.kind() == ErrorKind::Expired => return Ok(()),
            time => time?,
        };
        let bytes = match floor.to_bytes() {
            // So many snapshots are kept that their steps have no place in it.
            Err(e) if e.kind() == ErrorKind::Limit => return Ok(()),
            bytes => bytes?,
        };
        // If another collector was faster, its floor counts.
        self.remote().wait(self.remote().create(&keys::floor(floor.step, generation), bytes.into())).map(|_| ())
    }

    /// Correctness depends on the order of requests: the time, then the floors, then the objects, then the records that may need them.
    fn find_garbage(&self, o: &GcOptions) -> Result<(Found, Garbage)> {
        let list = |prefix| self.remote().wait(self.remote().list(&prefix));
        let time = self.begin()?;
        let is_old = |written: u64| written.saturating_add(self.grace_seconds()) < time;
        let mut floors = self.floors()?;
        let (shards, data, probes) = (list(keys::shards())?, list(keys::all_data())?, list(keys::probes())?);
        let needed = self.needed(time, floors.last(), o.rewindable)?;
        let all_lost = needed.without_records && !o.without_records;
        let (mut found, mut young) = (Found { records: needed.old, ..Found::default() }, needed.young);
        (found.pruned, found.floor) = (needed.pruned, needed.floor);
        // No save began before the last floor was written, and sees only the others.
        if floors.pop().is_some_and(|last| is_old(last.object.time)) {
            found.floors = floors.into_iter().map(|floor| floor.object).collect();
        }
        let mut judge = |object: Object, now: bool, still: bool, old: &mut Vec<Object>| match object {
            _ if now => {}
            _ if still || !is_old(object.time) => young.push(object),
            _ => old.push(object),
        };
        // Unknown keys are not ours, and are left alone.
        for object in shards {
            if let Some(id) = keys::parse_shard(&object.key) {
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
                keys::records()
            )));
        }
        for object in data {
            if let Some(id) = keys::parse_data(&object.key) {
                let (now, still) = (&needed.now.objects, &needed.still.objects);
                judge(object, now.contains(&id), still.contains(&id), &mut found.data);
            }
        }
        found.probes = probes.into_iter().filter(|p| keys::parse_probe(&p.key).is_some() && is_old(p.time)).collect();
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

    /// The objects that are needed at a time; `floor` is the last one.
    fn needed(&self, time: u64, floor: Option<&ListedFloor>, rewindable: usize) -> Result<Needed> {
        let is_old = |written: u64| written.saturating_add(self.grace_seconds()) < time;
        let mut needed = Needed::default();
        // Each record, and whether it counts.
        let mut records = vec![];
        let keys = self.keys()?;
        needed.without_records = keys.steps.is_empty();
        for (&step, generations) in &keys.steps {
            for (i, listed) in generations.iter().enumerate() {
                let next = generations.get(i + 1);
                match next {
                    Some(next) if is_old(next.time) => {
                        needed.old.push(object(step, listed));
                        continue;
                    }
                    Some(_) => needed.young.push(object(step, listed)),
                    None => {}
                }
                records.push((RecordId { step, generation: listed.generation }, next.is_none()));
            }
        }
        let mut gone = vec![];
        let mut current = vec![];
        let mut read = stream::iter(records)
            .map(async |(id, counts)| (id, counts, self.record(id).await))
            .buffered(keys.at_once());
        self.remote().wait(async {
            while let Some((id, counts, read)) = read.next().await {
                match read {
                    Ok(record) => current.push((counts, record)),
                    // Another collector began later.
                    Err(e) if e.kind() == ErrorKind::NotFound => gone.extend(counts.then_some(id)),
                    Err(e) => return Err(refused(&DamagedRecord::of(id, e)?, counts)),
                }
            }
            Ok(())
        })?;
        drop(read);
        let names = current.iter().map(|(_, c)| (c.id(), &c.record.seen[..]));
        if let Some(lost) = self.lost(&keys, names, &gone)?.first() {
            return Err(refused(lost, true));
        }
        let states: BTreeMap<Step, bool> =
            current.iter().filter(|(counts, _)| *counts).map(|(_, c)| (c.record.step, c.is_kept())).collect();
        self.forget(&keys, &states, time, floor, rewindable, &mut needed)?;
        let records: Vec<(bool, Vec<ShardId>)> =
            current.into_iter().map(|(counts, c)| (counts, c.record.shards)).collect();
        needed.add(self.remote(), &records, Budget::default()).map_err(|e| {
            // Those that count may need nothing of what is lost.
            let counting: Vec<_> = records.into_iter().filter(|(counts, _)| *counts).collect();
            let counts = Needed::default().add(self.remote(), &counting, Budget::default()).is_err();
            nothing_deleted(e, counts)
        })?;
        Ok(needed)
    }

    /// Finds the records of pruned snapshots that the last floor allows to delete, and the floor that is to be written for others.
    /// `states`: for each step, whether it has a snapshot.
    fn forget(
        &self,
        keys: &Keys,
        states: &BTreeMap<Step, bool>,
        time: u64,
        floor: Option<&ListedFloor>,
        rewindable: usize,
        needed: &mut Needed,
    ) -> Result<()> {
        let is_old = |written: u64| written.saturating_add(self.grace_seconds()) < time;
        let last = floor.map(|floor| self.read_floor(floor)).transpose()?;
        let in_force = floor.is_none_or(|floor| is_old(floor.object.time));
        if let Some(LastFloor { kept: Err(e), .. }) = &last
            && e.kind() == ErrorKind::Unsupported
        {
            return Err(Error::unsupported(format!("{e}; nothing was deleted")));
        }
        let may_go = |step: Step| match &last {
            Some(LastFloor { step: floor, kept: Ok(kept) }) => step <= *floor && kept.binary_search(&step).is_err(),
            _ => false,
        };
        let beyond = keys.steps.keys().rev().nth(rewindable).copied();
        let Some(highest) = beyond.max(last.as_ref().map(|last| last.step)) else { return Ok(()) };
        let is_readable = last.as_ref().is_none_or(|last| last.kept.is_ok());
        let mut more = !is_readable;
        for (&step, generations) in keys.steps.range(..=highest) {
            let Some(newest) = generations.last() else { continue };
            let was_pruned = states.get(&step) == Some(&false);
            // Those that it superseded are deleted with it.
            if !was_pruned || !generations.iter().skip(1).chain([newest]).all(|listed| is_old(listed.time)) {
                continue;
            }
            if !may_go(step) {
                more = true;
            } else if in_force {
                needed.pruned.push(object(step, newest));
            }
        }
        if more && in_force {
            let kept = states.range(..=highest).filter(|(_, kept)| **kept).map(|(&step, _)| step).collect();
            let generation = match floor {
                Some(floor) if floor.step == highest => next_generation(highest, floor.generation)?,
                _ => 0,
            };
            needed.floor = Some((generation, Floor::new(highest, kept)));
        }
        Ok(())
    }
}

/// The object of a record.
fn object(step: Step, &Listed { generation, size, time, nanos }: &Listed) -> Object {
    Object { key: keys::record(step, generation), size, time, nanos }
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
        let objects = [&self.records, &self.pruned, &self.floors, &self.shards, &self.data, &self.probes, &self.tags];
        let objects = objects.into_iter().flatten().map(orphan);
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
    use crate::Input;
    use crate::SaveOptions;
    use crate::Snapshot;
    use crate::Step;
    use crate::StoreOptions;
    use crate::chunks::catalog;

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
