//! The contents of tensors, as bytes of block sets; and how data from the store reach the tensors.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use lmc::ReadAt;

use crate::chunks::catalog::Catalog;
use crate::chunks::gather::{Gather, Located, Sink, Take};
use crate::chunks::held::{Held, end_of};
use crate::error::Result;
use crate::format::ids::{Hash, RunId, SaveId, Step};
use crate::format::manifest::shard::BlockSet;
use crate::ops::restore::SnapshotReader;

/// The contents of the tensors.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) step: Step,
    pub(super) id: SaveId,
    pub(super) run: RunId,
    /// Where the bytes of each tensor are stored, in order; nothing for one that holds none of them.
    pub(super) places: Vec<Vec<Place>>,
    /// Raw bytes of block sets that the tensors hold only parts of, up to a limit.
    pub(super) kept: HashMap<Hash, Arc<[u8]>>,
    /// The documents of the snapshot: most of those of the next one.
    pub(super) catalog: Catalog,
}

/// Bytes of a tensor, and the block set that has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Offset in the tensor.
    pub(super) offset: u64,
    /// Of the set's raw bytes.
    pub(super) hash: Hash,
    pub(super) raw_len: u64,
    /// Offset in the set.
    pub(super) from: u64,
    pub(super) len: u64,
}

impl Place {
    /// The block set, as hash and length: documents may say of one hash that it has several lengths.
    pub(super) fn set(&self) -> (Hash, u64) {
        (self.hash, self.raw_len)
    }

    /// Whether a tensor has the bytes of this block set.
    pub(super) fn is_in(&self, tensor: &dyn ReadAt, raw: &[u8]) -> bool {
        let end = self.from.checked_add(self.len).and_then(|end| usize::try_from(end).ok());
        let Some(expected) = end.and_then(|end| raw.get(self.from as usize..end)) else { return false };
        let mut there = vec![0; expected.len()];
        tensor.read_exact_at(&mut there, self.offset).is_ok() && there == expected
    }
}

/// The most bytes of block sets that are kept, besides four times those of the tensors. A block set that is not kept is
/// decoded from the beginning of its chain each time.
const LEAST_KEPT: u64 = 1 << 28;

/// A block set that is kept, by the hash of its raw bytes; or none.
pub(super) type Kept = Option<(Hash, Arc<[u8]>)>;

/// The destination of bytes from the store.
pub(super) enum To<'a> {
    Memory(&'a mut [u8]),
    /// The new bytes of a tensor from an offset on.
    Tensor(usize, u64),
    /// The block sets that are kept.
    Kept(Hash),
}

impl State {
    /// The state of tensors with these extents. Block sets that must be kept are taken from `before`, or gathered.
    pub(super) fn begin(
        reader: &SnapshotReader,
        run: RunId,
        extents: &[Vec<Located>],
        before: &HashMap<Hash, Arc<[u8]>>,
        gather: &mut Gather<To<'_>>,
    ) -> Result<Self> {
        let place = |e: &Located| {
            let set = reader.catalog().set(e.set)?;
            Ok(Place { offset: e.offset, hash: set.raw_hash, raw_len: set.raw_len, from: e.from, len: e.len })
        };
        let places = extents.iter().map(|e| e.iter().map(place).collect()).collect::<Result<Vec<Vec<_>>>>()?;
        let (snapshot, catalog) = (reader.snapshot(), reader.catalog().clone());
        let mut state = Self { step: snapshot.step, id: snapshot.id, run, places, kept: HashMap::new(), catalog };
        let mut done = state.whole_sets();
        let of_tensors: u64 = state.places.iter().flatten().map(|p| p.len).sum();
        let mut budget = of_tensors.saturating_mul(4).saturating_add(LEAST_KEPT);
        for (place, extent) in state.places.iter().flatten().zip(extents.iter().flatten()) {
            if !done.insert(place.set()) || place.raw_len > budget {
                continue;
            }
            budget -= place.raw_len;
            match before.get(&place.hash).filter(|raw| raw.len() as u64 == place.raw_len) {
                Some(raw) => _ = state.kept.insert(place.hash, raw.clone()),
                None => {
                    let whole = Located { offset: 0, set: extent.set, from: 0, len: place.raw_len };
                    gather.add(&[whole], 0..place.raw_len, |_, _| To::Kept(place.hash));
                }
            }
        }
        Ok(state)
    }

