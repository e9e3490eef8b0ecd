//! Alternatives of block sets: deltas with the same raw bytes, for readers that hold their base (`docs/store.md` §4).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::chunks::catalog::{Budget, Catalog, MAX_CHAIN, SetId};
use crate::chunks::held::Held;
use crate::error::Result;
use crate::format::ids::{Hash, ShardId};
use crate::format::manifest::shard::{At, BlockSet, Ref};
use crate::objects::remote::Remote;

/// The most documents of earlier snapshots that are read at once to find bases.
const MAX_DOCUMENTS: usize = 1 << 12;

/// The way from block sets that are held to those that start chains.
#[derive(Debug)]
pub(crate) struct Alternatives {
    /// The documents of the snapshot that is held, as far as they are known.
    known: Catalog,
    earlier: Mutex<Earlier>,
}

/// Documents of earlier snapshots. Each may be gone.
#[derive(Debug)]
struct Earlier {
    catalog: Catalog,
    tried: HashSet<ShardId>,
    budget: Budget,
}

/// A block set whose alternative has a base that is not held.
struct Far {
    set: SetId,
    delta: SetId,
    base: Hash,
    shard: ShardId,
}

impl Alternatives {
    /// `known`: documents of the snapshot that is held, which need not be read.
    pub(crate) fn new(known: &Catalog) -> Self {
        let earlier = Earlier { catalog: Catalog::default(), tried: HashSet::new(), budget: Budget::default().part() };
        Self { known: known.clone(), earlier: Mutex::new(earlier) }
    }

    /// For block sets without a base, chains from one that is held to the same raw bytes, where that takes fewer stored
    /// bytes. The catalog gets their block sets.
    ///
    /// # Errors
    /// `Store` when the work is to be given up.
    pub(crate) fn find(
        &self,
        remote: &Remote,
        catalog: &mut Cow<'_, Catalog>,
        held: &Held<'_>,
        sets: impl IntoIterator<Item = SetId>,
    ) -> Result<HashMap<SetId, Vec<SetId>>> {
        let (mut found, mut far) = (HashMap::new(), vec![]);
        for set in sets {
            let shard = catalog.shard(set.shard)?.clone();
            let Ok(i) = shard.alternatives.binary_search_by_key(&set.index, |a| a.set) else { continue };
            let (a, whole) = (&shard.alternatives[i], &shard.sets[set.index]);
            let numbered = |number| SetId { shard: set.shard, index: shard.sets.len() + number };
            let (delta, base) = (numbered(2 * i), numbered(2 * i + 1));
            let raw_len = whole.raw_len;
            let plain =
                |at, hash, raw_hash| BlockSet { at, hash, raw_hash, raw_len, base: None, others: vec![], age: 0 };
            let of_base = BlockSet { base: Some(Ref(0, base.index)), ..plain(a.at, a.hash, whole.raw_hash) };
            catalog.to_mut().insert_set(delta, of_base);
            if held.has(a.base, whole.raw_len) {
                // Not fetched: its stored bytes may be anywhere.
                catalog.to_mut().insert_set(base, plain(At(0, 0, 0), a.base, a.base));
                found.insert(set, vec![base, delta]);
            } else if self.known.shard(set.shard).is_err() {
                // What is held is of an earlier snapshot.
                far.push(Far { set, delta, base: a.base, shard: a.shard });
            }
        }
        if !far.is_empty() {
            let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
            earlier.load_bases(remote, &[&self.known, catalog], &far)?;
            earlier.find(catalog, held, &far, &mut found)?;
        }
        Ok(found)
    }
}

impl Earlier {
    /// Reads the documents of bases and of their chains.
    fn load_bases(&mut self, remote: &Remote, others: &[&Catalog], far: &[Far]) -> Result<()> {
        let shards: BTreeSet<ShardId> = far.iter().map(|f| f.shard).collect();
        self.load(remote, others, shards.clone())?;
        let there = shards.iter().filter_map(|&id| self.catalog.shard(id).ok());
        let listed = there.flat_map(|s| s.shards.iter().copied()).collect();
        self.load(remote, others, listed)
    }

    fn find(
        &self,
        catalog: &mut Cow<'_, Catalog>,
        held: &Held<'_>,
        far: &[Far],
        found: &mut HashMap<SetId, Vec<SetId>>,
    ) -> Result<()> {
        let shards: BTreeSet<ShardId> = far.iter().map(|f| f.shard).collect();
        let wanted: HashSet<(ShardId, Hash)> = far.iter().map(|f| (f.shard, f.base)).collect();
        let mut bases: HashMap<(ShardId, Hash, u64), SetId> = HashMap::new();
        for &id in &shards {
            let Ok(shard) = self.catalog.shard(id) else { continue };
            for (index, set) in shard.sets.iter().enumerate().filter(|(_, set)| wanted.contains(&(id, set.raw_hash))) {
                bases.entry((id, set.raw_hash, set.raw_len)).or_insert(SetId { shard: id, index });
            }
        }
        for f in far {
            let whole = catalog.set(f.set)?;
            let Some(&base) = bases.get(&(f.shard, f.base, whole.raw_len)) else { continue };
            let room = whole.at.2.saturating_sub(catalog.set(f.delta)?.at.2);
            if let Some(mut chain) = self.chain(held, base, room) {
                catalog.to_mut().insert_from(&self.catalog, chain.iter().map(|set| set.shard));
                chain.push(f.delta);
                found.insert(f.set, chain);
            }
        }
        Ok(())
    }

    /// The chain of a block set from one on that is held, if less than `room` bytes of it are fetched.
    fn chain(&self, held: &Held<'_>, base: SetId, mut room: u64) -> Option<Vec<SetId>> {
        let mut chain = vec![base];
        loop {
            let last = *chain.last()?;
            let set = self.catalog.set(last).ok()?;
            if held.has(set.raw_hash, set.raw_len) {
                chain.reverse();
                return Some(chain);
            }
            // What has several bases is decoded in one piece.
            room = room.checked_sub(set.at.2).filter(|&room| room > 0 && set.others.is_empty())?;
            chain.push(self.catalog.base(last).ok()??);
            if chain.len() >= MAX_CHAIN {
                return None;
            }
        }
    }

    /// Reads documents, as far as they are not in other catalogs either, and can be read.
    fn load(&mut self, remote: &Remote, others: &[&Catalog], mut ids: BTreeSet<ShardId>) -> Result<()> {
        others.iter().for_each(|other| self.catalog.insert_from(other, ids.iter().copied()));
        ids.retain(|id| self.catalog.shard(*id).is_err() && !self.tried.contains(id));
        if ids.len() > MAX_DOCUMENTS {
            return Ok(());
        }
        self.tried.extend(&ids);
        remote.wait(self.catalog.add_available(remote, ids, &mut self.budget));
        remote.check()
    }
}
