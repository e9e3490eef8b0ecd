//! Dropping the states of optimizers: a snapshot keeps its weights (`docs/store.md` §7).

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::ops::Range;

use bytes::Bytes;
use lmc::layout::safetensors::{Header, header};
use lmc::{CompressOptions, Compressor};
use lmc_layout::roles::Role;
use lmc_layout::roles::is_of_optimizer;
use lmc_layout::roles::parameter;
use lmc_layout::roles::role;

use crate::chunks::catalog::{Catalog, SetId};
use crate::chunks::reach::files_of;
use crate::error::{Error, Result};
use crate::format::ids::{Hash, SaveId, ShardId, Step};
use crate::format::manifest::record::Record;
use crate::format::manifest::shard::{BlockSet, Extent, File, Ref, Segment, Shard};
use crate::ops::rebase::{RebaseOptions, Rebased};
use crate::ops::restore::{FileInfo, SnapshotReader};
use crate::ops::save::Numbers;
use crate::ops::save::encode::compress;
use crate::ops::save::upload::Uploader;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// Bytes of a header that one block set holds at most.
const HEADER_CHUNK: usize = 16 << 20;

/// What dropping the states of optimizers takes from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DropStates {
    /// Its step.
    pub step: Step,
    /// Bytes of its files that go.
    pub raw_size: u64,
    /// Files that hold weights and states and stay as they are, because only safetensors files can lose tensors.
    pub left_out: Vec<String>,
    pub(crate) id: SaveId,
    /// Block sets that what stays refers to.
    stays: HashSet<SetId>,
}

/// What becomes of a file.
#[derive(Debug, PartialEq, Eq)]
enum Cut {
    Stays,
    /// It stays although it has states.
    LeftOut,
    Goes,
    /// These segments stay, in order; the first one, the header, is written anew.
    Part(Vec<usize>),
}

/// What becomes of the files of a snapshot.
struct Cuts(Vec<Cut>);

impl Cuts {
    /// By the names of files and tensors.
    fn of(files: &[FileInfo]) -> Self {
        let names = || files.iter().flat_map(|f| &f.segments).filter_map(|s| s.name.as_deref());
        // PyTorch numbers parameters: what is beside a moment, such as a count of steps, is of its parameter's state.
        let beside: HashSet<&str> = names().filter(|n| is_of_optimizer(last(n).1)).map(|n| last(n).0).collect();
        let is_state = |name: &str| is_of_optimizer(name) || beside.contains(last(name).0) && !last(name).0.is_empty();
        let weights = names().filter(|n| !is_state(n) && role(n) != Role::Master);
        let weights: HashSet<String> = weights.map(parameter).collect();
        let goes = |name: &str| is_state(name) || role(name) == Role::Master && weights.contains(&parameter(name));
        let cut = |f: &FileInfo| {
            let named = |s: &&lmc::Segment| s.name.is_some();
            let tensors = f.segments.iter().filter(named).count();
            let stays = |s: &lmc::Segment| s.name.as_deref().is_some_and(|name| !goes(name));
            let kept: Vec<usize> = (0..f.segments.len()).filter(|&i| stays(&f.segments[i])).collect();
            match kept.len() {
                _ if is_of_optimizer(f.name.rsplit('/').next().unwrap_or_default()) => Cut::Goes,
                // A folder's name counts only where no tensor has one: weights may be in any folder.
                0 if tensors > 0 || is_of_optimizer(&f.name) => Cut::Goes,
                n if n == tensors => Cut::Stays,
                _ if f.layout == "safetensors" && f.segments[0].name.is_none() => Cut::Part(kept),
                _ => Cut::LeftOut,
            }
        };
        Self(files.iter().map(cut).collect())
    }

    /// The bytes of a file that go.
    fn dropped(&self, i: usize, file: &FileInfo) -> u64 {
        match &self.0[i] {
            Cut::Stays | Cut::LeftOut => 0,
            Cut::Goes => file.len,
            Cut::Part(kept) => {
                file.len - file.segments[0].len - kept.iter().map(|&s| file.segments[s].len).sum::<u64>()
            }
        }
    }
}

/// The part of a name before its last component, and that.
fn last(name: &str) -> (&str, &str) {
    name.rfind(['.', '/']).map_or(("", name), |at| (&name[..at], &name[at + 1..]))
}

