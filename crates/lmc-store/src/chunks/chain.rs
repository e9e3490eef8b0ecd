//! Decoding of block sets: fetched, each decoded after its base, and verified.

use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;
use futures::future::try_join_all;
use lmc::{Base, ChangedElements, DecompressOptions, Decompressor};
use object_store::path::Path;

use crate::chunks::catalog::{Catalog, SetId};
use crate::chunks::reach::object_of;
use crate::error::{Error, Result};
use crate::format::ids::Hash;
use crate::format::keys;
use crate::format::manifest::shard::{At, BlockSet};
use crate::objects::buffer::Buffer;
use crate::objects::remote::{Begun, Remote};

/// The locations of block sets to fetch.
fn places(catalog: &Catalog, sets: &[SetId]) -> Result<Vec<(Path, Range<u64>)>> {
    let place = |&id: &SetId| {
        let (At(_, offset, len), (save, number)) = (catalog.set(id)?.at, object_of(catalog, id)?);
        Ok((keys::data(save, number), offset..offset + len))
    };
    sets.iter().map(place).collect()
}

async fn get_all(remote: &Remote, places: Vec<(Path, Range<u64>)>) -> Result<Vec<Bytes>> {
    let get = |(key, range): (Path, Range<u64>)| async move {
        remote.get_range(&key, range).await.map_err(Error::or_damaged)
    };
    try_join_all(places.into_iter().map(get)).await
}

/// Starts fetching block sets, all at once.
pub(crate) fn begin(remote: &Remote, catalog: &Catalog, sets: &[SetId]) -> Result<Begun<Vec<Bytes>>> {
    let (places, here) = (places(catalog, sets)?, remote.clone());
    Ok(remote.begin(async move { get_all(&here, places).await }))
}

/// Waits for the block sets that [`begin`] requested. Their hashes are not verified: those of the raw bytes that they
/// decode to say the same.
pub(crate) fn finish(remote: &Remote, begun: Result<Begun<Vec<Bytes>>>) -> Result<Vec<Bytes>> {
    remote.finish(begun?)
}

/// Verifies the hashes of stored block sets.
pub(crate) fn verify(catalog: &Catalog, sets: &[SetId], stored: &[Bytes]) -> Result<()> {
    for (&id, bytes) in sets.iter().zip(stored) {
        if Hash::of(bytes) != catalog.set(id)?.hash {
            return Err(damaged(catalog, id, "is not what was written there"));
        }
    }
    Ok(())
}

/// Fetches block sets, all at once, and verifies their hashes.
pub(crate) fn fetch(remote: &Remote, catalog: &Catalog, sets: &[SetId]) -> Result<Vec<Bytes>> {
    let stored = finish(remote, begin(remote, catalog, sets))?;
    verify(catalog, sets, &stored)?;
    Ok(stored)
}

/// A set of chains that together contain all these block sets. A base has no chain of its own: it is decoded on the way.
pub(crate) fn covering(catalog: &Catalog, sets: impl IntoIterator<Item = SetId>) -> Result<Vec<Vec<SetId>>> {
    let mut chains = sets.into_iter().map(|set| catalog.chain(set)).collect::<Result<Vec<_>>>()?;
    let inner: HashSet<SetId> = chains.iter().flat_map(|c| &c[..c.len() - 1]).copied().collect();
    chains.retain(|c| !inner.contains(&c[c.len() - 1]));
    Ok(chains)
}

/// Where a block set is, for messages.
fn location(catalog: &Catalog, id: SetId) -> String {
    let place = match (object_of(catalog, id), catalog.set(id)) {
        (Ok((save, number)), Ok(&BlockSet { at: At(_, offset, len), .. })) => {
            format!("{}: bytes {offset}..{}", keys::data(save, number), offset + len)
        }
        _ => keys::shard(id.shard).to_string(),
    };
    format!("{place} (block set {} of {})", id.index, keys::shard(id.shard))
}

/// The error of a block set that is damaged, with its location.
fn damaged(catalog: &Catalog, id: SetId, what: impl std::fmt::Display) -> Error {
    let e = Error::damaged(format!("{}: {what}", location(catalog, id)));
    match object_of(catalog, id) {
        Ok((save, number)) => e.of(&keys::data(save, number)),
        Err(_) => e,
    }
}

/// The error of a block set that is what was written there. If a newer lmc can decode it, or one with more memory, it is
/// not damaged.
pub(crate) fn undecodable(catalog: &Catalog, id: SetId, e: lmc::Error) -> Error {
    match e.kind() {
        lmc::ErrorKind::Unsupported | lmc::ErrorKind::Limit => Error::codec(e).at(location(catalog, id)),
        _ => damaged(catalog, id, e),
    }
}

