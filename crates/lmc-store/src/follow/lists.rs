//! Deltas that are lists of changes: applied to the tensors, without decoding.

use std::sync::Arc;

use bytes::Bytes;
use lmc::{Dtype, ReadAt};

use super::patch::{Patch, Spares, width};
use super::spec::TensorSpec;
use super::state::{Place, State, To};
use crate::chunks::gather::Take;
use crate::error::Result;
use crate::format::ids::Hash;
use crate::format::manifest::shard::BlockSet;

/// The changes that lists make.
pub(super) struct Listed {
    pub(super) patches: Vec<Patch>,
    /// The new bytes of the block set, if they are to be kept.
    pub(super) kept: Option<(Hash, Arc<[u8]>)>,
}

/// The contents of the tensors, to which lists are applied.
pub(super) struct Lists<'a> {
    pub(super) state: &'a State,
    pub(super) specs: &'a [TensorSpec],
    pub(super) tensors: &'a [&'a dyn ReadAt],
    pub(super) spares: &'a Spares,
}

impl Lists<'_> {
    /// The changes that deltas make in the bytes taken from the last one, `set`. Each delta is from the one before, the
    /// first from a block set that is `held`. `None` if they are no lists, or not of the contents of the tensors: then
    /// the block set is decoded.
    pub(super) fn apply(
        &self,
        takes: &[Take<To<'_>>],
        held: &BlockSet,
        set: &BlockSet,
        deltas: &[Bytes],
    ) -> Result<Option<Listed>> {
        if held.raw_len != set.raw_len {
            return Ok(None);
        }
        let mut parts = Vec::with_capacity(takes.len());
        let mut keep = None;
        for (range, to) in takes {
            match *to {
                To::Tensor(tensor, offset) => {
                    let (from, len) = (range.start as u64, range.len() as u64);
                    let place = Place { offset, hash: held.raw_hash, raw_len: held.raw_len, from, len };
                    if self.state.place_at(tensor, offset) != Some(&place) {
                        return Ok(None);
                    }
                    parts.push((tensor, offset, range.clone()));
                }
                To::Kept(hash) => keep = Some(hash),
                To::Memory(_) => return Ok(None),
            }
        }
        let Some(&(first, offset, ref range)) = parts.first() else { return Ok(None) };
        let of = width(self.dtype(first));
        // All bytes, as many lists make them, are those of the tensors, too, which may have changed.
        let is_sound = |patch: &Patch| patch.indices().is_some() || Hash::of(patch.values()) == set.raw_hash;
        match self.state.kept.get(&held.raw_hash) {
            // All of it is in one tensor.
            None if parts.len() == 1 && keep.is_none() && range.len() as u64 == set.raw_len => {
                let patch = Patch::listed(first, of, self.tensors[first], offset, set.raw_len, deltas, self.spares)?;
                Ok(patch.filter(is_sound).map(|patch| Listed { patches: vec![patch], kept: None }))
            }
            // Tensors hold parts of it.
            Some(raw)
                if raw.len() as u64 == set.raw_len && parts.iter().all(|part| width(self.dtype(part.0)) == of) =>
            {
                let list = Patch::listed(first, of, &&raw[..], 0, set.raw_len, deltas, self.spares)?;
                let Some(list) = list.filter(is_sound) else { return Ok(None) };
                let part = |(tensor, offset, range)| list.part(tensor, offset, range);
                let Some(patches) = parts.into_iter().map(part).collect() else { return Ok(None) };
                let kept = keep.map(|hash| {
                    let mut raw = raw.to_vec();
                    list.apply(&mut raw);
                    (hash, raw.into())
                });
                Ok(Some(Listed { patches, kept }))
            }
            _ => Ok(None),
        }
    }

    fn dtype(&self, tensor: usize) -> Dtype {
        self.specs[tensor].dtype
    }
}
