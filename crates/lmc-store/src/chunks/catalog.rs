//! The shards read so far, and their block sets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::ShardId;
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::shard::{BlockSet, Ref, Shard};
use crate::objects::remote::{CONCURRENT, Remote};

/// The longest allowed chain: block sets decoded one after the other to restore the last one.
pub(crate) const MAX_CHAIN: usize = 64;

/// The most bytes of the documents that a snapshot needs, decompressed.
const MAX_DOCUMENTS: u64 = 1 << 32;
/// The most segments of a snapshot's files, and of the documents that it needs.
pub(crate) const MAX_SEGMENTS: u64 = 1 << 24;

/// Snapshots whose documents are loaded at once, if these are small.
///
/// `verify --deep` decodes a chain that continues in the next part again there, from its first set: to go on from its last
/// one, the raw bytes of a whole snapshot would have to be kept, and to decode all chains at the end, the block sets of all
/// documents. With the default anchors it decodes at most 15 more sets of a tensor for each part. Where documents are so large
/// that each part is one snapshot (`Budget::part`), it reads as much as restoring each of them.
const AT_ONCE: usize = 64;

/// A block set: its shard, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SetId {
    pub(crate) shard: ShardId,
    pub(crate) index: usize,
}

/// Takes the catalog of some snapshots, or the error of a single one.
type Take<'t, S> = &'t mut dyn FnMut(Result<Catalog>, &[S]) -> Result<()>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    /// With the lengths of their documents, as far as they were read.
    shards: HashMap<ShardId, (Arc<Shard>, u64)>,
    /// Block sets that no document lists as such: those of alternatives.
    more: HashMap<SetId, BlockSet>,
}

impl Catalog {
    /// Reads the shards of a snapshot, and the shards that they refer to.
    ///
    /// # Errors
    /// `Limit` when their documents exceed what those of one snapshot may be.
    pub(crate) async fn load(remote: &Remote, ids: &[ShardId]) -> Result<Self> {
        Self::load_beside(remote, ids, &Self::default()).await
    }

    /// [`Self::load_beside`] with another budget, as that of several snapshots.
    pub(crate) async fn load_within(remote: &Remote, ids: &[ShardId], other: &Self, budget: Budget) -> Result<Self> {
        Self::load_all(remote, ids, other, budget).await.map_err(Error::or_damaged)
    }

    /// [`Self::load`], reusing shards that `other` already has.
    pub(crate) async fn load_beside(remote: &Remote, ids: &[ShardId], other: &Self) -> Result<Self> {
        Self::load_within(remote, ids, other, Budget::default()).await
    }

    /// [`Self::load`] of shards that no record names yet: `NotFound` when one of them is gone, or one that they refer to.
    pub(crate) async fn load_unpublished(remote: &Remote, ids: &[ShardId], known: &Self) -> Result<Self> {
        Self::load_all(remote, ids, known, Budget::default()).await
    }

    /// Loads the shards of many snapshots, some at a time: up to 64 of them if their documents are within a part of the
    /// budget, which is that of one snapshot, else one half after the other. So memory is bounded, however many there
    /// are. Reuses shards that this catalog has.
    pub(crate) fn load_in_parts<S>(
        &self,
        remote: &Remote,
        snapshots: &[S],
        shards: &dyn Fn(&S) -> &[ShardId],
        budget: Budget,
        take: Take<'_, S>,
    ) -> Result<()> {
        if snapshots.len() <= AT_ONCE {
            let ids: BTreeSet<ShardId> = snapshots.iter().flat_map(shards).copied().collect();
            let ids: Vec<ShardId> = ids.into_iter().collect();
            let budget = if snapshots.len() == 1 { budget } else { budget.part() };
            match remote.wait(Self::load_within(remote, &ids, self, budget)) {
                Err(e) if e.kind() == ErrorKind::Store => return Err(e),
                Err(_) if snapshots.len() > 1 => {}
                loaded => return take(loaded, snapshots),
            }
        }
        let (first, second) = snapshots.split_at(snapshots.len() / 2);
        self.load_in_parts(remote, first, shards, budget, take)?;
        self.load_in_parts(remote, second, shards, budget, take)
    }

