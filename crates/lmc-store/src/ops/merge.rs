//! One document in place of those of several saves: the shards of a snapshot with many ranks are read at once (`docs/store.md` §5).

use std::collections::HashMap;

use crate::chunks::catalog::Catalog;
use crate::error::{ErrorKind, Result};
use crate::format::ids::ShardId;
use crate::format::manifest::shard::{Alternative, At, BlockSet, Extent, Ref, Shard, Writer};

/// How many there are before a part.
#[derive(Clone, Copy, Default)]
struct Offsets {
    objects: usize,
    sets: usize,
    files: usize,
}

/// A document with everything that these shards have, as it is stored; `None` where it would exceed a limit, and where these shards refer to
/// each other. The catalog has them.
///
/// # Errors
/// `Damaged` when the catalog lacks one of the shards.
pub(crate) fn merged(catalog: &Catalog, ids: &[ShardId]) -> Result<Option<(ShardId, Vec<u8>)>> {
    let [first, _, ..] = ids else { return Ok(None) };
    let first = catalog.shard(*first)?;
    let mut all = Shard::new(first.save, first.began);
    // The numbers of other shards.
    let mut numbers: HashMap<ShardId, usize> = HashMap::new();
    let mut before = Offsets::default();
    for &id in ids {
        let part = catalog.shard(id)?;
        if part.shards.iter().any(|other| ids.contains(other)) {
            return Ok(None);
        }
        let of_part: Vec<usize> = (part.shards.iter())
            .map(|&other| {
                *numbers.entry(other).or_insert_with(|| {
                    all.shards.push(other);
                    all.shards.len()
                })
            })
            .collect();
        all.began = all.began.min(part.began);
        add(&mut all, part, &of_part, before);
        before = Offsets { objects: all.objects.len(), sets: all.sets.len(), files: all.files.len() };
    }
    match all.to_stored() {
        Ok(stored) => Ok(Some(stored)),
        Err(e) if e.kind() == ErrorKind::Limit => Ok(None),
        Err(e) => Err(e),
    }
}

/// Appends a part, which refers to other shards by these numbers.
fn add(all: &mut Shard, part: &Shard, numbers: &[usize], before: Offsets) {
    // What it refers to as its own comes after the parts before.
    let refer = |shard: usize, index: usize, own: usize| match shard {
        0 => Ref(0, own + index),
        other => Ref(numbers[other - 1], index),
    };
    let place = |At(object, offset, len)| At(before.objects + object, offset, len);
    let writers = [&[Writer(0, part.save)], &part.writers[..]].concat();
    let ends = part.writers.iter().map(|w| w.0).chain([part.objects.len()]);
    for (&Writer(from, save), end) in writers.iter().zip(ends) {
        // Those without data objects have no place, and the first save needs none.
        if from < end && save != all.save {
            all.writers.push(Writer(before.objects + from, save));
        }
    }
    all.objects.extend(&part.objects);
    all.sets.extend(part.sets.iter().map(|set| BlockSet {
        at: place(set.at),
        base: set.base.map(|Ref(shard, index)| refer(shard, index, before.sets)),
        others: set.others.iter().map(|&Ref(shard, index)| refer(shard, index, before.sets)).collect(),
        ..set.clone()
    }));
    all.alternatives.extend(part.alternatives.iter().map(|a| Alternative {
        set: before.sets + a.set,
        at: place(a.at),
        ..a.clone()
    }));
    all.files.extend(part.files.iter().cloned().map(|mut file| {
        file.segments_of = file.segments_of.map(|Ref(shard, index)| refer(shard, index, before.files));
        for Extent(shard, set, ..) in &mut file.extents {
            let Ref(of, index) = refer(*shard, *set, before.sets);
            (*shard, *set) = (of, index);
        }
        file
    }));
}
