//! The parts read so far, and their block sets.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::error::{Error, Result};
use crate::ids::PartId;
use crate::layout;
use crate::manifest::Document;
use crate::manifest::part::{BlockSet, Part, Ref};
use crate::remote::{CONCURRENT, Remote};

/// The longest allowed chain: block sets decoded one after the other to restore the last one.
pub(crate) const MAX_CHAIN: usize = 64;

/// A block set: its part, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SetId {
    pub(crate) part: PartId,
    pub(crate) index: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Catalog {
    parts: HashMap<PartId, Arc<Part>>,
}

impl Catalog {
    /// Reads parts, and the parts that they refer to.
    pub(crate) async fn load(remote: &Remote, ids: &[PartId]) -> Result<Self> {
        Self::load_beside(remote, ids, &Self::default()).await
    }

    /// [`Self::load`], reusing parts that `other` already has.
    pub(crate) async fn load_beside(remote: &Remote, ids: &[PartId], other: &Self) -> Result<Self> {
        let mut catalog = Self::default();
        catalog.add(remote, ids.to_vec(), other).await?;
        let mut more: Vec<PartId> = catalog.parts.values().flat_map(|p| p.parts.iter().copied()).collect();
        more.sort_unstable();
        more.dedup();
        more.retain(|id| !catalog.parts.contains_key(id));
        catalog.add(remote, more, other).await?;
        Ok(catalog)
    }

    async fn add(&mut self, remote: &Remote, mut ids: Vec<PartId>, other: &Self) -> Result<()> {
        ids.retain(|id| match other.parts.get(id) {
            Some(part) => self.parts.insert(*id, part.clone()).is_some(),
            None => true,
        });
        let mut parts = stream::iter(ids).map(|id| read(remote, id)).buffer_unordered(CONCURRENT);
        while let Some((id, part)) = parts.try_next().await.map_err(Error::or_damaged)? {
            self.parts.insert(id, Arc::new(part));
        }
        Ok(())
    }

    /// Adds the parts of another catalog.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.parts.extend(other.parts.iter().map(|(&id, part)| (id, part.clone())));
    }

    /// Adds a part that was just written.
    pub(crate) fn insert(&mut self, id: PartId, part: Part) {
        self.parts.insert(id, Arc::new(part));
    }

    pub(crate) fn part(&self, id: PartId) -> Result<&Arc<Part>> {
        self.parts.get(&id).ok_or_else(|| {
            Error::damaged(format!("{}: is needed, but no part that needs it lists it", layout::part(id)))
        })
    }

    pub(crate) fn set(&self, id: SetId) -> Result<&BlockSet> {
        self.part(id.part)?.sets.get(id.index).ok_or_else(|| {
            Error::damaged(format!(
                "{}: has no block set {}, which another part refers to",
                layout::part(id.part),
                id.index
            ))
        })
    }

    /// Resolves a reference made by a part.
    pub(crate) fn resolve(&self, from: PartId, Ref(part, index): Ref) -> Result<SetId> {
        let part = match part {
            0 => from,
            i => self.part(from)?.parts[i - 1],
        };
        Ok(SetId { part, index })
    }

    /// The base of a block set, if it has one.
    pub(crate) fn base(&self, id: SetId) -> Result<Option<SetId>> {
        self.set(id)?.base.map(|base| self.resolve(id.part, base)).transpose()
    }

    /// The chain of a block set: it and its bases, in the order of decoding, itself last.
    pub(crate) fn chain(&self, id: SetId) -> Result<Vec<SetId>> {
        let mut chain = vec![id];
        while let Some(base) = self.base(*chain.last().expect("a chain is never empty"))? {
            chain.push(base);
            if chain.len() > MAX_CHAIN {
                let part = layout::part(id.part);
                return Err(Error::limit(format!(
                    "{part}: block set {} has a chain of more than {MAX_CHAIN}",
                    id.index
                )));
            }
        }
        chain.reverse();
        Ok(chain)
    }
}

/// Reads a part and checks its hash.
pub(crate) async fn read(remote: &Remote, id: PartId) -> Result<(PartId, Part)> {
    let key = layout::part(id);
    let bytes = remote.get(&key, Part::MAX).await?;
    if PartId::of(&bytes) != id {
        return Err(Error::damaged(format!("{key}: is damaged: its contents do not have the hash that its name says")));
    }
    Ok((id, Part::parse(&bytes).map_err(|e| e.at(&key))?))
}