    async fn load_all(remote: &Remote, ids: &[ShardId], other: &Self, mut budget: Budget) -> Result<Self> {
        let mut catalog = Self::default();
        catalog.add(remote, ids.to_vec(), other, &mut budget).await?;
        let mut more: Vec<ShardId> = catalog.shards.values().flat_map(|(p, _)| p.shards.iter().copied()).collect();
        more.sort_unstable();
        more.dedup();
        catalog.add(remote, more, other, &mut budget).await?;
        Ok(catalog)
    }

    async fn add(&mut self, remote: &Remote, mut ids: Vec<ShardId>, other: &Self, budget: &mut Budget) -> Result<()> {
        let mut take =
            |id, shard: &Shard, len| budget.take(len, shard.listed_segments()).map_err(|e| e.at(keys::shard(id)));
        ids.retain(|id| !self.shards.contains_key(id));
        for &id in &ids {
            // What is reused counts like what is read: the limits are those of a reader of this snapshot alone.
            if let Some((shard, len)) = other.shards.get(&id)
                && !self.shards.contains_key(&id)
            {
                take(id, shard, *len)?;
                self.shards.insert(id, (shard.clone(), *len));
            }
        }
        ids.retain(|id| !self.shards.contains_key(id));
        let mut shards = stream::iter(ids).map(|id| read(remote, id)).buffer_unordered(CONCURRENT);
        while let Some((id, shard, len)) = shards.try_next().await? {
            take(id, &shard, len)?;
            self.shards.insert(id, (Arc::new(shard), len));
        }
        Ok(())
    }

    /// Adds a shard that was just written.
    pub(crate) fn insert(&mut self, id: ShardId, shard: Shard) {
        self.shards.insert(id, (Arc::new(shard), 0));
    }

    /// Adds the shards that another catalog has.
    pub(crate) fn insert_from(&mut self, other: &Self, ids: impl IntoIterator<Item = ShardId>) {
        for id in ids {
            if let Some(shard) = other.shards.get(&id) {
                self.shards.entry(id).or_insert_with(|| shard.clone());
            }
        }
    }

    /// Adds a block set that no document lists: its index is beyond those of its shard.
    pub(crate) fn insert_set(&mut self, id: SetId, set: BlockSet) {
        self.more.insert(id, set);
    }

    /// Adds these shards, but leaves out those that cannot be read; until one would exceed the budget, or a request fails.
    pub(crate) async fn add_available(&mut self, remote: &Remote, ids: BTreeSet<ShardId>, budget: &mut Budget) {
        let mut shards = stream::iter(ids).map(|id| read(remote, id)).buffer_unordered(CONCURRENT);
        while let Some(found) = shards.next().await {
            match found {
                Ok((id, shard, len)) if budget.take(len, shard.listed_segments()).is_ok() => {
                    self.shards.insert(id, (Arc::new(shard), len));
                }
                Err(e) if e.kind() != ErrorKind::Store => {}
                _ => return,
            }
        }
    }

    pub(crate) fn shard(&self, id: ShardId) -> Result<&Arc<Shard>> {
        self.shards.get(&id).map(|(shard, _)| shard).ok_or_else(|| {
            Error::damaged(format!("{}: is needed, but no shard that needs it lists it", keys::shard(id)))
        })
    }

    /// The sums of the sizes of shards: raw bytes of their files, and the bytes that they added to the store.
    pub(crate) fn sizes(&self, shards: &[ShardId]) -> Result<(u64, u64)> {
        shards.iter().try_fold((0u64, 0u64), |(raw, new), &id| {
            let shard = self.shard(id)?;
            Ok((raw.saturating_add(shard.raw_size()), new.saturating_add(shard.new_size())))
        })
    }

    pub(crate) fn set(&self, id: SetId) -> Result<&BlockSet> {
        self.shard(id.shard)?.sets.get(id.index).or_else(|| self.more.get(&id)).ok_or_else(|| {
            Error::damaged(format!(
                "{}: has no block set {}, which another shard refers to",
                keys::shard(id.shard),
                id.index
            ))
        })
    }

    /// The shard that another one refers to by a number.
    pub(crate) fn numbered(&self, from: ShardId, number: usize) -> Result<ShardId> {
        match number {
            0 => Ok(from),
            i => Ok(self.shard(from)?.shards[i - 1]),
        }
    }

