//! Re-basing: making snapshots independent of data that no other snapshot needs (`docs/store.md` §7).

mod encode;
mod survey;

use std::collections::{HashMap, HashSet};

use lmc::{CompressOptions, Level};

use crate::chunks::catalog::{Budget, Catalog, MAX_CHAIN, SetId};
use crate::chunks::reach::files_of;
use crate::error::{Error, Result};
use crate::format::ids::{Hash, SaveId, ShardId, Step};
use crate::format::keys;
use crate::format::manifest::record::Record;
use crate::format::manifest::shard::{BlockSet, Extent, Ref, Shard};
use crate::objects::ordered;
use crate::ops::save::Numbers;
use crate::ops::save::upload::Uploader;
use crate::records::history::{next_generation, to_name};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;
use encode::{Encoder, Job};
pub(crate) use survey::Estimate;
use survey::{Move, Survey};

/// How to re-base.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RebaseOptions {
    /// Compression level.
    pub level: Level,
    /// Threads to compress with; 0 for one per core.
    pub threads: usize,
}

/// The result of re-basing snapshots. Snapshots with nothing to gain are in neither list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebased {
    /// In their new state.
    pub snapshots: Vec<Snapshot>,
    /// Pruned, or re-based by another process, meanwhile: left as they are.
    pub changed: Vec<Step>,
}

impl Store {
    /// Re-bases snapshots. Rewrites a block set if snapshots use less than half of its data object, or if it has a base
    /// in such an object. The new base is the nearest set of the chain that stays or is rewritten, or none. A
    /// snapshot's contents and id are the same at any moment.
    ///
    /// # Errors
    /// `NotFound` when a step has no snapshot; `Expired` when it takes too long, where finished snapshots stay re-based; `Damaged` or
    /// `Unsupported` when a snapshot cannot be restored; `Store` when requests fail.
    pub fn rebase(&self, steps: &[Step], o: &RebaseOptions) -> Result<Rebased> {
        self.rebase_without(steps, &HashSet::new(), o)
    }

    /// [`Self::rebase`], as if the snapshots with the ids `ends` had been pruned.
    pub(crate) fn rebase_without(&self, steps: &[Step], ends: &HashSet<SaveId>, o: &RebaseOptions) -> Result<Rebased> {
        self.rewrite(steps, ends, o, |_, record, _| Ok(record.clone()))
    }

    /// [`Self::rebase_without`] for snapshots that `edit` changes before. It gets the documents of all snapshots, to which it adds the shards
    /// that it writes, a record, and the time at which this began.
    pub(crate) fn rewrite(
        &self,
        steps: &[Step],
        ends: &HashSet<SaveId>,
        o: &RebaseOptions,
        edit: impl Fn(&mut Catalog, &Record, u64) -> Result<Record>,
    ) -> Result<Rebased> {
        // As in a save: everything that counts from now on stays for a grace period.
        let began = self.begin()?;
        let history = self.history()?;
        // The records that the next record names.
        let mut heads = history.heads();
        let mut kept = history.into_kept();
        kept.retain(|c| !ends.contains(&c.record.id));
        if let Some(step) = steps.iter().find(|&&s| kept.iter().all(|c| c.record.step != s)) {
            return Err(Error::no_snapshot(step, ""));
        }
        let all: Vec<&[ShardId]> = kept.iter().map(|c| &c.record.shards[..]).collect();
        let mut catalog = self.load_all(&all)?;
        let wanted = kept.iter().map(|c| match steps.contains(&c.record.step) {
            true => edit(&mut catalog, &c.record, began),
            false => Ok(c.record.clone()),
        });
        let wanted: Vec<Record> = wanted.collect::<Result<_>>()?;
        let all: Vec<&[ShardId]> = wanted.iter().map(|r| &r.shards[..]).collect();
        let mut survey = Survey::new(catalog, &all)?;
        let mut done = Rebased::default();
        for (current, record) in kept.iter().zip(&wanted).filter(|(_, r)| steps.contains(&r.step)) {
            survey.catalog.check_segments(&record.shards)?;
            let shards = record.shards.iter().map(|&id| self.rebase_shard(&mut survey, id, began, o));
            let mut new = record.clone();
            new.shards = shards.collect::<Result<_>>()?;
            if new.shards == current.record.shards {
                continue;
            }
            new.new_size = survey.catalog.sizes(&new.shards)?.1;
            self.check_restores(&Snapshot::of(new.clone()), o)?;
            self.time_to_commit(began)?;
            let next = next_generation(record.step, current.generation)?;
            new.seen = to_name(&heads, Some(&current.brief()));
            match self.remote().wait(self.create_record(next, &new))? {
                Some(seen) => {
                    heads = vec![seen];
                    done.snapshots.push(Snapshot::of(new));
                }
                None => done.changed.push(record.step),
            }
        }
        Ok(done)
    }

    /// The documents of snapshots, given by their shards.
    pub(crate) fn load_all(&self, snapshots: &[&[ShardId]]) -> Result<Catalog> {
        let (shards, budget) = (snapshots.concat(), Budget::of(snapshots.len()));
        self.remote().wait(Catalog::load_within(self.remote(), &shards, &Catalog::default(), budget))
    }

    /// The gain of re-basing if a store had only these snapshots, and which of them to re-base. The catalog has their documents.
    pub(crate) fn estimate_rebase(catalog: Catalog, snapshots: &[&[ShardId]]) -> Result<(Estimate, Vec<bool>)> {
        Survey::new(catalog, snapshots)?.estimate(snapshots)
    }

