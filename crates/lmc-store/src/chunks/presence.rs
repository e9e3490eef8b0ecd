//! Whether data objects are there, with the lengths that they were written with: what a new snapshot may refer to
//! (`docs/store.md` §5).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::chunks::catalog::{Catalog, SetId};
use crate::chunks::reach::{ObjectId, stored_in};
use crate::error::{Error, ErrorKind, Result};
use crate::format::keys;
use crate::objects::remote::{RANGES, Remote};

/// A data object, and its length according to the shard that wrote it.
type Written = (ObjectId, u64);

/// Looks at data objects, many at once; returns what is wrong with those that are missing or have another length.
async fn faults(remote: &Remote, objects: impl IntoIterator<Item = Written>) -> Result<BTreeMap<Written, String>> {
    let looked = stream::iter(objects).map(async |written| {
        let ((save, number), len) = written;
        let key = keys::data(save, number);
        let fault = match remote.size(&key).await {
            Ok(size) if size == len => None,
            Ok(size) => Some(format!("{key}: has {size} bytes, but {len} were written")),
            Err(e) if e.kind() == ErrorKind::NotFound => Some(format!("{key}: is missing")),
            // A foreign file is in its place.
            Err(e) if e.kind() == ErrorKind::Damaged => Some(e.to_string()),
            Err(e) => return Err(e),
        };
        Ok(fault.map(|fault| (written, fault)))
    });
    looked.buffer_unordered(RANGES).try_filter_map(async |fault| Ok(fault)).try_collect().await
}

/// The data objects that were looked at, each once.
pub(crate) struct Presence {
    remote: Remote,
    /// With what is wrong with them.
    looked: Mutex<HashMap<Written, Option<String>>>,
    /// Whether one turned out to be altered after others may have been referred to.
    altered: AtomicBool,
}

impl Presence {
    pub(crate) fn new(remote: &Remote) -> Self {
        Self { remote: remote.clone(), looked: Mutex::default(), altered: AtomicBool::new(false) }
    }

    /// Looks at the objects that hold these sets and their bases, all at once.
    pub(crate) fn look(&self, catalog: &Catalog, sets: impl IntoIterator<Item = SetId>) -> Result<()> {
        let (mut seen, mut objects) = (HashSet::new(), BTreeSet::new());
        let mut next: Vec<SetId> = sets.into_iter().collect();
        while let Some(set) = next.pop() {
            if seen.insert(set) {
                objects.insert(stored_in(catalog, set)?);
                next.extend(catalog.bases(set)?);
            }
        }
        {
            let looked = self.looked();
            objects.retain(|object| !looked.contains_key(object));
        }
        if objects.is_empty() {
            return Ok(());
        }
        let mut faults = self.remote.wait(faults(&self.remote, objects.iter().copied()))?;
        let mut looked = self.looked();
        for object in objects {
            // Another thread may have looked at the same time: its answer counts.
            looked.entry(object).or_insert_with(|| faults.remove(&object));
        }
        Ok(())
    }

    /// Whether the objects of a set and of its bases are as they were written.
    pub(crate) fn has(&self, catalog: &Catalog, set: SetId) -> Result<bool> {
        self.look(catalog, [set])?;
        let looked = self.looked();
        for link in catalog.chain(set)? {
            if looked[&stored_in(catalog, link)?].is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What is wrong with the object that holds a set, which was looked at.
    pub(crate) fn fault(&self, catalog: &Catalog, set: SetId) -> Result<Option<String>> {
        Ok(self.looked()[&stored_in(catalog, set)?].clone())
    }

    /// The number of objects that were looked at.
    pub(crate) fn count(&self) -> usize {
        self.looked().len()
    }

    /// Counts an object as lost whose length is right, but not its contents: the one of the set's chain that an error of reading it is
    /// about, or that of the set.
    pub(crate) fn condemn(&self, catalog: &Catalog, set: SetId, e: &Error) -> Result<()> {
        let chain = catalog.chain(set)?.into_iter().map(|link| stored_in(catalog, link)).collect::<Result<Vec<_>>>()?;
        let altered = chain.iter().find(|((save, number), _)| e.object() == Some(&keys::data(*save, *number)));
        let object = altered.or(chain.last()).expect("a chain is never empty");
        self.looked().insert(*object, Some(e.to_string()));
        self.altered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A message about the objects that are not as they were written.
    pub(crate) fn note(&self) -> Option<String> {
        let looked = self.looked();
        let mut faults: Vec<&String> = looked.values().flatten().collect();
        faults.sort_unstable();
        let (first, others) = faults.split_first()?;
        let more = match others.len() {
            0 => String::new(),
            n => format!("; {n} more data objects are missing or damaged"),
        };
        let effect = match self.altered.load(Ordering::Relaxed) {
            true => {
                "what was stored after that was read does not need it, but this snapshot and earlier ones may be lost"
            }
            false => "what the new snapshot needs of this is stored again, but earlier snapshots may be lost",
        };
        Some(format!("{first}{more}; {effect}: lmc snapshot verify names them, with --deep those of altered data, too"))
    }

    fn looked(&self) -> MutexGuard<'_, HashMap<Written, Option<String>>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use object_store::memory::InMemory;

    use super::*;
    use crate::chunks::chain;
    use crate::format::ids::{Hash, SaveId, ShardId};
    use crate::format::manifest::shard::{At, BlockSet, Ref, Shard};

    #[test]
    fn what_an_error_is_about_is_condemned_and_not_what_its_text_contains() {
        let remote = Remote::new(Arc::new(InMemory::new())).unwrap();
        let mut shard = Shard::new(SaveId::new([1; 16]), 0);
        // The key of the second object begins with that of the first.
        shard.objects = vec![0; 1_000_001];
        let hash = Hash::of(b"");
        for (object, base) in [(1_000_000, None), (100_000, Some(Ref(0, 0)))] {
            let age = u32::from(base.is_some());
            shard.sets.push(BlockSet {
                at: At(object, 0, 0),
                hash,
                raw_len: 0,
                raw_hash: hash,
                base,
                others: vec![],
                age,
            });
        }
        let (mut catalog, id) = (Catalog::default(), ShardId::of(b"a"));
        catalog.insert(id, shard);
        let [base, set] = [0, 1].map(|index| SetId { shard: id, index });
        let presence = Presence::new(&remote);
        let e = chain::verify(&catalog, &[base], &[Bytes::from("altered")]).unwrap_err();
        presence.condemn(&catalog, set, &e).unwrap();
        assert!(presence.looked()[&stored_in(&catalog, base).unwrap()].is_some());
        assert!(!presence.looked().contains_key(&stored_in(&catalog, set).unwrap()));
        // An error about none of them is that of the set.
        presence.condemn(&catalog, set, &Error::damaged("it does not decode")).unwrap();
        assert!(presence.looked()[&stored_in(&catalog, set).unwrap()].is_some());
    }
}