/// The stored bytes of the block sets that some snapshots need, and none of them once these lost their states.
pub(crate) fn freed(catalog: &Catalog, snapshots: &[Snapshot], states: &[DropStates]) -> Result<u64> {
    let (mut before, mut after) = (HashSet::new(), HashSet::new());
    for s in snapshots {
        let mut direct: HashSet<SetId> = HashSet::new();
        for &shard in &s.shards {
            direct.extend(files_of(catalog, shard)?);
        }
        let stays = states.iter().find(|planned| planned.id == s.id).map_or(&direct, |planned| &planned.stays);
        for (sets, all) in [(&direct, &mut before), (stays, &mut after)] {
            for &set in sets {
                all.extend(catalog.chain(set)?);
            }
        }
    }
    let lens = before.difference(&after).map(|&set| Ok(catalog.set(set)?.at.2));
    Ok(lens.collect::<Result<Vec<u64>>>()?.into_iter().fold(0, u64::saturating_add))
}

impl Store {
    /// What [`Self::drop_states`] would take from a snapshot; `None` if it has no states of optimizers by the names of its files and tensors.
    ///
    /// # Errors
    /// `Usage` when it has nothing else; those of [`Self::open_snapshot`].
    pub(crate) fn plan_states(&self, snapshot: &Snapshot) -> Result<Option<DropStates>> {
        let reader = self.open_snapshot(snapshot)?;
        let (files, step) = (reader.files(), snapshot.step);
        let cuts = Cuts::of(files);
        let raw_size = files.iter().enumerate().map(|(i, f)| cuts.dropped(i, f)).sum();
        if raw_size == 0 {
            return Ok(None);
        }
        let keeps = |(i, f): (usize, &FileInfo)| match &cuts.0[i] {
            Cut::Goes => false,
            _ => f.segments.iter().any(|s| s.name.is_some()),
        };
        if !files.iter().enumerate().any(keeps) {
            return Err(Error::usage(format!(
                "step {step}: all of its tensors are states of an optimizer: prune it instead of dropping its states"
            )));
        }
        let left_out = files.iter().zip(&cuts.0).filter(|(_, cut)| **cut == Cut::LeftOut);
        let left_out = left_out.map(|(f, _)| f.name.clone()).collect();
        let stays = reader.extents().zip(&cuts.0).flat_map(|((file, located), cut)| {
            let extents: Vec<_> = located.iter().map(|l| (l.set, l.from, l.len)).collect();
            within(&extents, &ranges(file, cut)).into_iter().map(|(set, ..)| set)
        });
        let stays = stays.collect();
        Ok(Some(DropStates { step, raw_size, left_out, id: snapshot.id, stays }))
    }

    /// Drops what was planned. A snapshot that another process changed meanwhile is left as it is.
    pub(crate) fn drop_states(&self, planned: &[DropStates], o: &RebaseOptions) -> Result<Rebased> {
        let steps: Vec<Step> = planned.iter().map(|p| p.step).collect();
        self.rewrite(&steps, &HashSet::new(), o, |catalog, record, began| {
            if planned.iter().all(|p| p.id != record.id) {
                return Ok(record.clone());
            }
            self.without_states(catalog, record, began).map_err(|e| e.at(format_args!("step {}", record.step)))
        })
    }

    /// The record of a snapshot without its states, whose shards were written and are in the catalog.
    fn without_states(&self, catalog: &mut Catalog, record: &Record, began: u64) -> Result<Record> {
        let reader = self.open_beside(&Snapshot::of(record.clone()), catalog)?;
        let files = reader.files();
        let cuts = Cuts::of(files);
        let mut new = record.clone();
        (new.id, new.shards) = (self.fresh_id()?, vec![]);
        let mut first = 0;
        for &id in &record.shards {
            let count = catalog.shard(id)?.files.len();
            let cuts = &cuts.0[first..first + count];
            if cuts.iter().all(|cut| matches!(cut, Cut::Stays | Cut::LeftOut)) {
                new.shards.push(id);
            } else if cuts.iter().any(|cut| *cut != Cut::Goes) {
                let (id, shard) = self.write_cut(catalog, &reader, id, first, cuts, began)?;
                catalog.insert(id, shard);
                new.shards.push(id);
            }
            first += count;
        }
        (new.raw_size, new.new_size) = catalog.sizes(&new.shards)?;
        let before = record.raw_size.saturating_add(record.dropped.map_or(0, NonZeroU64::get));
        new.dropped = NonZeroU64::new(before.saturating_sub(new.raw_size));
        Ok(new)
    }

