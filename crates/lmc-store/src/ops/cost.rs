//! The cost of restoring snapshots.

use std::collections::{BTreeMap, BTreeSet};

use crate::chunks::catalog::{Budget, Catalog, SetId};
use crate::chunks::chain;
use crate::chunks::reach::Reach;
use crate::error::Result;
use crate::format::manifest::shard::{At, Extent, Ref};
use crate::records::history::Listing;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// The cost of restoring all files of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Number of block sets read and decoded: those of the files, and all of their bases.
    pub block_sets: u64,
    /// Their stored bytes.
    pub stored_size: u64,
    /// Length of the longest chain: block sets decoded one after the other for one of them; 1 if nothing is a delta.
    pub longest_chain: u32,
}

impl Cost {
    fn of(catalog: &Catalog, snapshot: &Snapshot) -> Result<Self> {
        let mut sets: BTreeSet<SetId> = BTreeSet::new();
        for &id in &snapshot.shards {
            for &Extent(shard, set, ..) in catalog.shard(id)?.files.iter().flat_map(|f| &f.extents) {
                sets.insert(catalog.resolve(id, Ref(shard, set))?);
            }
        }
        let mut cost = Self::default();
        for chain in chain::covering(catalog, sets)? {
            cost.block_sets += chain.len() as u64;
            cost.longest_chain = cost.longest_chain.max(chain.len() as u32);
            for link in chain {
                let At(.., len) = catalog.set(link)?.at;
                cost.stored_size = cost.stored_size.saturating_add(len);
            }
        }
        Ok(cost)
    }
}

impl Store {
    /// Bytes of the data objects that the snapshots of a listing need, each counted once. Reads their shards unless the records say it:
    /// [`Listing::needed_size`].
    ///
    /// # Errors
    /// Those of [`Self::open_snapshot`].
    pub fn needed_size(&self, listing: &Listing) -> Result<u64> {
        if let Some(size) = listing.needed_size() {
            return Ok(size);
        }
        let snapshots = &listing.snapshots;
        let mut objects = BTreeMap::new();
        let mut add = |catalog: Result<Catalog>, some: &[Snapshot]| -> Result<()> {
            let (catalog, mut reach) = (catalog?, Reach::default());
            some.iter().try_for_each(|s| reach.add(&catalog, &s.shards))?;
            objects.extend(reach.objects);
            Ok(())
        };
        Catalog::default().load_in_parts(self.remote(), snapshots, &|s| &s.shards, Budget::default(), &mut add)?;
        Ok(objects.into_values().fold(0, u64::saturating_add))
    }

    /// The cost of restoring each of these snapshots; or why it is unknown. Reads only shards.
    ///
    /// # Errors
    /// `Store` when requests fail.
    pub fn costs(&self, snapshots: &[Snapshot]) -> Result<Vec<Result<Cost>>> {
        let mut costs = Vec::with_capacity(snapshots.len());
        let mut add = |catalog: Result<Catalog>, some: &[Snapshot]| -> Result<()> {
            match catalog {
                Ok(catalog) => costs.extend(some.iter().map(|s| Cost::of(&catalog, s))),
                Err(e) => costs.push(Err(e)),
            }
            Ok(())
        };
        Catalog::default().load_in_parts(self.remote(), snapshots, &|s| &s.shards, Budget::default(), &mut add)?;
        Ok(costs)
    }
}
