//! Creating a snapshot: shards are saved, then published.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use crate::chunks::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{SaveId, ShardId, Step};
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::metadata::Metadata;
use crate::format::manifest::names::{check_name, check_together};
use crate::format::manifest::record::Record;
use crate::format::manifest::shard::Shard;
use crate::ops::merge::merged;
use crate::ops::previous::Previous;
use crate::ops::save::{self, Input, SaveOptions, Saved, nearest};
use crate::records::history::{next_generation, to_name};
use crate::records::snapshot::{At, Snapshot};
use crate::records::store::Store;

/// At most this many snapshots with tags are compared with files that are to be saved.
const MAX_COMPARED: usize = 8;

/// The source of a snapshot that is a copy.
#[derive(Clone, Copy)]
pub(crate) struct Original {
    pub(crate) id: SaveId,
    pub(crate) time: u64,
    pub(crate) dropped: u64,
}

impl Store {
    /// Saves files as the snapshot of a step; by default the one after the last.
    ///
    /// # Errors
    /// Those of [`Self::save_shard`] and [`Self::publish`].
    pub fn save(
        &self,
        inputs: &[Input<'_>],
        step: Option<Step>,
        metadata: Metadata,
        o: &SaveOptions,
    ) -> Result<Snapshot> {
        Self::check_metadata(&metadata)?;
        let free = self.step(step)?;
        let saved = self.save_shard(inputs, free, o)?;
        match step {
            Some(step) => self.publish(step, metadata, &[saved.shard]),
            None => self.publish_next(free, metadata, &[saved.shard]),
        }
    }

    /// Checks the metadata of a snapshot that is to be saved.
    ///
    /// # Errors
    /// `Limit` when a record cannot hold them.
    pub fn check_metadata(metadata: &Metadata) -> Result<()> {
        let mut record = Record::kept(Step::new(0)?, SaveId::new([0; 16]), 0, metadata.clone());
        record.shards = vec![ShardId::of(b"")];
        record.to_bytes().map(|_| ())
    }

    /// Checks the name of a file that is to be saved: a relative path of UTF-8, without `\\`, `:` and control characters.
    ///
    /// # Errors
    /// `Usage` when no file in a store can have it.
    pub fn check_name(name: &str) -> Result<()> {
        check_name(name).map_err(Error::usage)
    }

    /// [`Self::publish`] for a step that [`Self::step`] chose: if another process takes it first, the one after that is tried.
    ///
    /// # Errors
    /// Those of [`Self::publish`]; `Exists` only when the server does not list the snapshot of a step that it has.
    pub fn publish_next(&self, mut step: Step, metadata: Metadata, shards: &[ShardId]) -> Result<Snapshot> {
        loop {
            match self.publish(step, metadata.clone(), shards) {
                Err(e) if e.kind() == ErrorKind::Exists => {
                    let next = self.step(None)?;
                    // The listing may lag behind: it would be the same step for ever.
                    if next <= step {
                        return Err(e);
                    }
                    step = next;
                }
                done => return done,
            }
        }
    }

    /// The step to save: by default the one after the last that has a snapshot. Fails if it has one, or if records near it or near the last
    /// one say that it had one whose record is lost.
    ///
    /// # Errors
    /// `Exists`, and those of [`Self::find`].
    pub fn step(&self, step: Option<Step>) -> Result<Step> {
        let Some(step) = step else {
            return self.last_step()?.map_or(Step::new(0), Step::next).map_err(|e| e.and(": say which to save"));
        };
        match self.recent(Some(step))?.steps.remove(&step) {
            Some(Err(bad)) => Err(bad.error("save under another step; ")),
            Some(Ok(there)) if there.is_kept => Err(exists(step)),
            _ => Ok(step),
        }
    }

    /// Saves files as one shard of a step's snapshot, which exists once all of its shards are published. It refers to no
    /// data object of earlier saves that is missing or has another length: what such objects had is stored again.
    ///
    /// # Errors
    /// That of [`SaveOptions::cancel`]; `Io` when a file cannot be read, `Usage` when options or file names are invalid, the store was
    /// replaced by another one since it was opened, or snapshots of so early steps are not saved any more (a collection wrote a floor),
    /// `Store` when requests fail.
    pub fn save_shard(&self, inputs: &[Input<'_>], step: Step, o: &SaveOptions) -> Result<Saved> {
        let began = self.begin()?;
        // Only what is listed from now on is sure to stay.
        let before = self.base_of(step, inputs, o)?;
        let shard = Shard::new(self.fresh_id()?, began);
        save::save(self.remote(), inputs, before, o, self.cache(), shard)
    }

    /// The snapshot that files saved at a step build on: the one that is asked for; or the one before; or, for the first save, the one with a
    /// tag that they are more like.
    fn base_of(&self, step: Step, inputs: &[Input<'_>], o: &SaveOptions) -> Result<Previous> {
        if let Some(from) = o.from {
            self.check_above_floor(step)?;
            let snapshot = self.find(At::Step(from))?;
            let catalog = self.open_base(&snapshot).map_err(|e| e.at(format_args!("step {from}")))?;
            return Ok(Previous { snapshot: Some(snapshot), catalog, note: None });
        }
        let before = self.before(step)?;
        if before.snapshot.is_none() || self.has_saved.swap(true, Ordering::Relaxed) {
            return Ok(before);
        }
        let mut tags = self.tags()?.tags;
        tags.sort_by_key(|tag| Reverse(tag.generation));
        let mut seen: HashSet<SaveId> = before.snapshot.iter().map(|s| s.id).collect();
        let mut candidates = vec![before];
        for tag in tags.into_iter().filter(|tag| seen.insert(tag.id)).take(MAX_COMPARED) {
            // One that was pruned, or cannot be read, is none.
            let opened = self.find(At::Tag(tag.name)).and_then(|s| self.open_base(&s).map(|catalog| (s, catalog)));
            match opened {
                Ok((s, catalog)) => candidates.push(Previous { snapshot: Some(s), catalog, note: None }),
                Err(e) if matches!(e.kind(), ErrorKind::Damaged | ErrorKind::NotFound | ErrorKind::Unsupported) => {}
                Err(e) => return Err(e),
            }
        }
        if candidates.len() > 1 {
            return Ok(nearest(self.remote(), inputs, candidates, o)?.expect("there are several"));
        }
        Ok(candidates.pop().expect("that before"))
    }

    /// Publishes saved shards as the snapshot of a step, atomically.
    ///
    /// After a `Store` error the snapshot may have been published all the same: check with [`Self::find`].
    ///
    /// # Errors
    /// `Damaged` when there is no shard; `Exists` when the step has a snapshot, or another process was first; `Expired` when a
    /// shard was begun too long ago, or is gone; `Usage` when two shards have files of the same name, the store was replaced by another
    /// one since it was opened, or snapshots of so early steps are not saved any more; `Limit` when the snapshot could not be opened;
    /// `Unsupported` when the server ignores `If-None-Match`; `Store` when requests fail.
    pub fn publish(&self, step: Step, metadata: Metadata, shards: &[ShardId]) -> Result<Snapshot> {
        self.publish_as(step, metadata, shards, None, &Catalog::default())
    }

    /// [`Self::publish`], also for copies. `known`: shards that were read already.
    pub(crate) fn publish_as(
        &self,
        step: Step,
        metadata: Metadata,
        shards: &[ShardId],
        original: Option<Original>,
        known: &Catalog,
    ) -> Result<Snapshot> {
        let remote = self.remote();
        let id = original.map_or_else(|| self.fresh_id(), |o| Ok(o.id))?;
        let mut record = Record::kept(step, id, 0, metadata);
        record.shards = shards.to_vec();
        record.dropped = original.and_then(|o| NonZeroU64::new(o.dropped));
        let mut names = Vec::new();
        let mut began = u64::MAX;
        // Each shard is within the limits; what is beyond them with the shards that it needs could not be read.
        let catalog = self.unpublished(shards, known)?;
        catalog.check_segments(shards)?;
        (record.raw_size, record.new_size) = catalog.sizes(shards)?;
        for &id in shards {
            let shard = catalog.shard(id)?;
            began = began.min(shard.began);
            names.extend(shard.files.iter().map(|f| &f.name[..]));
        }
        check_together(names).map_err(Error::usage)?;
        record.check()?;
        // After all shards were begun: what is written later stays until this snapshot is committed, or refused.
        self.check_above_floor(step)?;
        let mut recent = self.recent(Some(step))?;
        let heads = recent.heads();
        let before = recent.steps.remove(&step).transpose().map_err(|bad| bad.error("save under another step; "))?;
        let generation = match &before {
            None => 0,
            Some(newest) if newest.is_kept => return Err(exists(step)),
            Some(newest) => next_generation(step, newest.seen.key.generation)?,
        };
        record.seen = to_name(&heads, before.as_ref());
        // A reader then opens one document, however many processes saved.
        if let Some((id, bytes)) = merged(&catalog, shards)? {
            remote.wait(remote.put(&keys::shard(id), bytes.into()))?;
            record.shards = vec![id];
        }
        // The time is taken last, so that everything before counts against the grace period.
        let now = self.time_to_commit(began)?;
        record.time = original.map_or(now, |o| o.time);
        let ours = remote.wait(self.create_record(generation, &record))?;
        ours.map(|_| Snapshot::of(record)).ok_or_else(|| exists(step))
    }

    /// Reads saved shards, and those that they refer to. `known`: some that were read already.
    pub(crate) fn unpublished(&self, shards: &[ShardId], known: &Catalog) -> Result<Catalog> {
        let loaded = self.remote().wait(Catalog::load_unpublished(self.remote(), shards, known));
        loaded.map_err(|e| match e.kind() {
            // Nothing refers to a shard that is not published: a collection removes it after the grace period, and what it refers to.
            ErrorKind::NotFound => Error::expired(format!("{e}: the shard is no longer there: save it again")),
            _ => e,
        })
    }
}

pub(crate) fn exists(step: Step) -> Error {
    Error::exists(format!("step {step} has a snapshot: save under another step"))
}