    /// Writes a shard with what stays of the files of another one, whose first file is number `first` of the snapshot.
    fn write_cut(
        &self,
        catalog: &Catalog,
        reader: &SnapshotReader,
        id: ShardId,
        first: usize,
        cuts: &[Cut],
        began: u64,
    ) -> Result<(ShardId, Shard)> {
        let mut shard = Shard::new(self.fresh_id()?, began);
        let mut uploader = Uploader::new(self.remote(), shard.save);
        let old = catalog.shard(id)?;
        let written = (old.files.iter().zip(cuts).zip(first..))
            .filter(|((_, cut), _)| **cut != Cut::Goes)
            .try_for_each(|((file, cut), i)| {
                let info = &reader.files()[i];
                let extents = file
                    .extents
                    .iter()
                    .map(|&Extent(of, set, from, len)| Ok((catalog.resolve(id, Ref(of, set))?, from, len)));
                let extents: Vec<_> = extents.collect::<Result<_>>()?;
                let mut new = File { segments: vec![], segments_of: None, extents: vec![], ..file.clone() };
                if let Cut::Part(kept) = cut {
                    let header = new_header(reader, info, kept)?;
                    new.segments.push(Segment {
                        len: header.len() as u64,
                        name: None,
                        dtype: None,
                        bits: None,
                        shape: vec![],
                    });
                    new.segments.extend(kept.iter().map(|&s| Segment::of(&info.segments[s])));
                    for chunk in header.chunks(HEADER_CHUNK) {
                        new.extents.push(Extent(0, shard.sets.len(), 0, chunk.len() as u64));
                        shard.sets.push(write_alone(&mut uploader, chunk)?);
                    }
                } else {
                    new.segments.extend(info.segments.iter().map(Segment::of));
                }
                let mut numbers = Numbers::new(&mut shard.shards, catalog);
                for (set, from, len) in within(&extents, &ranges(info, cut)) {
                    let Ref(of, number) = numbers.refer(set)?;
                    new.extents.push(Extent(of, number, from, len));
                }
                new.len = new.segments.iter().map(|s| s.len).sum();
                shard.files.push(new);
                Ok(())
            });
        match written.and_then(|()| self.finish_shard(catalog, &mut shard, &mut uploader)) {
            Ok(id) => Ok((id, shard)),
            Err(e) => {
                uploader.discard();
                Err(e)
            }
        }
    }
}

/// The bytes of a file that stay as they are, in order.
fn ranges(file: &FileInfo, cut: &Cut) -> Vec<Range<u64>> {
    match cut {
        Cut::Stays | Cut::LeftOut => std::iter::once(0..file.len).collect(),
        Cut::Goes => vec![],
        Cut::Part(kept) => {
            let mut all: Vec<Range<u64>> = vec![];
            for s in kept.iter().map(|&s| &file.segments[s]) {
                match all.last_mut() {
                    Some(before) if before.end == s.offset => before.end = s.end(),
                    _ => all.push(s.offset..s.end()),
                }
            }
            all
        }
    }
}

/// The parts of extents, each a set, its first byte and a length, that lie in these ranges of what they make together.
fn within(extents: &[(SetId, u64, u64)], ranges: &[Range<u64>]) -> Vec<(SetId, u64, u64)> {
    let (mut parts, mut offset, mut next) = (vec![], 0, 0);
    for &(set, from, len) in extents {
        let end = offset + len;
        next += ranges[next..].iter().take_while(|r| r.end <= offset).count();
        for r in ranges[next..].iter().take_while(|r| r.start < end) {
            let (start, end) = (r.start.max(offset), r.end.min(end));
            if start < end {
                parts.push((set, from + (start - offset), end - start));
            }
        }
        offset = end;
    }
    parts
}

