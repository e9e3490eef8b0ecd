//! Snapshots that others save again: with the same contents, or to replace them.

use std::collections::BTreeMap;

use crate::chunks::catalog::Catalog;
use crate::error::{ErrorKind, Result};
use crate::format::ids::{Hash, ShardId, Step};
use crate::format::manifest::metadata::Metadata;
use crate::format::manifest::record::Record;
use crate::format::manifest::shard::{Extent, Ref};
use crate::records::history::{next_generation, to_name};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// The parts of a file's contents: the hash of a block set's raw bytes, and which of them.
type Contents = Vec<(Hash, u64, u64)>;

impl Store {
    /// Whether a snapshot has what these saved shards have: the same files, with the same bytes. By hashes: no data are
    /// read. Shards of the same files that were cut into other chunks count as others.
    ///
    /// # Errors
    /// `Expired` when a shard is gone, and those of [`Self::open_snapshot`].
    pub fn has_shards(&self, snapshot: &Snapshot, shards: &[ShardId]) -> Result<bool> {
        let ours = self.unpublished(shards, &Catalog::default())?;
        let theirs = self.remote().wait(Catalog::load(self.remote(), &snapshot.shards))?;
        Ok(contents(&ours, shards)? == contents(&theirs, &snapshot.shards)?)
    }

    /// [`Self::publish`] in place of the snapshot that the step has, if it has one: that one is pruned first, once
    /// nothing but a request can fail any more.
    ///
    /// # Errors
    /// Those of [`Self::publish`]; `Exists` when another process has saved the step again meanwhile.
    pub fn overwrite(&self, step: Step, metadata: Metadata, shards: &[ShardId]) -> Result<Snapshot> {
        match self.publish(step, metadata.clone(), shards) {
            Err(e) if e.kind() == ErrorKind::Exists => {}
            done => return done,
        }
        let catalog = self.unpublished(shards, &Catalog::default())?;
        let began = shards.iter().map(|&id| Ok(catalog.shard(id)?.began)).collect::<Result<Vec<_>>>()?;
        let heads = self.recent(Some(step))?.heads();
        let there = self.newest_or_damaged(step)?.transpose();
        let there = there.map_err(|bad| bad.error("save under another step; "))?;
        if let Some(there) = there.filter(|there| there.is_kept()) {
            let time = self.time_to_commit(began.into_iter().min().unwrap_or_default())?;
            let mut record = Record::pruned(step, there.record.id, time);
            record.seen = to_name(&heads, Some(&there.brief()));
            let generation = next_generation(step, there.generation)?;
            // Another process may be first: it has pruned the snapshot, too, or re-based it.
            self.remote().wait(self.create_record(generation, &record))?;
        }
        self.publish_as(step, metadata, shards, None, &catalog)
    }
}

/// The contents of the files of shards, by name.
fn contents(catalog: &Catalog, shards: &[ShardId]) -> Result<BTreeMap<String, Contents>> {
    let mut found = BTreeMap::new();
    for &id in shards {
        for file in &catalog.shard(id)?.files {
            let parts = file.extents.iter().map(|&Extent(of, set, from, len)| {
                let set = catalog.resolve(id, Ref(of, set))?;
                Ok((catalog.set(set)?.raw_hash, from, len))
            });
            found.insert(file.name.clone(), parts.collect::<Result<_>>()?);
        }
    }
    Ok(found)
}