    /// Resolves a reference made by a shard.
    pub(crate) fn resolve(&self, from: ShardId, Ref(shard, index): Ref) -> Result<SetId> {
        Ok(SetId { shard: self.numbered(from, shard)?, index })
    }

    /// The base of a block set, if it has one.
    pub(crate) fn base(&self, id: SetId) -> Result<Option<SetId>> {
        self.set(id)?.base.map(|base| self.resolve(id.shard, base)).transpose()
    }

    /// What a block set is decoded with: its base first.
    pub(crate) fn bases(&self, id: SetId) -> Result<Vec<SetId>> {
        self.set(id)?.bases().map(|base| self.resolve(id.shard, base)).collect()
    }

    /// The chain of a block set: it and all that it is decoded with, in the order of decoding, itself last.
    pub(crate) fn chain(&self, id: SetId) -> Result<Vec<SetId>> {
        self.chain_of([id], &mut |_| false)
    }

    /// The chains of block sets, which share some, in one, but for what only those need that are `at_hand`.
    pub(crate) fn chain_of(
        &self,
        ids: impl IntoIterator<Item = SetId>,
        at_hand: &mut dyn FnMut(SetId) -> bool,
    ) -> Result<Vec<SetId>> {
        let mut chain = vec![];
        ids.into_iter().try_for_each(|id| self.add_chain(id, id, at_hand, 0, &mut chain))?;
        Ok(chain)
    }

    fn add_chain(
        &self,
        id: SetId,
        of: SetId,
        at_hand: &mut dyn FnMut(SetId) -> bool,
        above: usize,
        chain: &mut Vec<SetId>,
    ) -> Result<()> {
        if chain.contains(&id) {
            return Ok(());
        }
        if above + chain.len() >= MAX_CHAIN {
            let shard = keys::shard(of.shard);
            return Err(Error::limit(format!("{shard}: block set {} has a chain of more than {MAX_CHAIN}", of.index)));
        }
        if !at_hand(id) {
            for base in self.bases(id)? {
                self.check_age(id, base)?;
                self.add_chain(base, of, at_hand, above + 1, chain)?;
            }
        }
        chain.push(id);
        Ok(())
    }

    fn check_age(&self, id: SetId, base: SetId) -> Result<()> {
        if self.set(base)?.age >= self.set(id)?.age {
            let shard = keys::shard(id.shard);
            return Err(Error::damaged(format!("{shard}: block set {} has not a larger age than its base", id.index)));
        }
        Ok(())
    }

    /// A block set, its base, the base of that, and so on; the first one first.
    pub(crate) fn line(&self, id: SetId) -> Result<Vec<SetId>> {
        let mut chain = vec![id];
        let mut last = id;
        while let Some(base) = self.base(last)? {
            self.check_age(last, base)?;
            chain.push(base);
            last = base;
            if chain.len() > MAX_CHAIN {
                let shard = keys::shard(id.shard);
                return Err(Error::limit(format!(
                    "{shard}: block set {} has a chain of more than {MAX_CHAIN}",
                    id.index
                )));
            }
        }
        chain.reverse();
        Ok(chain)
    }
}

/// How much may still be read of the documents of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Decompressed.
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(1)
    }
}

impl Budget {
    /// The budget of several snapshots at once.
    pub(crate) fn of(snapshots: usize) -> Self {
        let snapshots = snapshots.max(1) as u64;
        Self { bytes: MAX_DOCUMENTS.saturating_mul(snapshots), segments: MAX_SEGMENTS.saturating_mul(snapshots) }
    }

    /// That of several snapshots that are loaded at once.
    pub(crate) fn part(self) -> Self {
        Self { bytes: self.bytes / 16, segments: self.segments / 16 }
    }

    fn take(&mut self, bytes: u64, segments: u64) -> Result<()> {
        match (self.bytes.checked_sub(bytes), self.segments.checked_sub(segments)) {
            (Some(bytes), Some(segments)) => {
                *self = Self { bytes, segments };
                Ok(())
            }
            (None, _) => {
                Err(Error::limit(format!("with this document, those of the snapshot exceed {MAX_DOCUMENTS} bytes")))
            }
            (_, None) => Err(Error::limit(format!(
                "with this document, those of the snapshot list more than {MAX_SEGMENTS} segments"
            ))),
        }
    }
}