fn len_of(set: &BlockSet) -> usize {
    usize::try_from(set.raw_len).expect("raw_len is at most MAX_RAW")
}

/// Whether each block set of a chain is decoded from the one before it alone.
pub(crate) fn is_linear(catalog: &Catalog, chain: &[SetId]) -> Result<bool> {
    for &id in chain {
        if !catalog.set(id)?.others.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// For each block set of a chain, the positions of those that it is decoded with. One that is not in the chain has the raw bytes of the one
/// before.
fn bases_in(catalog: &Catalog, chain: &[SetId]) -> Result<Vec<Vec<usize>>> {
    let of = |i: usize| -> Result<Vec<usize>> {
        let position = |base: SetId| chain[..i].iter().position(|&id| id == base).or(i.checked_sub(1));
        Ok(catalog.bases(chain[i])?.into_iter().filter_map(position).collect())
    };
    (0..chain.len()).map(of).collect()
}

/// A decoded block set.
#[derive(Default)]
struct Link {
    raw: Buffer,
    /// `lmc`'s own hash of `raw`, with which a delta identifies its base, if it is known.
    content_hash: Option<[u8; 16]>,
}

impl Link {
    /// Applies a delta, if it is a list of changes, and the result is to have `len` bytes. Returns whether it did.
    fn apply(&mut self, list: &mut ChangedElements, delta: &Bytes, len: usize) -> lmc::Result<bool> {
        if self.raw.len() != len || !list.read(&&delta[..], &&self.raw[..])? {
            return Ok(false);
        }
        list.apply(&mut self.raw);
        self.content_hash = None;
        Ok(true)
    }

    fn as_base(&self) -> lmc::Result<Base<'_>> {
        let base = Base::new(&self.raw[..])?;
        Ok(match self.content_hash {
            Some(hash) => base.with_hash(hash),
            None => base,
        })
    }
}

/// Decodes chains, one after the other, reusing buffers.
pub(crate) struct ChainDecoder {
    decompressor: Decompressor,
    last: Link,
    spare: Vec<Buffer>,
    /// Memory for lists of changes, if these are applied to their bases, and not decoded.
    list: Option<ChangedElements>,
}

impl ChainDecoder {
    pub(crate) fn new() -> Result<Self> {
        // Block sets are decoded in parallel; each by one thread.
        let o = DecompressOptions::default().with_threads(1);
        let decompressor = Decompressor::new(&o).map_err(Error::codec)?;
        Ok(Self { decompressor, last: Link::default(), spare: vec![], list: None })
    }

    /// One that applies deltas which are lists of changes to their bases, which takes less time. Which base a delta names
    /// is not compared then: the raw hashes of block sets that are wanted say whether it was the right one.
    pub(crate) fn applying_lists() -> Result<Self> {
        Ok(Self { list: Some(ChangedElements::default()), ..Self::new()? })
    }

    /// The raw bytes of the last block set of a chain, and the hash that a delta against them records.
    pub(crate) fn decode(&mut self, catalog: &Catalog, chain: &[SetId], stored: &[Bytes]) -> Result<(&[u8], [u8; 16])> {
        self.decode_each(catalog, chain, stored, &[chain.len() - 1], |_| Ok(()))?;
        Ok((&self.last.raw, self.last.content_hash.expect("a decoded block set has one")))
    }

    /// Decodes a chain. For each block set in `wanted` (ascending positions in the chain), verifies the raw hash and passes the raw bytes
    /// to `take`.
    pub(crate) fn decode_each(
        &mut self,
        catalog: &Catalog,
        chain: &[SetId],
        stored: &[Bytes],
        wanted: &[usize],
        take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.decode_after(catalog, chain, &[], |_, _| Ok(()), stored, wanted, take)
    }

    /// [`Self::decode_each`] of a chain some of whose block sets are not stored but `at_hand` (ascending positions): `read` fills a
    /// buffer with the raw bytes of one.
    #[expect(clippy::too_many_arguments, reason = "each is of another kind")]
    pub(crate) fn decode_after(
        &mut self,
        catalog: &Catalog,
        chain: &[SetId],
        at_hand: &[usize],
        mut read: impl FnMut(SetId, &mut [u8]) -> Result<()>,
        stored: &[Bytes],
        mut wanted: &[usize],
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let fetched = without(chain, at_hand);
        // Names the block set that is damaged, which may be an earlier one. The hashes come first: altered bytes may look
        // like those of a newer lmc.
        let fault = |e: Error| verify(catalog, &fetched, stored).err().unwrap_or(e);
        let bases = bases_in(catalog, chain)?;
        let mut last_use = vec![0; chain.len()];
        let is_at_hand = |i: &usize| at_hand.binary_search(i).is_ok();
        for i in (0..chain.len()).filter(|i| !is_at_hand(i)) {
            bases[i].iter().for_each(|&base| last_use[base] = i);
        }
        self.spare.push(std::mem::take(&mut self.last).raw);
        let mut stored = stored.iter();
        let mut decoded: Vec<Option<Link>> = Vec::with_capacity(chain.len());
        for (i, &id) in chain.iter().enumerate() {
            let set = catalog.set(id)?;
            let len = len_of(set);
            let link = if is_at_hand(&i) {
                let mut link = Link { raw: self.spare.pop().unwrap_or_default(), content_hash: None };
                read(id, link.raw.reset(len))?;
                link
            } else {
                let delta = stored.next().expect("what is not at hand is stored");
                let changed = match (&mut self.list, &bases[i][..]) {
                    (Some(list), &[base]) if last_use[base] == i => {
                        let applied = decoded[base].as_mut().map_or(Ok(false), |link| link.apply(list, delta, len));
                        let applied = applied.map_err(|e| fault(undecodable(catalog, id, e)))?;
                        if applied { decoded[base].take() } else { None }
                    }
                    _ => None,
                };
                match changed {
                    Some(link) => link,
                    None => {
                        let mut raw = self.spare.pop().unwrap_or_default();
                        let of = bases[i].iter().filter_map(|&base| decoded[base].as_ref());
                        let of: Vec<Base<'_>> =
                            of.map(Link::as_base).collect::<lmc::Result<_>>().map_err(Error::codec)?;
                        let done = self.decompressor.decompress(&delta[..], &of, raw.reset(len));
                        let done = done.map_err(|e| fault(undecodable(catalog, id, e)))?;
                        Link { raw, content_hash: Some(done.content_hash) }
                    }
                }
            };
            if let Some(rest) = wanted.strip_prefix(&[i]) {
                wanted = rest;
                if Hash::of(&link.raw) != set.raw_hash {
                    return Err(fault(damaged(catalog, id, "does not decode to what was saved")));
                }
                take(&link.raw)?;
            }
            decoded.push(Some(link));
            for link in bases[i].iter().filter(|&&base| last_use[base] == i).filter_map(|&base| decoded[base].take()) {
                self.spare.push(link.raw);
            }
        }
        self.last = decoded.pop().flatten().unwrap_or_default();
        self.spare.extend(decoded.into_iter().flatten().map(|link| link.raw));
        Ok(())
    }
}

/// The block sets of a chain but for those at these positions, which ascend.
pub(crate) fn without(chain: &[SetId], at_hand: &[usize]) -> Vec<SetId> {
    (0..chain.len()).filter(|i| at_hand.binary_search(i).is_err()).map(|i| chain[i]).collect()
}

#[cfg(test)]
mod tests {
    use lmc::{CompressOptions, Compressor, Level};

    use super::*;

    #[test]
    fn lists_are_applied_to_the_base() {
        let old: Vec<u8> = (0..1u32 << 17).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let delta = |new: &[u8]| -> Bytes {
            let mut delta = Vec::new();
            let mut compressor = Compressor::new(&CompressOptions::default().with_level(Level::Fast)).unwrap();
            compressor.compress(new, &[Base::new(&old).unwrap()], &mut delta).unwrap();
            delta.into()
        };
        let mut new = old.clone();
        new.iter_mut().step_by(500).for_each(|b| *b ^= 1);
        let dense: Vec<u8> = old.iter().map(|b| b.wrapping_mul(77) ^ 0x5a).collect();
        let (list, dense) = (delta(&new), delta(&dense));
        let hash = Some([1; 16]);
        let mut list_of = ChangedElements::default();
        let mut link = Link::default();
        link.raw.reset(old.len()).copy_from_slice(&old);
        link.content_hash = hash;
        assert!(!link.apply(&mut list_of, &dense, old.len()).unwrap());
        assert!(link.raw[..] == old[..] && link.content_hash == hash);
        // To another length than that of the block set.
        for len in [0, old.len() - 1, old.len() + 1, 2 * old.len()] {
            assert!(!link.apply(&mut list_of, &list, len).unwrap() && link.raw[..] == old[..], "{len} bytes");
        }
        assert!(link.apply(&mut list_of, &list, old.len()).unwrap() && link.raw[..] == new[..]);
        assert_eq!(link.content_hash, None, "it was that of the base");
        assert!(link.apply(&mut list_of, &list.slice(..list.len() - 1), old.len()).is_err());
        // Of a base of another length.
        link.raw.reset(old.len() - 1);
        assert!(!link.apply(&mut list_of, &list, old.len() - 1).unwrap());
    }
}
