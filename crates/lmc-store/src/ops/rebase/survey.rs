//! Surveying data that only pruned snapshots would need otherwise, and planning how re-basing treats each block set.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::chunks::catalog::{Catalog, SetId};
use crate::chunks::reach::{ObjectId, Reach, files_of, object_of};
use crate::error::Result;
use crate::format::ids::{Hash, ShardId};
use crate::format::manifest::shard::{At, BlockSet};

/// A chain of more block sets than this counts as long: all of them are decoded to restore the last.
const LONG: usize = 16;

/// How re-basing treats a block set. Hashes are of the raw bytes of sets that stay or are written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Stay,
    /// Replaced by an existing set with the same bytes.
    Same(Hash),
    /// Copied verbatim: another set has the same raw bytes as its base.
    Copy(Option<Hash>),
    /// Encoded again.
    Encode(Option<Hash>),
}

/// Everything that some snapshots need.
pub(super) struct Survey {
    pub(super) catalog: Catalog,
    /// Sets that stay, with all of their bases.
    settled: HashSet<SetId>,
    /// Possible bases, by hash of the raw bytes.
    known: HashMap<Hash, SetId>,
    /// Data objects, and their lengths in bytes.
    objects: BTreeMap<ObjectId, u64>,
}

/// The gain of re-basing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Bytes of all data objects that the snapshots need.
    pub(crate) before: u64,
    /// Estimate of the same after re-basing.
    pub(crate) after: u64,
    /// Length of the longest chain that would become shorter.
    longest: usize,
}

impl Estimate {
    /// Re-basing reads and writes whole snapshots. It pays when a quarter of the data that they need becomes free, or
    /// where chains are long.
    pub(crate) fn pays(&self) -> bool {
        self.after <= self.before - self.before / 4 && self.before > 0 || self.longest > LONG
    }
}

impl Survey {
    /// Surveys all snapshots of a store, given by their shards, whose documents the catalog has.
    pub(super) fn new(catalog: Catalog, snapshots: &[&[ShardId]]) -> Result<Self> {
        let mut reach = Reach::default();
        reach.add(&catalog, &snapshots.concat())?;
        let mut used: HashMap<ObjectId, u64> = HashMap::new();
        for &set in &reach.direct {
            *used.entry(object_of(&catalog, set)?).or_default() += stored(catalog.set(set)?);
        }
        // Objects stay if files use at least half of them.
        let stays = |object: &ObjectId| used.get(object).is_some_and(|&used| used >= reach.objects[object] / 2);
        let (mut settled, mut known) = (HashSet::new(), HashMap::new());
        let mut sets: Vec<SetId> = reach.sets.iter().copied().collect();
        sets.sort_unstable();
        for set in sets {
            let objects = catalog.chain(set)?.into_iter().map(|link| object_of(&catalog, link));
            if objects.collect::<Result<Vec<_>>>()?.iter().all(stays) {
                settled.insert(set);
                known.entry(catalog.set(set)?.raw_hash).or_insert(set);
            }
        }
        Ok(Self { catalog, settled, known, objects: reach.objects })
    }

    /// How re-basing treats a set.
    pub(super) fn decide(&self, set: SetId) -> Result<Move> {
        self.decide_with(set, |raw_hash| self.known.contains_key(&raw_hash))
    }

    fn decide_with(&self, set: SetId, known: impl Fn(Hash) -> bool) -> Result<Move> {
        if self.settled.contains(&set) {
            return Ok(Move::Stay);
        }
        let chain = self.catalog.line(set)?;
        let alone = self.catalog.set(set)?.others.is_empty();
        for (i, &link) in chain.iter().rev().enumerate() {
            let raw_hash = self.catalog.set(link)?.raw_hash;
            if known(raw_hash) {
                return Ok(match i {
                    0 => Move::Same(raw_hash),
                    1 if alone => Move::Copy(Some(raw_hash)),
                    _ => Move::Encode(Some(raw_hash)),
                });
            }
        }
        Ok(if chain.len() == 1 { Move::Copy(None) } else { Move::Encode(None) })
    }