/// Reads a shard and checks its hash. Also returns the length of its document.
pub(crate) async fn read(remote: &Remote, id: ShardId) -> Result<(ShardId, Shard, u64)> {
    let key = keys::shard(id);
    let bytes = remote.get(&key, Shard::MAX).await.map_err(|e| match e.kind() {
        // No writer makes such a document.
        ErrorKind::Limit => Error::damaged(e.to_string()),
        _ => e,
    })?;
    if ShardId::of(&bytes) != id {
        return Err(Error::damaged(format!("{key}: is damaged: its contents do not have the hash that its name says")));
    }
    let (shard, len) = Shard::parse_stored(&bytes).map_err(|e| e.at(&key))?;
    Ok((id, shard, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ids::{Hash, SaveId};
    use crate::format::manifest::shard::At;

    #[test]
    fn the_documents_of_a_snapshot_have_a_budget() {
        let mut budget = Budget::of(1);
        budget.take(MAX_DOCUMENTS - 5, MAX_SEGMENTS - 5).unwrap();
        for (bytes, segments, why) in [(6, 0, "4294967296 bytes"), (0, 6, "16777216 segments")] {
            let e = budget.take(bytes, segments).unwrap_err();
            assert!(e.kind() == ErrorKind::Limit && e.to_string().contains(why), "{e}");
        }
        budget.take(5, 5).unwrap();
        assert_eq!(budget.take(1, 0).unwrap_err().kind(), ErrorKind::Limit);
        // Snapshots do not share it.
        let mut two = Budget::of(2);
        two.take(MAX_DOCUMENTS, MAX_SEGMENTS).unwrap();
        two.take(MAX_DOCUMENTS, MAX_SEGMENTS).unwrap();
        assert_eq!(two.take(0, 1).unwrap_err().kind(), ErrorKind::Limit);
    }

    #[test]
    fn documents_that_snapshots_share_count_for_each() {
        let remote = Remote::new(Arc::new(object_store::memory::InMemory::new())).unwrap();
        let mut lens = vec![];
        let ids: Vec<ShardId> = (0..2)
            .map(|n| {
                let (id, stored) = Shard::new(SaveId::new([n; 16]), 0).to_stored().unwrap();
                remote.wait(remote.put(&keys::shard(id), stored.into())).unwrap();
                lens.push(remote.wait(read(&remote, id)).unwrap().2);
                id
            })
            .collect();
        let all = remote.wait(Catalog::load(&remote, &ids)).unwrap();
        let load = |bytes| remote.wait(Catalog::load_all(&remote, &ids, &all, Budget { bytes, segments: 0 }));
        let both = lens[0] + lens[1];
        assert_eq!(load(both).unwrap().shards.len(), 2);
        assert_eq!(load(both - 1).err().unwrap().kind(), ErrorKind::Limit);
        // Nothing is read again, and nothing counts twice.
        ids.iter().for_each(|&id| remote.wait(remote.delete(&keys::shard(id))).unwrap());
        let twice = [ids[0], ids[1], ids[0]];
        let budget = Budget { bytes: both, segments: 0 };
        assert_eq!(remote.wait(Catalog::load_all(&remote, &twice, &all, budget)).unwrap().shards.len(), 2);
    }

    #[test]
    fn a_chain_has_at_most_64_sets() {
        let mut shard = Shard::new(SaveId::new([1; 16]), 0);
        let hash = Hash::of(b"");
        for i in 0..65 {
            let base = (i > 0).then(|| Ref(0, i - 1));
            shard.sets.push(BlockSet {
                at: At(0, 0, 0),
                hash,
                raw_len: 0,
                raw_hash: hash,
                base,
                others: vec![],
                age: i as u32,
            });
        }
        let (mut catalog, id) = (Catalog::default(), ShardId::of(b"a"));
        catalog.insert(id, shard);
        let chain = |index| catalog.chain(SetId { shard: id, index });
        assert_eq!(chain(63).unwrap().len(), MAX_CHAIN);
        let e = chain(64).unwrap_err();
        assert!(e.kind() == ErrorKind::Limit && e.to_string().contains("more than 64"), "{e}");
    }
}