    /// Decodes all of a snapshot without writing it anywhere.
    fn check_restores(&self, snapshot: &Snapshot, o: &RebaseOptions) -> Result<()> {
        let found = self.verify(std::slice::from_ref(snapshot), true, o.threads)?;
        match found.problems.into_iter().find(|p| !p.intact) {
            None => Ok(()),
            Some(p) => Err(Error::new(p.kind(), format!("step {}: cannot be re-based: {}", snapshot.step, p.message))),
        }
    }

    /// Rewrites the shard; returns the same one if there is nothing to gain.
    fn rebase_shard(&self, survey: &mut Survey, id: ShardId, began: u64, o: &RebaseOptions) -> Result<ShardId> {
        let (mut to, mut jobs, mut here) = (HashMap::new(), vec![], HashMap::new());
        for set in files_of(&survey.catalog, id)? {
            let decided = survey.decide(set)?;
            if let Move::Copy(base) | Move::Encode(base) = decided
                && !here.contains_key(&survey.catalog.set(set)?.raw_hash)
            {
                here.insert(survey.catalog.set(set)?.raw_hash, jobs.len());
                jobs.push(self.job(survey, set, base, matches!(decided, Move::Copy(_)))?);
            }
            to.insert(set, decided);
        }
        if to.values().all(|m| *m == Move::Stay) {
            return Ok(id);
        }
        let mut shard = Shard::new(self.fresh_id()?, began);
        let mut uploader = Uploader::new(self.remote(), shard.save);
        let written = self.write_sets(survey, &jobs, &mut shard, &mut uploader, o).and_then(|()| {
            refer(&mut shard, survey, id, &to, &here)?;
            self.finish_shard(&survey.catalog, &mut shard, &mut uploader)
        });
        match written {
            Ok(new) => survey.add(new, shard),
            Err(_) => uploader.discard(),
        }
        written
    }

    /// Writes the document of a shard with all of its sets and files. The catalog has the shards that it lists.
    pub(crate) fn finish_shard(&self, catalog: &Catalog, shard: &mut Shard, up: &mut Uploader<'_>) -> Result<ShardId> {
        shard.objects = up.finish()?;
        shard.share_segments(catalog)?;
        let (id, bytes) = shard.to_stored()?;
        self.remote().wait(self.remote().put(&keys::shard(id), bytes.into()))?;
        Ok(id)
    }

    fn job(&self, survey: &Survey, set: SetId, base: Option<Hash>, copy: bool) -> Result<Job> {
        let base = base.map(|b| survey.known(b));
        // Chains only become shorter, unless the same bytes are at the end of a longer one.
        match base {
            Some(b) if survey.catalog.chain(b)?.len() >= MAX_CHAIN => Ok(Job { set, base: None, copy: false }),
            base => Ok(Job { set, base, copy }),
        }
    }

    fn write_sets(
        &self,
        survey: &Survey,
        jobs: &[Job],
        shard: &mut Shard,
        uploader: &mut Uploader<'_>,
        o: &RebaseOptions,
    ) -> Result<()> {
        let catalog = &survey.catalog;
        let options = CompressOptions::default().with_level(o.level).with_threads(1);
        let mut bases = vec![];
        let threads = ordered::threads_that_wait(o.threads);
        ordered::run(
            threads,
            threads + 1,
            jobs.len(),
            |i| jobs[i],
            || Encoder::new(self.remote(), catalog, &options),
            |encoder, _, job| encoder.encode(job),
            |i, new| {
                let old = catalog.set(jobs[i].set)?;
                let age = new.base.map_or(Ok(0), |b| catalog.set(b).map(|b| b.age + 1))?;
                let hash = Hash::of(&new.bytes);
                let at = uploader.append(new.bytes)?;
                let (raw_len, raw_hash) = (old.raw_len, old.raw_hash);
                shard.sets.push(BlockSet { at, hash, raw_len, raw_hash, base: None, others: vec![], age });
                bases.push(new.base);
                Ok(())
            },
        )?;
        let mut numbers = Numbers::new(&mut shard.shards, catalog);
        for (set, base) in shard.sets.iter_mut().zip(bases) {
            set.base = base.map(|b| numbers.refer(b)).transpose()?;
        }
        Ok(())
    }
}

/// Gives a new shard the files of an old one, with its block sets replaced.
fn refer(
    shard: &mut Shard,
    survey: &Survey,
    old: ShardId,
    to: &HashMap<SetId, Move>,
    here: &HashMap<Hash, usize>,
) -> Result<()> {
    let catalog = &survey.catalog;
    let mut numbers = Numbers::new(&mut shard.shards, catalog);
    shard.files = catalog.files(old)?;
    for extent in shard.files.iter_mut().flat_map(|f| &mut f.extents) {
        let &mut Extent(of, set, from, len) = extent;
        let set = catalog.resolve(old, Ref(of, set))?;
        let Ref(of, number) = match to[&set] {
            Move::Stay => numbers.refer(set)?,
            Move::Same(raw_hash) => numbers.refer(survey.known(raw_hash))?,
            Move::Copy(_) | Move::Encode(_) => Ref(0, here[&catalog.set(set)?.raw_hash]),
        };
        *extent = Extent(of, number, from, len);
    }
    Ok(())
}
