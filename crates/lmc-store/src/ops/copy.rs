//! Copying snapshots from one store to another, and into archives (`docs/store.md` §10).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::num::NonZeroU64;

use crate::chunks::catalog::{Catalog, SetId};
use crate::chunks::chain;
use crate::chunks::gather::SIDE_BY_SIDE;
use crate::chunks::presence::Presence;
use crate::chunks::reach::{ObjectId, files_of, stored_in};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{Hash, SaveId, ShardId, Step};
use crate::format::keys;
use crate::format::manifest::Document;
use crate::format::manifest::marker::Marker;
use crate::format::manifest::record::{Record, RecordId, Seen};
use crate::format::manifest::shard::{self, BlockSet, Extent, Ref, Shard};
use crate::objects::archive::{Hashes, Writer};
use crate::objects::ordered;
use crate::ops::cancel::Cancel;
use crate::ops::previous::Previous;
use crate::ops::publish::Original;
use crate::ops::save::Numbers;
use crate::ops::save::upload::Uploader;
use crate::records::history::DamagedRecord;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// Options of copying snapshots.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CopyOptions<'a> {
    /// Whether to go on after a snapshot that the source has lost or damaged, and after a record that the destination has: [`Copied::damaged`]
    /// and [`Copied::left_out`] then have them.
    pub skip_damaged: bool,
    /// Asked for each block set, and before each snapshot begins and appears. What was stored of an unfinished shard is deleted.
    pub cancel: Cancel<'a>,
}

/// The result of copying snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The copied snapshots, as they are in the destination.
    pub snapshots: Vec<Snapshot>,
    /// Number of snapshots that the destination already had.
    pub skipped: usize,
    /// Steps whose snapshots cannot be copied, each with the reason.
    pub damaged: Vec<(Step, String)>,
    /// Records of the destination that cannot be read: nothing is copied to their steps.
    pub left_out: Vec<DamagedRecord>,
    /// What is wrong with snapshots of the destination, as far as it was noticed. No copy depends on these.
    pub notes: Vec<String>,
}

impl Copied {
    fn note(&mut self, note: Option<String>) {
        self.notes.extend(note.filter(|note| !self.notes.contains(note)));
    }
}

/// Identity of a block set, independent of its shard: hashes of its stored and raw bytes, and its chain's length. With the length in it,
/// copying never makes a chain longer.
type Contents = (Hash, Hash, usize);

