//! What an earlier snapshot offers a new one: block sets to refer to, and bases.

use std::collections::HashMap;

use crate::catalog::{Catalog, SetId};
use crate::chunks::{Chunk, cut};
use crate::error::Result;
use crate::ids::{Hash, ShardId};
use crate::manifest::shard::{Extent, File, Ref};

pub(super) struct Bases {
    pub(super) catalog: Catalog,
    /// By hash of the raw bytes.
    equal: HashMap<Hash, SetId>,
    /// By key of the chunk.
    alike: HashMap<Hash, SetId>,
}

impl Bases {
    /// Takes the sets that the files of `shards` refer to, and no others of the catalog: only those are sure to stay while we save.
    pub(super) fn new(catalog: Catalog, shards: &[ShardId]) -> Result<Self> {
        let mut bases = Self { catalog, equal: HashMap::new(), alike: HashMap::new() };
        for &id in shards {
            let shard = bases.catalog.shard(id)?.clone();
            for file in &shard.files {
                for &Extent(of, set, ..) in &file.extents {
                    let set = bases.catalog.resolve(id, Ref(of, set))?;
                    // The bases of an existing set exist, too.
                    for link in bases.catalog.chain(set)? {
                        let raw_hash = bases.catalog.set(link)?.raw_hash;
                        bases.equal.entry(raw_hash).or_insert(link);
                    }
                }
                bases.add_chunks(id, file)?;
            }
        }
        Ok(bases)
    }

    /// Adds the sets that hold what chunks of a file would hold if it were cut now.
    fn add_chunks(&mut self, shard: ShardId, file: &File) -> Result<()> {
        let mut offset = 0;
        let mut segments = Vec::with_capacity(file.segments.len());
        for s in &file.segments {
            segments.push(s.to_lmc(offset)?);
            offset += s.len;
        }
        let mut at = 0;
        let extents: Vec<(u64, Extent)> = file
            .extents
            .iter()
            .map(|&e| {
                at += e.3;
                (at - e.3, e)
            })
            .collect();
        for chunk in cut(&file.name, &segments)? {
            let Some(set) = held_by(&chunk, &extents) else { continue };
            let set = self.catalog.resolve(shard, set)?;
            if self.catalog.set(set)?.raw_len == chunk.len() {
                self.alike.entry(chunk.key).or_insert(set);
                self.alike.entry(chunk.tensors_key).or_insert(set);
            }
        }
        Ok(())
    }

    pub(super) fn equal(&self, raw_hash: Hash) -> Option<SetId> {
        self.equal.get(&raw_hash).copied()
    }

    /// The set with the same tensors as a chunk; preferably from a file of the same name.
    pub(super) fn alike(&self, chunk: &Chunk) -> Option<SetId> {
        self.alike.get(&chunk.key).or_else(|| self.alike.get(&chunk.tensors_key)).copied()
    }
}

/// The set whose first bytes are those of a chunk, if there is one.
fn held_by(chunk: &Chunk, extents: &[(u64, Extent)]) -> Option<Ref> {
    let mut from = 0;
    let mut held = None;
    for r in &chunk.ranges {
        let mut at = r.offset;
        while at < r.offset + r.len {
            let &(start, Extent(shard, set, first, len)) =
                &extents[extents.partition_point(|e| e.0 <= at).checked_sub(1)?];
            if first + (at - start) != from || *held.get_or_insert(Ref(shard, set)) != Ref(shard, set) {
                return None;
            }
            let n = (start + len).min(r.offset + r.len) - at;
            (at, from) = (at + n, from + n);
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::Range;

    #[test]
    fn a_chunk_is_held_by_one_set_or_by_none() {
        let range = |offset, len| Range { offset, len };
        let chunk = |ranges: &[Range]| {
            let key = Hash::of(b"");
            Chunk { ranges: ranges.to_vec(), segments: vec![], key, tensors_key: key, of: None }
        };
        let extents =
            [(0, Extent(0, 0, 0, 10)), (10, Extent(0, 1, 0, 5)), (15, Extent(0, 0, 10, 5)), (20, Extent(0, 1, 5, 5))];
        let held = |ranges: &[Range]| held_by(&chunk(ranges), &extents);
        assert_eq!(held(&[range(0, 10), range(15, 5)]), Some(Ref(0, 0)));
        assert_eq!(held(&[range(10, 5), range(20, 5)]), Some(Ref(0, 1)));
        assert_eq!(held(&[range(10, 4)]), Some(Ref(0, 1)));
        // Two sets, neither from its first byte on, and in another order.
        for ranges in [&[range(0, 15)][..], &[range(1, 9)], &[range(15, 5)], &[range(20, 5), range(10, 5)]] {
            assert_eq!(held(ranges), None);
        }
        assert_eq!(held_by(&chunk(&[range(0, 1)]), &[]), None);
    }
}
