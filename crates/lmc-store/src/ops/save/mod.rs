//! Saving: encodes files as a shard (`docs/store.md` §5).

mod all_tensors;
mod bases;
mod choice;
mod clocks;
pub(crate) mod encode;
mod flat;
mod input;
mod moments;
mod nearest;
mod options;
mod plan;
mod read;
mod recut;
mod repeats;
mod rounded;
mod tally;
pub(crate) mod upload;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use lmc::Base;

use crate::chunks::cache::ChunkCache;
use crate::chunks::catalog::{Catalog, MAX_SEGMENTS, SetId};
use crate::error::{Error, Result};
use crate::format::ids::{Hash, ShardId, Step};
use crate::format::keys;
use crate::format::manifest::names::{check_name, check_together};
use crate::format::manifest::shard::{Alternative, BlockSet, Extent, File, Ref, Segment, Shard};
use crate::objects::buffer::Pool;
use crate::objects::ordered;
use crate::objects::remote::Remote;
use crate::ops::previous::Previous;
use bases::Bases;
use choice::Choice;
use clocks::Clocks;
use encode::{Encoded, Encoder, MadeFrom};
pub use input::Input;
pub(crate) use nearest::nearest;
pub use options::{BasePolicy, SaveOptions};
use plan::Plan;
use tally::Tally;
use upload::Uploader;

/// A saved shard, to be published alone as a snapshot, or with other shards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The shard's id.
    pub shard: ShardId,
    /// Bytes of the files.
    pub raw_size: u64,
    /// Bytes stored for them.
    pub new_size: u64,
    /// Bytes of the document that says where.
    pub document_size: u64,
    /// The step of the snapshot before, if anything was predicted from it or from its bases, or all of it was stored
    /// already.
    pub base: Option<Step>,
    /// The same step, if some of what was stored before is referred to: as a base, or as equal bytes.
    pub shares: Option<Step>,
    /// Elements of the tensors.
    pub elements: u64,
    /// How many of them differ from the snapshot before. `None` where deltas do not say it, so that it would take more work: as without the
    /// snapshot before, or where most elements changed.
    pub changed: Option<u64>,
    /// How long a thread read files on average, as far as they are not in memory, and hashed the bytes read. Threads compress while others
    /// wait for storage, so that the three phases overlap; planning is in none of them.
    pub read: Duration,
    /// How long a thread compressed on average, and hashed the result; and got bases, and files that are mapped.
    pub compress: Duration,
    /// The time of waiting until compressed data are stored.
    pub upload: Duration,
    /// What is wrong with earlier snapshots, as far as it was noticed: a sentence for data objects that are missing or
    /// have another length, and one for snapshots that cannot be opened. Nothing that was saved depends on these.
    pub notes: Vec<String>,
}

/// Where a chunk is stored.
#[derive(Clone, Copy)]
enum Place {
    Earlier(SetId),
    /// Index of the set in this shard.
    Here(usize),
}