    /// The set that a move refers to by hash.
    pub(super) fn known(&self, raw_hash: Hash) -> SetId {
        self.known[&raw_hash]
    }

    /// Registers the sets of a shard just written.
    pub(super) fn add(&mut self, id: ShardId, shard: crate::format::manifest::shard::Shard) {
        for (index, set) in shard.sets.iter().enumerate() {
            let new = SetId { shard: id, index };
            self.settled.insert(new);
            self.known.entry(set.raw_hash).or_insert(new);
        }
        self.catalog.insert(id, shard);
    }

    /// The gain of re-basing, and which of the snapshots it affects.
    pub(super) fn estimate(&self, snapshots: &[&[ShardId]]) -> Result<(Estimate, Vec<bool>)> {
        let before = total(&self.objects);
        let (mut written, mut longest, mut moves) = (0u64, 0, vec![]);
        let mut planned: HashSet<Hash> = HashSet::new();
        // Data objects that are needed afterwards, too.
        let mut objects: BTreeMap<ObjectId, u64> = BTreeMap::new();
        let mut stays = |set: SetId| -> Result<()> {
            for link in self.catalog.chain(set)? {
                let object = object_of(&self.catalog, link)?;
                objects.insert(object, self.objects[&object]);
            }
            Ok(())
        };
        for shards in snapshots {
            let mut any = false;
            for &shard in *shards {
                let mut new = vec![];
                for set in files_of(&self.catalog, shard)? {
                    let to = self.decide_with(set, |h| self.known.contains_key(&h) || planned.contains(&h))?;
                    let base = match to {
                        Move::Stay => {
                            stays(set)?;
                            continue;
                        }
                        Move::Same(raw_hash) => Some(raw_hash),
                        Move::Copy(base) | Move::Encode(base) => base,
                    };
                    if let Some(&base) = base.and_then(|b| self.known.get(&b)) {
                        stays(base)?;
                    }
                    any = true;
                    longest = longest.max(self.catalog.chain(set)?.len());
                    written = written.saturating_add(self.cost(set, to)?);
                    new.push(self.catalog.set(set)?.raw_hash);
                }
                planned.extend(new);
            }
            moves.push(any);
        }
        let after = total(&objects).saturating_add(written);
        Ok((Estimate { before, after, longest }, moves))
    }

    /// Estimate of the bytes that a move writes.
    fn cost(&self, set: SetId, to: Move) -> Result<u64> {
        let chain = self.catalog.line(set)?;
        let sets = chain.iter().map(|&link| self.catalog.set(link)).collect::<Result<Vec<_>>>()?;
        let own = sets[sets.len() - 1];
        Ok(match to {
            Move::Stay | Move::Same(_) => 0,
            Move::Copy(_) => stored(own),
            // A delta over several steps is about as large as one over a single step: mostly the same low bits change. Not so one that
            // other tensors tell: it is encoded without them.
            Move::Encode(Some(base)) if sets.iter().all(|s| s.others.is_empty()) => {
                let skipped = sets.iter().rev().take_while(|s| s.raw_hash != base);
                skipped.map(|s| stored(s)).max().unwrap_or(0)
            }
            // The first set of the chain is the same tensor, encoded alone.
            Move::Encode(_) => {
                let scaled = u128::from(stored(sets[0])) * u128::from(own.raw_len) / u128::from(sets[0].raw_len.max(1));
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        })
    }
}

fn stored(set: &BlockSet) -> u64 {
    let At(_, _, len) = set.at;
    len
}

/// Sum of object lengths. It may overflow: shards are untrusted.
fn total(objects: &BTreeMap<ObjectId, u64>) -> u64 {
    objects.values().fold(0, |total, len| total.saturating_add(*len))
}