impl Store {
    /// Copies snapshots of another store into this one, oldest first, with their tags. Ids, times and metadata are kept. Block sets are copied verbatim,
    /// after verifying their hashes; those that the last snapshot before has here are skipped.
    ///
    /// A snapshot appears once it is complete. A repeated copy resumes an interrupted one: snapshots already here are skipped.
    ///
    /// # Errors
    /// `Usage` when the source is of another run, or two snapshots are of one step: nothing is
    /// copied. `Exists` when a step has a different snapshot here, `Damaged` when the source, or a record here, is not what was written,
    /// unless [`CopyOptions::skip_damaged`] is set, that of [`CopyOptions::cancel`], and those of [`Self::save`]. Messages about the source begin with its location.
    pub fn copy_from(&self, from: &Store, snapshots: &[Snapshot], o: CopyOptions<'_>) -> Result<Copied> {
        let of_source = |e| from.blame(e);
        let run = from.run_now().map_err(of_source)?;
        if run != self.run() {
            return Err(Error::usage(format!(
                "the store is of run {}, and the snapshots to be copied are of run {run}: what follows the store could not tell them \
                 apart; copy into a store that does not exist yet",
                self.run()
            )));
        }
        let snapshots = in_order(snapshots)?;
        let mut copied = Copied::default();
        let mut theirs = Catalog::default();
        let way = Way { to: self, from, cancel: o.cancel };
        let steps: Vec<Step> = snapshots.iter().map(|s| s.step).collect();
        let (mut lost, mut there) = (None, vec![]);
        for s in snapshots {
            let found = match self.newest_or_damaged(s.step)? {
                None => {
                    // Looked for once, and not if all are here.
                    let lost = match &mut lost {
                        Some(lost) => lost,
                        none => none.insert(self.lost_among(&steps)?),
                    };
                    lost.remove(&s.step).map(Err)
                }
                found => found,
            };
            match found {
                Some(Err(bad)) if o.skip_damaged && !bad.is_of_other_version() => {
                    copied.left_out.push(bad);
                    continue;
                }
                Some(Err(bad)) => return Err(bad.error("")),
                Some(Ok(here)) if here.is_kept() && here.record.id == s.id => {
                    copied.skipped += 1;
                    there.push(s.clone());
                    continue;
                }
                Some(Ok(here)) if here.is_kept() => {
                    return Err(Error::exists(format!(
                        "step {} has a snapshot, {}, and the one to be copied is {}: copy others (--at), or into another store",
                        s.step, here.record.id, s.id
                    )));
                }
                _ => {}
            }
            let mut done = way.copy(s, &mut theirs, &mut copied);
            if done.as_ref().is_err_and(|e| is_lost(e) && from.blamed_for(e).is_some()) {
                // What it needed when it was listed may have been collected since.
                match from.newest_or_damaged(s.step) {
                    Ok(Some(Ok(now))) if !now.is_kept() && o.skip_damaged => continue,
                    Ok(Some(Ok(now))) if now.is_kept() && now.record.id == s.id && now.record.shards != s.shards => {
                        done = way.copy(&Snapshot::of(now.record), &mut theirs, &mut copied);
                    }
                    _ => {}
                }
            }
            match done {
                Ok(snapshot) => copied.snapshots.push(snapshot),
                Err(e) => match from.blamed_for(&e).filter(|_| o.skip_damaged && is_lost(&e)) {
                    Some(why) => copied.damaged.push((s.step, why)),
                    None => return Err(e),
                },
            }
        }
        there.extend(copied.snapshots.iter().cloned());
        self.copy_tags(from, &there)?;
        Ok(copied)
    }

    /// Writes snapshots, everything that they need, and their tags as an archive: a read-only store in one file. One that is given twice is written once.
    ///
    /// # Errors
    /// `Usage` when there are no snapshots, or two of one step, `Damaged` when something they need is missing or is not what was written, `Io` when writing
    /// fails, `Store` when requests fail.
    pub fn export(&self, snapshots: &[Snapshot], to: impl Write) -> Result<()> {
        let Some(time) = snapshots.iter().map(|s| s.time).max() else {
            return Err(Error::usage("there are no snapshots to export: an archive needs at least one"));
        };
        let snapshots = in_order(snapshots)?;
        let mut tags = self.tags()?.tags;
        tags.retain(|tag| snapshots.iter().any(|s| (s.step, s.id) == (tag.step, tag.id)));
        let remote = self.remote();
        let mut shards = BTreeSet::new();
        // Length and expected hashes of each object.
        let mut objects: BTreeMap<ObjectId, (u64, Hashes)> = BTreeMap::new();
        let mut catalog = Catalog::default();
        for s in &snapshots {
            catalog = remote.wait(Catalog::load_beside(remote, &s.shards, &catalog))?;
            for set in needed(&catalog, &s.shards)? {
                let &BlockSet { at: shard::At(_, offset, len), hash, .. } = catalog.set(set)?;
                let (object, size) = stored_in(&catalog, set)?;
                let (_, sets) = objects.entry(object).or_insert_with(|| (size, Hashes::new()));
                sets.insert((offset, len), hash);
            }
            for &id in &s.shards {
                shards.insert(id);
                shards.extend(&catalog.shard(id)?.shards);
            }
        }
        let mut archive = Writer::new(to, time);
        archive.add(&keys::marker(), &Marker::new(self.grace_seconds(), self.run_now()?).to_bytes()?)?;
        for ((save, object), (len, sets)) in objects {
            archive.add_from(remote, &keys::data(save, object), len, &sets)?;
        }
        for id in shards {
            let key = keys::shard(id);
            let bytes = remote.wait(remote.get(&key, Shard::MAX)).map_err(Error::or_damaged)?;
            if ShardId::of(&bytes) != id {
                return Err(Error::damaged(format!("{key}: is damaged: its contents changed while it was read")));
            }
            archive.add(&key, &bytes)?;
        }
        let mut before = None;
        for s in snapshots {
            let mut record = Record::kept(s.step, s.id, s.time, s.metadata.clone());
            record.shards.clone_from(&s.shards);
            (record.raw_size, record.new_size) = (s.raw_size, s.new_size);
            record.dropped = NonZeroU64::new(s.dropped);
            // Each names the one before it.
            record.seen = before.into_iter().collect();
            let (key, bytes) = (RecordId { step: s.step, generation: 0 }, record.to_bytes()?);
            archive.add(&keys::record(s.step, 0), &bytes)?;
            before = Some(Seen { key, hash: Hash::of(&bytes) });
        }
        for tag in tags {
            archive.add(&keys::tag(&tag.name, tag.generation), &tag.document().to_bytes()?)?;
        }
        archive.finish()
    }
}