    /// Gathers everything, and keeps the block sets that must be kept. `put` gets the new bytes of tensors, `list`
    /// deltas of their contents; if these are lists of changes, it returns block sets to be kept.
    pub(super) fn run(
        &mut self,
        reader: &SnapshotReader,
        gather: Gather<To<'_>>,
        held: &Held<'_>,
        put: impl Fn(usize, u64, &[u8]) -> Result<()> + Sync,
        list: impl Fn(&[Take<To<'_>>], &BlockSet, &BlockSet, &[Bytes]) -> Result<Option<Kept>> + Sync,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        reader.gather(gather, held, &Destinations { kept: Mutex::new(&mut self.kept), put, list }, progress)
    }

    /// The place of a tensor's bytes from an offset on, if an extent begins there.
    pub(super) fn place_at(&self, tensor: usize, offset: u64) -> Option<&Place> {
        let places = &self.places[tensor];
        places.binary_search_by_key(&offset, |p| p.offset).ok().map(|i| &places[i])
    }

    /// The block sets that the tensors hold whole, as hash and length.
    pub(super) fn whole_sets(&self) -> HashSet<(Hash, u64)> {
        let mut parts: Vec<&Place> = self.places.iter().flatten().collect();
        parts.sort_unstable_by_key(|p| (p.set(), p.from));
        let whole = |parts: &&[&Place]| end_of(parts.iter().map(|p| (p.from, p.len))) == parts[0].raw_len;
        parts.chunk_by(|a, b| a.set() == b.set()).filter(whole).map(|parts| parts[0].set()).collect()
    }

    /// The block sets in the tensors, as far as these are sound, and those that are kept.
    pub(super) fn held<'a>(&'a self, tensors: &[&'a dyn ReadAt], is_sound: impl Fn(usize, &Place) -> bool) -> Held<'a> {
        let mut held = Held::default();
        for (t, (&tensor, places)) in tensors.iter().zip(&self.places).enumerate() {
            for p in places.iter().filter(|p| !self.kept.contains_key(&p.hash) && is_sound(t, p)) {
                let read = |buf: &mut [u8], at| tensor.read_exact_at(buf, p.offset + at);
                held.add(read, [(p.hash, p.from, p.len)]);
            }
        }
        for (&hash, raw) in &self.kept {
            held.add(|buf, at| raw.read_exact_at(buf, at), [(hash, 0, raw.len() as u64)]);
        }
        held
    }
}

/// Puts gathered bytes to their destinations.
struct Destinations<'k, P, L> {
    kept: Mutex<&'k mut HashMap<Hash, Arc<[u8]>>>,
    put: P,
    list: L,
}

impl<P, L> Sink<To<'_>> for Destinations<'_, P, L>
where
    P: Fn(usize, u64, &[u8]) -> Result<()> + Sync,
    L: Fn(&[Take<To<'_>>], &BlockSet, &BlockSet, &[Bytes]) -> Result<Option<Kept>> + Sync,
{
    fn put(&self, to: To<'_>, bytes: &[u8]) -> Result<()> {
        match to {
            To::Memory(out) => out.copy_from_slice(bytes),
            To::Tensor(tensor, offset) => (self.put)(tensor, offset, bytes)?,
            To::Kept(hash) => _ = self.kept.lock().expect("no panic while it is held").insert(hash, bytes.into()),
        }
        Ok(())
    }

    fn put_deltas(&self, takes: &[Take<To<'_>>], held: &BlockSet, set: &BlockSet, deltas: &[Bytes]) -> Result<bool> {
        let Some(kept) = (self.list)(takes, held, set, deltas)? else { return Ok(false) };
        self.kept.lock().expect("no panic while it is held").extend(kept);
        Ok(true)
    }
}

/// Gathers the new bytes of an extent of a tensor.
pub(super) fn add(gather: &mut Gather<To<'_>>, tensor: usize, extent: &Located) {
    let range = extent.offset..extent.offset + extent.len;
    gather.add(&[*extent], range, |offset, _| To::Tensor(tensor, offset));
}

pub(super) fn no_list(_: &[Take<To<'_>>], _: &BlockSet, _: &BlockSet, _: &[Bytes]) -> Result<Option<Kept>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_a_block_set_are_not_in_it() {
        let (hash, raw) = (Hash::of(b"raw"), b"0123456789");
        let place = |from, len| Place { offset: 1, hash, raw_len: from + len, from, len };
        let tensor: &dyn ReadAt = &&b"x3456789"[..];
        assert!(place(3, 4).is_in(tensor, raw) && place(3, 7).is_in(tensor, raw) && place(10, 0).is_in(tensor, raw));
        for (from, len) in [(2, 4), (3, 8), (10, 1), (11, 0), (1 << 40, 5), (0, 1 << 60)] {
            assert!(!place(from, len).is_in(tensor, raw), "{from} {len}");
        }
        let overflows = Place { raw_len: 0, from: u64::MAX, ..place(0, 4) };
        assert!(!overflows.is_in(tensor, raw));
    }

    #[test]
    fn sets_of_one_hash_and_several_lengths_are_several() {
        let hash = Hash::of(b"raw");
        let place = |raw_len, from, len| Place { offset: 0, hash, raw_len, from, len };
        let places = vec![vec![place(8, 0, 4), place(4, 0, 4)], vec![place(9, 4, 5)]];
        let (step, id, run) = (Step::new(1).unwrap(), "01".repeat(16).parse().unwrap(), RunId::new([1; 16]));
        let state = State { step, id, run, places, kept: HashMap::new(), catalog: Catalog::default() };
        assert_eq!(state.whole_sets(), HashSet::from([(hash, 4)]));
    }
}