/// The header of a safetensors file with these segments of another one.
fn new_header(reader: &SnapshotReader, file: &FileInfo, kept: &[usize]) -> Result<Vec<u8>> {
    let at = |e: Error| e.at(format_args!("file {:?}", file.name));
    let mut start = crate::ops::restore::zeroed(file.segments[0].len)?;
    reader.read_range(&file.name, 0, &mut start)?;
    let old =
        Header::parse(&start, file.len).map_err(|why| at(Error::unsupported(format!("{why}: its states stay"))))?;
    let metadata = old.metadata.map(|pairs| pairs.into_iter().collect());
    let tensors = kept.iter().map(|&s| {
        let s = &file.segments[s];
        (s.name.as_deref().unwrap_or_default(), s.dtype.unwrap_or(lmc::Dtype::U8), &s.shape[..])
    });
    header(tensors, metadata.as_ref()).map_err(|e| at(Error::codec(e)))
}

/// Stores opaque bytes as a block set.
fn write_alone(uploader: &mut Uploader<'_>, raw: &[u8]) -> Result<BlockSet> {
    let mut compressor = Compressor::new(&CompressOptions::default().with_threads(1)).map_err(Error::codec)?;
    let mut stored = vec![];
    compress(&mut compressor, raw, &[], &[], &mut stored)?;
    let hash = Hash::of(&stored);
    let at = uploader.append(Bytes::from(stored))?;
    Ok(BlockSet { at, hash, raw_len: raw.len() as u64, raw_hash: Hash::of(raw), base: None, others: vec![], age: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, layout: &str, tensors: &[&str]) -> FileInfo {
        let segment = |(i, name): (usize, &str)| {
            let (dtype, shape): (_, &[u64]) = if name.is_empty() { (None, &[]) } else { (Some(lmc::Dtype::F32), &[2]) };
            let name = (!name.is_empty()).then(|| name.into());
            lmc::Segment::new(name, dtype, shape.into(), 8 * i as u64, 8).unwrap()
        };
        let segments: Vec<_> = tensors.iter().copied().enumerate().map(segment).collect();
        FileInfo { name: name.into(), len: 8 * segments.len() as u64, layout: layout.into(), segments }
    }

    fn cuts(files: &[FileInfo]) -> Vec<Cut> {
        Cuts::of(files).0
    }

    #[test]
    fn states_are_told_by_names() {
        let state = ["", "exp_avg.a.w", "exp_avg_sq.a.w", "master.a.w", "model.a.w"];
        assert_eq!(cuts(&[file("s", "safetensors", &state)]), [Cut::Part(vec![4])]);
        // Copies of weights that the snapshot does not have otherwise are the weights.
        assert_eq!(cuts(&[file("s", "safetensors", &state[..4])]), [Cut::Part(vec![3])]);
        assert_eq!(cuts(&[file("s", "torch", &state)]), [Cut::LeftOut]);
        let trainer = [
            file("model.safetensors", "safetensors", &["", "a.w"]),
            file("optimizer.pt", "torch", &["", "state.0.exp_avg", "state.0.step"]),
            file("other.pt", "torch", &["", "state.0.exp_avg", "state.0.step"]),
            file("unknown.pt", "raw", &[""]),
            file("global_step7/rank_0_optim_states.pt", "raw", &[""]),
        ];
        assert_eq!(cuts(&trainer), [Cut::Stays, Cut::Goes, Cut::Goes, Cut::Stays, Cut::Goes]);
        // Masters in one file, weights in another.
        let two = [file("a", "safetensors", &["", "master.x.w"]), file("b", "safetensors", &["", "module.x.w"])];
        assert_eq!(cuts(&two), [Cut::Goes, Cut::Stays]);
        assert_eq!(cuts(&[file("vae", "safetensors", &["", "mu.weight", "mu.bias", "nu.weight"])]), [Cut::Stays]);
    }

    #[test]
    fn extents_are_cut() {
        let set = |index| SetId { shard: ShardId::of(b"a"), index };
        let extents = [(set(0), 5, 10), (set(1), 0, 10), (set(2), 2, 10)];
        let cut = |ranges: &[Range<u64>]| within(&extents, ranges);
        assert_eq!(cut(&[0..30, 30..30]), extents);
        assert_eq!(cut(&[]), []);
        assert_eq!(cut(&[0..1, 9..11, 25..30]), [(set(0), 5, 1), (set(0), 14, 1), (set(1), 0, 1), (set(2), 7, 5)]);
        assert_eq!(cut(&[3..4, 4..5, 10..20]), [(set(0), 8, 1), (set(0), 9, 1), (set(1), 0, 10)]);
    }
}
