//! What it takes to restore snapshots.

use std::collections::BTreeSet;

use crate::catalog::{Catalog, SetId};
use crate::chain;
use crate::error::Result;
use crate::manifest::part::{At, Extent, Ref};
use crate::snapshot::Snapshot;
use crate::store::Store;

/// What restoring all files of a snapshot takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Block sets that are read and decoded: those that the files are made of, and all that these are made from.
    pub block_sets: u64,
    /// Their bytes, as they are stored.
    pub stored_size: u64,
    /// The most block sets that are decoded one after the other for a single one: 1 if nothing is a delta.
    pub longest_chain: u32,
}

impl Cost {
    fn of(catalog: &Catalog, snapshot: &Snapshot) -> Result<Self> {
        let mut sets: BTreeSet<SetId> = BTreeSet::new();
        for &id in &snapshot.parts {
            for &Extent(part, set, ..) in catalog.part(id)?.files.iter().flat_map(|f| &f.extents) {
                sets.insert(catalog.resolve(id, Ref(part, set))?);
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
    /// What restoring each of these snapshots takes. Only parts are read, and what one snapshot shares with the next is read once.
    ///
    /// # Errors
    /// Those of [`Self::open_snapshot`].
    pub fn costs(&self, snapshots: &[Snapshot]) -> Result<Vec<Cost>> {
        let mut catalog = Catalog::default();
        let cost = |s: &Snapshot| {
            catalog = self.remote().wait(Catalog::load_beside(self.remote(), &s.parts, &catalog))?;
            Cost::of(&catalog, s)
        };
        snapshots.iter().map(cost).collect()
    }
}
