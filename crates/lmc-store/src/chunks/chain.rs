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

/// Decodes chains, one after the other, reusing buffers.
pub(crate) struct ChainDecoder {
    decompressor: Decompressor,
    raw: Buffer,
    before: Buffer,
    /// `lmc`'s own hash of `raw`, with which a delta identifies its base, if it is known.
    content_hash: Option<[u8; 16]>,
    /// Memory for lists of changes, if these are applied to `raw`, and not decoded.
    list: Option<ChangedElements>,
}

impl ChainDecoder {
    pub(crate) fn new() -> Result<Self> {
        // Block sets are decoded in parallel; each by one thread.
        let o = DecompressOptions::default().with_threads(1);
        let decompressor = Decompressor::new(&o).map_err(Error::codec)?;
        Ok(Self { decompressor, raw: Buffer::default(), before: Buffer::default(), content_hash: None, list: None })
    }

    /// One that applies deltas which are lists of changes to their bases, which takes less time. Which base a delta names
    /// is not compared then: the raw hashes of block sets that are wanted say whether it was the right one.
    pub(crate) fn applying_lists() -> Result<Self> {
        Ok(Self { list: Some(ChangedElements::default()), ..Self::new()? })
    }

    /// The raw bytes of the last block set of a chain, and the hash that a delta against them records.
    pub(crate) fn decode(&mut self, catalog: &Catalog, chain: &[SetId], stored: &[Bytes]) -> Result<(&[u8], [u8; 16])> {
        self.decode_each(catalog, chain, stored, &[chain.len() - 1], |_| Ok(()))?;
        Ok((&self.raw, self.content_hash.expect("a decoded block set has one")))
    }

    /// [`Self::decode_each`] of a chain whose first block set is not stored but read: `read` fills a buffer with its raw bytes.
    pub(crate) fn decode_after(
        &mut self,
        catalog: &Catalog,
        chain: &[SetId],
        read: impl FnOnce(&mut [u8]) -> Result<()>,
        stored: &[Bytes],
        wanted: &[usize],
        take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        read(self.raw.reset(len_of(catalog.set(chain[0])?)))?;
        self.content_hash = None;
        self.decode_links(catalog, chain, 1, stored, wanted, take)
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
        self.decode_links(catalog, chain, 0, stored, wanted, take)
    }

    /// Applies a delta to `raw`, if it is a list of changes of it, lists are applied, and the result is to have `len` bytes. Returns
    /// whether it did.
    fn apply_list(&mut self, delta: &Bytes, len: usize) -> lmc::Result<bool> {
        let Some(list) = self.list.as_mut().filter(|_| self.raw.len() == len) else { return Ok(false) };
        let is_list = list.read(&&delta[..], &&self.raw[..])?;
        if is_list {
            list.apply(&mut self.raw);
            self.content_hash = None;
        }
        Ok(is_list)
    }

    /// `at_hand`: how many block sets at the beginning are decoded: none, or the first, in `raw`.
    fn decode_links(
        &mut self,
        catalog: &Catalog,
        chain: &[SetId],
        at_hand: usize,
        stored: &[Bytes],
        mut wanted: &[usize],
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        // Names the block set that is damaged, which may be an earlier one. The hashes come first: altered bytes may look
        // like those of a newer lmc.
        let fault = |e: Error| verify(catalog, &chain[at_hand..], stored).err().unwrap_or(e);
        for (i, &id) in chain.iter().enumerate() {
            let set = catalog.set(id)?;
            let applied = i > 0 && i >= at_hand && {
                let applied = self.apply_list(&stored[i - at_hand], len_of(set));
                applied.map_err(|e| fault(undecodable(catalog, id, e)))?
            };
            if i >= at_hand && !applied {
                std::mem::swap(&mut self.raw, &mut self.before);
                let base = || -> lmc::Result<Base<'_>> {
                    let base = Base::new(&self.before[..])?;
                    Ok(match self.content_hash {
                        Some(hash) => base.with_hash(hash),
                        None => base,
                    })
                };
                let bases = match i {
                    0 => vec![],
                    _ => vec![base().map_err(Error::codec)?],
                };
                let done = self.decompressor.decompress(&stored[i - at_hand][..], &bases, self.raw.reset(len_of(set)));
                self.content_hash = Some(done.map_err(|e| fault(undecodable(catalog, id, e)))?.content_hash);
            }
            if let Some(rest) = wanted.strip_prefix(&[i]) {
                wanted = rest;
                if Hash::of(&self.raw) != set.raw_hash {
                    return Err(fault(damaged(catalog, id, "does not decode to what was saved")));
                }
                take(&self.raw)?;
            }
        }
        Ok(())
    }
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
        let with_old = |mut decoder: ChainDecoder| {
            decoder.raw.reset(old.len()).copy_from_slice(&old);
            decoder.content_hash = hash;
            decoder
        };
        let mut decoder = with_old(ChainDecoder::applying_lists().unwrap());
        assert!(
            !decoder.apply_list(&dense, old.len()).unwrap()
                && decoder.raw[..] == old[..]
                && decoder.content_hash == hash
        );
        // To another length than that of the block set.
        for len in [0, old.len() - 1, old.len() + 1, 2 * old.len()] {
            assert!(!decoder.apply_list(&list, len).unwrap() && decoder.raw[..] == old[..], "{len} bytes");
        }
        assert!(decoder.apply_list(&list, old.len()).unwrap() && decoder.raw[..] == new[..]);
        assert_eq!(decoder.content_hash, None, "it was that of the base");
        assert!(decoder.apply_list(&list.slice(..list.len() - 1), old.len()).is_err());
        // Of a base of another length.
        decoder.raw.reset(old.len() - 1);
        assert!(!decoder.apply_list(&list, old.len() - 1).unwrap());
        let mut decoder = with_old(ChainDecoder::new().unwrap());
        assert!(!decoder.apply_list(&list, old.len()).unwrap() && decoder.raw[..] == old[..], "it decodes all");
    }
}
