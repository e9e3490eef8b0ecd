//! Reachability: the parts, block sets and data objects that snapshots need.

use std::collections::{BTreeMap, HashSet};

use crate::catalog::{Catalog, SetId};
use crate::error::Result;
use crate::ids::{PartId, SaveId};
use crate::manifest::part::{Extent, Ref};

/// A data object.
pub(crate) type ObjectId = (SaveId, usize);

/// Everything that some parts need.
#[derive(Default)]
pub(crate) struct Reach {
    /// The parts, and those that they name.
    pub(crate) parts: HashSet<PartId>,
    /// Block sets that files refer to.
    pub(crate) direct: HashSet<SetId>,
    /// Those, and all of their bases.
    pub(crate) sets: HashSet<SetId>,
    /// The data objects that hold those, with their lengths.
    pub(crate) objects: BTreeMap<ObjectId, u64>,
}

impl Reach {
    /// Adds what the files of some parts need. The catalog must hold these parts.
    pub(crate) fn add(&mut self, catalog: &Catalog, parts: &[PartId]) -> Result<()> {
        for &id in parts {
            self.parts.insert(id);
            self.parts.extend(&catalog.part(id)?.parts);
            for set in files_of(catalog, id)? {
                self.direct.insert(set);
                self.add_chain(catalog, set)?;
            }
        }
        Ok(())
    }

    fn add_chain(&mut self, catalog: &Catalog, set: SetId) -> Result<()> {
        let mut next = Some(set);
        // A set reached before has its chain here. This also ends cycles.
        while let Some(set) = next.filter(|&s| self.sets.insert(s)) {
            let object = object_of(catalog, set)?;
            self.objects.insert(object, catalog.part(set.part)?.objects[object.1]);
            next = catalog.base(set)?;
        }
        Ok(())
    }
}

/// The sets that the files of a part refer to, each once, in order of first use.
pub(crate) fn files_of(catalog: &Catalog, part: PartId) -> Result<Vec<SetId>> {
    let mut seen = HashSet::new();
    let mut sets = Vec::new();
    for &Extent(of, set, ..) in catalog.part(part)?.files.iter().flat_map(|f| &f.extents) {
        let id = catalog.resolve(part, Ref(of, set))?;
        if seen.insert(id) {
            catalog.set(id)?;
            sets.push(id);
        }
    }
    Ok(sets)
}

/// The data object that holds a set.
pub(crate) fn object_of(catalog: &Catalog, set: SetId) -> Result<ObjectId> {
    Ok((catalog.part(set.part)?.save, catalog.set(set)?.at.0))
}