/// Whether trying again does not help.
fn is_lost(e: &Error) -> bool {
    !matches!(e.kind(), ErrorKind::Store | ErrorKind::Io)
}

/// Each snapshot once, by step.
fn in_order(snapshots: &[Snapshot]) -> Result<Vec<&Snapshot>> {
    let mut sorted: Vec<&Snapshot> = snapshots.iter().collect();
    sorted.sort_by_key(|s| (s.step, s.id));
    sorted.dedup_by_key(|s| (s.step, s.id));
    for two in sorted.windows(2) {
        if two[0].step == two[1].step {
            let (step, a, b) = (two[0].step, two[0].id, two[1].id);
            return Err(Error::usage(format!("step {step} is given as two snapshots, {a} and {b}: choose one")));
        }
    }
    Ok(sorted)
}

/// The block sets that the files of shards consist of, bases first.
fn needed(catalog: &Catalog, shards: &[ShardId]) -> Result<Vec<SetId>> {
    let (mut seen, mut sets) = (BTreeSet::new(), vec![]);
    for &id in shards {
        for set in files_of(catalog, id)? {
            if !seen.contains(&set) {
                sets.extend(catalog.chain(set)?.into_iter().filter(|&link| seen.insert(link)));
            }
        }
    }
    Ok(sets)
}

/// From where to where snapshots are copied, and whether to go on.
#[derive(Clone, Copy)]
struct Way<'a> {
    from: &'a Store,
    to: &'a Store,
    cancel: Cancel<'a>,
}

impl Way<'_> {
    /// Copies a snapshot. `theirs`: the shards of the one before in the source.
    fn copy(self, s: &Snapshot, theirs: &mut Catalog, copied: &mut Copied) -> Result<Snapshot> {
        self.cancel.check()?;
        let (from, of_source) = (self.from.remote(), |e| self.from.blame(e));
        *theirs = from.wait(Catalog::load_beside(from, &s.shards, theirs)).map_err(of_source)?;
        theirs.check_segments(&s.shards).map_err(of_source)?;
        let mut copy = Copying::new(self, theirs, s, copied)?;
        let shards = copy.shards(s)?;
        let original = Original { id: s.id, time: s.time, dropped: s.dropped };
        self.cancel.check()?;
        self.to.publish_as(s.step, s.metadata.clone(), &shards, Some(original), &copy.ours)
    }
}

/// Copies one snapshot.
struct Copying<'a> {
    way: Way<'a>,
    theirs: &'a Catalog,
    ours: Catalog,
    began: u64,
    /// Block sets in the destination, by identity.
    here: HashMap<Contents, SetId>,
}

impl<'a> Copying<'a> {
    fn new(way: Way<'a>, theirs: &'a Catalog, s: &Snapshot, copied: &mut Copied) -> Result<Self> {
        let Way { from, to, .. } = way;
        let began = to.begin()?;
        let Previous { snapshot, catalog: ours, note } = to.before(s.step)?;
        copied.note(note);
        let mut wanted = HashSet::new();
        for set in needed(theirs, &s.shards).map_err(|e| from.blame(e))? {
            wanted.insert(contents(theirs, set).map_err(|e| from.blame(e))?);
        }
        let mut here = HashMap::new();
        for set in needed(&ours, &snapshot.map_or(vec![], |s| s.shards))? {
            let contents = contents(&ours, set)?;
            if wanted.contains(&contents) {
                here.insert(contents, set);
            }
        }
        // What is missing here is copied again.
        let presence = Presence::new(to.remote());
        presence.look(&ours, here.values().copied())?;
        let mut there = HashMap::new();
        for (contents, set) in here {
            if presence.has(&ours, set)? {
                there.insert(contents, set);
            }
        }
        copied.note(presence.note());
        Ok(Self { way, theirs, ours, began, here: there })
    }

