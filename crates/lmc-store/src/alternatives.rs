//! Alternatives of block sets: deltas with the same raw bytes, for readers that hold their base (`docs/store.md` §4).

use std::collections::{HashMap, HashSet};

use crate::catalog::{Catalog, MAX_CHAIN, SetId};
use crate::error::Result;
use crate::held::Held;
use crate::ids::ShardId;
use crate::remote::Remote;

pub(crate) struct Alternatives {
    of: HashMap<SetId, SetId>,
}

impl Alternatives {
    /// The alternatives of block sets that have no base. The catalog gets the shards that hold their chains, as far as
    /// these are there.
    pub(crate) fn find(remote: &Remote, catalog: &mut Catalog, sets: impl IntoIterator<Item = SetId>) -> Result<Self> {
        let wanted: HashSet<SetId> = sets.into_iter().collect();
        let shards: HashSet<ShardId> = wanted.iter().map(|set| set.shard).collect();
        let (mut of, mut needed) = (HashMap::new(), HashSet::new());
        for id in shards {
            let shard = catalog.shard(id)?;
            let wanted = |&index: &usize| wanted.contains(&SetId { shard: id, index });
            let plain: HashMap<_, usize> = (0..shard.sets.len())
                .filter(wanted)
                .map(|index| ((shard.sets[index].raw_hash, shard.sets[index].raw_len), index))
                .collect();
            for (index, set) in shard.sets.iter().enumerate().filter(|(_, set)| set.base.is_some()) {
                if let Some(&plain) = plain.get(&(set.raw_hash, set.raw_len)) {
                    of.insert(SetId { shard: id, index: plain }, SetId { shard: id, index });
                    needed.extend(&shard.shards);
                }
            }
        }
        for id in needed {
            // A shard that is gone was pruned: only readers that are far behind would need it.
            if catalog.shard(id).is_err()
                && let Ok((_, shard, _)) = remote.wait(crate::catalog::read(remote, id))
            {
                catalog.insert(id, shard);
            }
        }
        Ok(Self { of })
    }

    /// What is decoded in place of a block set: a block set that is held, and the deltas from there on, if they have
    /// fewer bytes.
    pub(crate) fn chain(&self, catalog: &Catalog, set: SetId, held: &Held<'_>) -> Option<Vec<SetId>> {
        let limit = catalog.set(set).ok()?.at.2;
        let mut chain = vec![*self.of.get(&set)?];
        let mut stored = 0;
        loop {
            let last = *chain.last()?;
            stored += catalog.set(last).ok()?.at.2;
            let base = catalog.base(last).ok()??;
            chain.push(base);
            let set = catalog.set(base).ok()?;
            if held.has(set.raw_hash, set.raw_len) {
                break;
            }
            if stored >= limit || chain.len() > MAX_CHAIN {
                return None;
            }
        }
        chain.reverse();
        Some(chain).filter(|_| stored < limit)
    }
}