/// Saves files as `shard`, a new one whose id is unused, unless it is cancelled. `before`: the snapshot whose sets may be
/// bases, as far as their data objects are there, and whose raw bytes `cache` may hold; it counted when the shard began, or later.
pub(crate) fn save(
    remote: &Remote,
    inputs: &[Input<'_>],
    before: Previous,
    o: &SaveOptions,
    cache: Option<&ChunkCache>,
    mut shard: Shard,
) -> Result<Saved> {
    check_arguments(inputs, o)?;
    if let Some(cache) = cache {
        cache.begin();
    }
    let Previous { snapshot: before, catalog, note } = before;
    let shards = before.as_ref().map_or(&[][..], |s| &s.shards);
    let bases = Bases::new(remote, catalog, shards, inputs)?;
    let mut files = Vec::new();
    for input in inputs {
        let (file, segments) = begin(input)?;
        shard.files.push(file);
        files.push((input, segments));
    }
    let choice = Choice { bases: &bases, options: o };
    let plan = Plan::new(&files, choice)?;
    let mut uploader = Uploader::new(remote, shard.save);
    let clocks = Clocks::default();
    let buffers = Pool::default();
    let shared = encode::Shared { remote, choice, cache, clocks: &clocks, buffers: &buffers };
    let mut tally = Tally::new(before.is_some());
    let mut upload = Duration::ZERO;
    let done = store(&shared, &plan, &mut shard, &mut uploader, (&mut tally, &mut upload)).and_then(|places| {
        shard.objects = timed(&mut upload, || uploader.finish())?;
        refer(&mut shard, &bases.catalog, &plan, &places)?;
        let shares = before.as_ref().filter(|_| !shard.shards.is_empty()).map(|s| s.step);
        // Data that later readers would refuse are not saved.
        if shard.listed_segments() > MAX_SEGMENTS {
            return Err(Error::limit(format!(
                "the files have {} segments, and a snapshot at most {MAX_SEGMENTS}",
                shard.listed_segments()
            )));
        }
        shard.share_segments(&bases.catalog)?;
        let (id, bytes) = shard.to_stored()?;
        let document_size = bytes.len() as u64;
        o.cancel.check()?;
        timed(&mut upload, || remote.wait(remote.put(&keys::shard(id), bytes.into())))?;
        // Sets of this shard are numbered as those of shard 0.
        let predicted = |set: &BlockSet| set.base.is_some_and(|Ref(of, _)| of != 0);
        let base =
            before.as_ref().filter(|_| shard.sets.is_empty() || shard.sets.iter().any(predicted)).map(|s| s.step);
        let [read, compress] = clocks.times(threads_of(o).min(plan.groups.len()));
        let (raw_size, new_size) = (shard.raw_size(), shard.new_size());
        tally.add_repeats(plan.repeats.iter().map(|r| r.elements).sum());
        let (elements, changed) = tally.total();
        let notes = note.into_iter().chain(bases.note()).collect();
        Ok(Saved {
            shard: id,
            raw_size,
            new_size,
            document_size,
            base,
            shares,
            elements,
            changed,
            read,
            compress,
            upload,
            notes,
        })
    });
    if done.is_err() {
        uploader.discard();
    }
    done
}

fn check_arguments(inputs: &[Input<'_>], o: &SaveOptions) -> Result<()> {
    if inputs.is_empty() {
        return Err(Error::usage("there are no files to save: a snapshot needs at least one"));
    }
    if !(1..=64).contains(&o.anchor_every) {
        return Err(Error::usage(format!("an anchor every {} saves: the interval must be 1 to 64", o.anchor_every)));
    }
    inputs.iter().try_for_each(|i| check_name(&i.name)).map_err(Error::usage)?;
    check_together(inputs.iter().map(|i| &i.name[..])).map_err(Error::usage)
}

/// A file as the shard describes it, without its extents; and its segments.
fn begin(input: &Input<'_>) -> Result<(File, Vec<lmc::Segment>)> {
    let base = Base::new(input.source).map_err(|e| Error::codec(e).at(&input.name))?;
    let file = File {
        name: input.name.clone(),
        len: base.raw_size(),
        layout: base.layout().to_owned(),
        segments: base.segments().iter().map(Segment::of).collect(),
        segments_of: None,
        extents: vec![],
    };
    Ok((file, base.segments().to_vec()))
}

/// Encodes and stores all chunks that are new; returns where each is stored.
fn store(
    shared: &encode::Shared<'_>,
    plan: &Plan<'_>,
    shard: &mut Shard,
    uploader: &mut Uploader<'_>,
    (tally, upload): (&mut Tally, &mut Duration),
) -> Result<Vec<Place>> {
    let mut places: Vec<Place> = Vec::with_capacity(plan.jobs.len());
    // Bases of the new sets, resolved to references once all sets are placed.
    let mut made_from: Vec<Vec<Place>> = Vec::new();
    let mut here: HashMap<Hash, usize> = HashMap::new();
    let claims = encode::Claims::default();
    let threads = threads_of(shared.choice.options);
    ordered::run(
        threads,
        threads + 1,
        plan.groups.len(),
        |i| plan.groups[i].clone(),
        || Encoder::new(shared, &claims),
        |encoder, _, group| encoder.encode(group.start, &plan.jobs[group]),
        |i, encoded| {
            let first = places.len();
            for (encoded, job) in encoded.into_iter().zip(&plan.jobs[plan.groups[i].clone()]) {
                tally.add(&job.chunk, &encoded);
                let place = match encoded {
                    Encoded::Earlier(set, _) => Place::Earlier(set),
                    Encoded::Repeated(raw_hash) => Place::Here(here[&raw_hash]),
                    Encoded::New(new) => match here.get(&new.raw_hash).filter(|_| !new.is_own) {
                        Some(&same) => Place::Here(same),
                        None => {
                            let number = shard.sets.len();
                            here.entry(new.raw_hash).or_insert(number);
                            let (hash, raw_hash, raw_len) = (new.hash, new.raw_hash, job.chunk.len());
                            let at = timed(upload, || uploader.append(new.bytes))?;
                            let place = |of| match of {
                                MadeFrom::Earlier(set) => Place::Earlier(set),
                                MadeFrom::Here(number) => places[first + number],
                            };
                            let bases: Vec<Place> = new.bases.into_iter().map(place).collect();
                            let ages = bases.iter().map(|&base| age_of(base, shard, shared.bases()));
                            let age = ages
                                .collect::<Result<Vec<_>>>()?
                                .into_iter()
                                .max()
                                .map_or(0, |age| age.saturating_add(1));
                            let (base, others) = (None, vec![]);
                            shard.sets.push(BlockSet { at, hash, raw_len, raw_hash, base, others, age });
                            made_from.push(bases);
                            if let Some(delta) = new.alternative {
                                let encode::Alternative { bytes, hash, base: of } = *delta;
                                let at = timed(upload, || uploader.append(bytes))?;
                                let (set, base) = (number, shared.bases().catalog.set(of)?.raw_hash);
                                shard.alternatives.push(Alternative { set, at, hash, base, shard: of.shard });
                            }
                            Place::Here(number)
                        }
                    },
                };
                places.push(place);
            }
            Ok(())
        },
    )?;
    let mut numbers = Numbers::new(&mut shard.shards, &shared.bases().catalog);
    for (set, bases) in shard.sets.iter_mut().zip(made_from) {
        let mut bases = bases.into_iter().map(|base| numbers.place(base));
        set.base = bases.next().transpose()?;
        set.others = bases.collect::<Result<_>>()?;
    }
    Ok(places)
}

/// Threads sometimes wait for a base to be fetched.
fn threads_of(o: &SaveOptions) -> usize {
    ordered::threads_that_wait(o.threads)
}

fn timed<T>(time: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    *time += start.elapsed();
    done
}

fn age_of(place: Place, shard: &Shard, bases: &Bases) -> Result<u32> {
    match place {
        Place::Here(number) => Ok(shard.sets[number].age),
        Place::Earlier(set) => Ok(bases.catalog.set(set)?.age),
    }
}

/// The shards that a shard refers to, in its numbering.
pub(crate) struct Numbers<'a> {
    shards: &'a mut Vec<ShardId>,
    known: HashMap<ShardId, usize>,
    catalog: &'a Catalog,
}

impl<'a> Numbers<'a> {
    pub(crate) fn new(shards: &'a mut Vec<ShardId>, catalog: &'a Catalog) -> Self {
        let known = shards.iter().zip(1..).map(|(&id, number)| (id, number)).collect();
        Self { shards, known, catalog }
    }

    /// A reference to a set. The shards that hold its chain are listed, too.
    pub(crate) fn refer(&mut self, set: SetId) -> Result<Ref> {
        for link in self.catalog.chain(set)? {
            if !self.known.contains_key(&link.shard) {
                self.shards.push(link.shard);
                self.known.insert(link.shard, self.shards.len());
            }
        }
        Ok(Ref(self.known[&set.shard], set.index))
    }

    fn place(&mut self, place: Place) -> Result<Ref> {
        match place {
            Place::Here(number) => Ok(Ref(0, number)),
            Place::Earlier(set) => self.refer(set),
        }
    }
}

/// Sets the extents of each file.
fn refer(shard: &mut Shard, catalog: &Catalog, plan: &Plan<'_>, places: &[Place]) -> Result<()> {
    let mut files: HashMap<&str, Vec<(u64, Extent)>> = HashMap::new();
    let mut numbers = Numbers::new(&mut shard.shards, catalog);
    for (job, &place) in plan.jobs.iter().zip(places) {
        let Ref(of, set) = numbers.place(place)?;
        let mut from = 0;
        let extents = files.entry(&job.input.name).or_default();
        for r in &job.chunk.ranges {
            extents.push((r.offset, Extent(of, set, from, r.len)));
            from += r.len;
        }
    }
    for r in &plan.repeats {
        let Ref(of, set) = numbers.place(places[r.job])?;
        files.entry(&r.input.name).or_default().push((r.range.offset, Extent(of, set, r.first, r.range.len)));
    }
    for f in &mut shard.files {
        let mut extents = files.remove(&f.name[..]).unwrap_or_default();
        extents.sort_unstable_by_key(|e| e.0);
        f.extents = extents.into_iter().map(|e| e.1).collect();
        // Small tensors that stand in the same order in another file.
        f.extents.dedup_by(|next, e| {
            let follows = (e.0, e.1, e.2 + e.3) == (next.0, next.1, next.2);
            e.3 += if follows { next.3 } else { 0 };
            follows
        });
    }
    Ok(())
}