    /// Copies the shards of the snapshot; returns their ids in the destination.
    fn shards(&mut self, s: &Snapshot) -> Result<Vec<ShardId>> {
        s.shards.iter().map(|&id| self.shard(id)).collect()
    }

    fn shard(&mut self, id: ShardId) -> Result<ShardId> {
        let save = self.way.to.fresh_id()?;
        let mut uploader = Uploader::new(self.way.to.remote(), save);
        let done = self.shard_with(id, save, &mut uploader);
        if done.is_err() {
            uploader.discard();
        }
        done
    }

    fn shard_with(&mut self, id: ShardId, save: SaveId, uploader: &mut Uploader<'_>) -> Result<ShardId> {
        let (Way { from, to, cancel }, theirs) = (self.way, self.theirs);
        let mut shard = Shard::new(save, self.began);
        // New block sets, each with its number in this shard.
        let mut new = Vec::new();
        let mut numbers: HashMap<Contents, usize> = HashMap::new();
        let of_source = |e| from.blame(e);
        for set in needed(theirs, &[id]).map_err(of_source)? {
            let contents = contents(theirs, set).map_err(of_source)?;
            if !self.here.contains_key(&contents) && !numbers.contains_key(&contents) {
                numbers.insert(contents, new.len());
                new.push(set);
            }
        }
        let remote = from.remote();
        ordered::run(
            1,
            SIDE_BY_SIDE,
            new.len(),
            |i| chain::begin(remote, theirs, &new[i..=i]),
            || Ok(()),
            |(), i, begun| {
                let mut stored = chain::finish(remote, begun).map_err(of_source)?;
                chain::verify(theirs, &new[i..=i], &stored).map_err(of_source)?;
                Ok(stored.remove(0))
            },
            |i, bytes| {
                cancel.check()?;
                let &BlockSet { hash, raw_len, raw_hash, age, .. } = theirs.set(new[i])?;
                shard.sets.push(BlockSet {
                    at: uploader.append(bytes)?,
                    hash,
                    raw_len,
                    raw_hash,
                    base: None,
                    others: vec![],
                    age,
                });
                Ok(())
            },
        )?;
        shard.objects = uploader.finish()?;
        let mut places = Numbers::new(&mut shard.shards, &self.ours);
        let mut refer = |set: SetId| {
            let contents = contents(theirs, set)?;
            match self.here.get(&contents) {
                Some(&set) => places.refer(set),
                None => Ok(Ref(0, numbers[&contents])),
            }
        };
        for (set, &original) in shard.sets.iter_mut().zip(&new) {
            set.base = theirs.base(original)?.map(&mut refer).transpose()?;
            set.others = theirs.bases(original)?.into_iter().skip(1).map(&mut refer).collect::<Result<_>>()?;
        }
        shard.files = theirs.files(id)?;
        for Extent(of, set, ..) in shard.files.iter_mut().flat_map(|f| &mut f.extents) {
            Ref(*of, *set) = refer(theirs.resolve(id, Ref(*of, *set))?)?;
        }
        shard.share_segments(&self.ours)?;
        let (copy, bytes) = shard.to_stored()?;
        let remote = to.remote();
        remote.wait(remote.put(&keys::shard(copy), bytes.into()))?;
        self.here.extend(numbers.into_iter().map(|(contents, index)| (contents, SetId { shard: copy, index })));
        self.ours.insert(copy, shard);
        Ok(copy)
    }
}

fn contents(catalog: &Catalog, id: SetId) -> Result<Contents> {
    let set = catalog.set(id)?;
    Ok((set.hash, set.raw_hash, catalog.chain(id)?.len()))
}
