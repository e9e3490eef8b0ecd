//! Reachability: the shards, block sets and data objects that snapshots need.

use std::collections::{BTreeMap, HashSet};

use crate::chunks::catalog::{Catalog, SetId};
use crate::error::{Error, Result};
use crate::format::ids::{SaveId, ShardId};
use crate::format::keys;
use crate::format::manifest::shard::{Extent, Ref};

/// A data object.
pub(crate) type ObjectId = (SaveId, usize);

/// Everything that some shards need.
#[derive(Default)]
pub(crate) struct Reach {
    /// The shards, and those that they name.
    pub(crate) shards: HashSet<ShardId>,
    /// Block sets that files refer to.
    pub(crate) direct: HashSet<SetId>,
    /// Those, and all of their bases.
    pub(crate) sets: HashSet<SetId>,
    /// The data objects that hold those, with their lengths.
    pub(crate) objects: BTreeMap<ObjectId, u64>,
}

impl Reach {
    /// Adds the sets and objects that the files of some shards need. The catalog must hold these shards.
    pub(crate) fn add(&mut self, catalog: &Catalog, shards: &[ShardId]) -> Result<()> {
        for &id in shards {
            self.shards.insert(id);
            self.shards.extend(&catalog.shard(id)?.shards);
            for set in files_of(catalog, id)? {
                self.direct.insert(set);
                self.add_chain(catalog, set)?;
            }
        }
        Ok(())
    }

    fn add_chain(&mut self, catalog: &Catalog, set: SetId) -> Result<()> {
        let mut next = vec![set];
        while let Some(set) = next.pop() {
            // A set reached before has its chain here. This also ends cycles.
            if self.sets.insert(set) {
                let (object, len) = stored_in(catalog, set)?;
                self.objects.insert(object, len);
                next.extend(catalog.bases(set)?);
            }
        }
        Ok(())
    }
}

/// The sets that the files of a shard refer to, each once, in order of first use.
pub(crate) fn files_of(catalog: &Catalog, shard: ShardId) -> Result<Vec<SetId>> {
    let mut seen = HashSet::new();
    let mut sets = Vec::new();
    for &Extent(of, set, ..) in catalog.shard(shard)?.files.iter().flat_map(|f| &f.extents) {
        let id = catalog.resolve(shard, Ref(of, set))?;
        if seen.insert(id) {
            catalog.set(id)?;
            sets.push(id);
        }
    }
    Ok(sets)
}

/// The data object that holds a set.
pub(crate) fn object_of(catalog: &Catalog, set: SetId) -> Result<ObjectId> {
    stored_in(catalog, set).map(|(object, _)| object)
}

/// [`object_of`], and its length according to the shard that lists it.
pub(crate) fn stored_in(catalog: &Catalog, set: SetId) -> Result<(ObjectId, u64)> {
    let index = catalog.set(set)?.at.0;
    let object = catalog.shard(set.shard)?.object(index);
    let (save, number, len) = object.ok_or_else(|| {
        Error::damaged(format!("{}: has no data object {index}, where a block set is", keys::shard(set.shard)))
    })?;
    Ok(((save, number), len))
}
