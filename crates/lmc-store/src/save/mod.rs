//! Saving: files in, a part out (`docs/store.md` §5).

mod bases;
pub(crate) mod encode;
mod input;
mod options;
mod plan;
pub(crate) mod upload;

use std::collections::HashMap;

use lmc::Base;

use crate::cache::PieceCache;
use crate::catalog::{Catalog, SetId};
use crate::error::{Error, Result};
use crate::ids::{Hash, PartId, SaveId};
use crate::layout;
use crate::manifest::Document;
use crate::manifest::names::{check_name, check_together};
use crate::manifest::part::{BlockSet, Extent, File, Part, Ref, Segment};
use crate::ordered;
use crate::pieces::{Piece, cut};
use crate::remote::Remote;
use bases::Bases;
use encode::{Encoded, Encoder, MadeFrom};
pub use input::Input;
pub use options::{BasePolicy, SaveOptions};
use plan::{Job, Plan};
use upload::Uploader;

/// A part that was saved, and is yet to be published as a snapshot, or as one of several parts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// What to publish.
    pub part: PartId,
    /// Bytes of the files.
    pub raw_size: u64,
    /// Bytes that were stored for them.
    pub new_size: u64,
}

/// Where a piece is, at last.
#[derive(Clone, Copy)]
enum Place {
    Earlier(SetId),
    /// Number of the set in this part.
    Here(usize),
}

/// Saves files as a part. `before`: the parts of the snapshot that pieces may be made from, which `cache` may have decoded; it counted at the store's time
/// `began`, or later. `id` was never used.
pub(crate) fn save(
    remote: &Remote,
    inputs: &[Input<'_>],
    before: &[PartId],
    o: &SaveOptions,
    cache: Option<&PieceCache>,
    began: u64,
    id: SaveId,
) -> Result<Saved> {
    check(inputs, o)?;
    if let Some(cache) = cache {
        cache.begin();
    }
    let bases = Bases::new(remote.wait(Catalog::load(remote, before))?, before)?;
    let mut part = Part::new(id, began);
    let mut files = Vec::new();
    for input in inputs {
        let (file, segments, pieces) = begin(input)?;
        part.files.push(file);
        files.push((input, segments, pieces));
    }
    let plan = Plan::new(files)?;
    let mut uploader = Uploader::new(remote, part.save);
    let shared = encode::Shared { remote, bases: &bases, cache, o };
    let done = store(&shared, &plan, &mut part, &mut uploader).and_then(|places| {
        part.objects = uploader.finish()?;
        refer(&mut part, &bases.catalog, &plan.jobs, &places)?;
        let bytes = part.to_bytes()?;
        let id = PartId::of(&bytes);
        remote.wait(remote.put(&layout::part(id), bytes.into()))?;
        Ok(Saved { part: id, raw_size: part.raw_size(), new_size: part.new_size() })
    });
    if done.is_err() {
        uploader.discard();
    }
    done
}

fn check(inputs: &[Input<'_>], o: &SaveOptions) -> Result<()> {
    if inputs.is_empty() {
        return Err(Error::usage("a snapshot has one file at least"));
    }
    if !(1..=64).contains(&o.anchor_every) {
        return Err(Error::usage(format!("an anchor every {} saves is not within 1 and 64", o.anchor_every)));
    }
    inputs.iter().try_for_each(|i| check_name(&i.name)).map_err(Error::usage)?;
    check_together(inputs.iter().map(|i| &i.name[..])).map_err(Error::usage)
}

/// A file as the part will have it, but for its extents; its segments, and its pieces.
fn begin(input: &Input<'_>) -> Result<(File, Vec<lmc::Segment>, Vec<Piece>)> {
    let at = |e: Error| e.at(&input.name);
    let base = Base::new(input.source).map_err(|e| at(Error::codec(e)))?;
    let file = File {
        name: input.name.clone(),
        len: base.raw_size(),
        layout: base.layout().to_owned(),
        segments: base.segments().iter().map(Segment::of).collect(),
        extents: vec![],
    };
    let segments = base.segments().to_vec();
    let pieces = cut(&input.name, &segments).map_err(at)?;
    Ok((file, segments, pieces))
}

/// Stores what is new of all pieces; where each of them is.
fn store(
    shared: &encode::Shared<'_>,
    plan: &Plan<'_>,
    part: &mut Part,
    uploader: &mut Uploader<'_>,
) -> Result<Vec<Place>> {
    let mut places: Vec<Place> = Vec::with_capacity(plan.jobs.len());
    // What new sets are made from, which is referred to when all is known.
    let mut made_from: Vec<Option<Place>> = Vec::new();
    let mut here: HashMap<Hash, usize> = HashMap::new();
    let claims = encode::Claims::default();
    ordered::run(
        // Now and then one waits for a base.
        ordered::threads_that_wait(shared.o.threads),
        plan.groups.len(),
        || Encoder::new(shared, &claims),
        |encoder, i| encoder.encode(plan.groups[i].start, &plan.jobs[plan.groups[i].clone()]),
        |i, encoded| {
            let lead = places.len();
            for (encoded, job) in encoded.into_iter().zip(&plan.jobs[plan.groups[i].clone()]) {
                let place = match encoded {
                    Encoded::Earlier(set) => Place::Earlier(set),
                    Encoded::Repeated(raw_hash) => Place::Here(here[&raw_hash]),
                    Encoded::New(new) => match here.get(&new.raw_hash) {
                        Some(&same) => Place::Here(same),
                        None => {
                            let number = part.sets.len();
                            here.insert(new.raw_hash, number);
                            let (hash, raw_hash, raw_len) = (new.hash, new.raw_hash, job.piece.len());
                            let at = uploader.append(new.bytes)?;
                            let (base, age) = match new.base {
                                MadeFrom::Nothing => (None, 0),
                                MadeFrom::Earlier(set, age) => (Some(Place::Earlier(set)), age),
                                MadeFrom::Lead => (Some(places[lead]), 1 + age_of(places[lead], part, shared.bases)?),
                            };
                            part.sets.push(BlockSet { at, hash, raw_len, raw_hash, base: None, age });
                            made_from.push(base);
                            Place::Here(number)
                        }
                    },
                };
                places.push(place);
            }
            Ok(())
        },
    )?;
    let mut numbers = Numbers::new(&mut part.parts, &shared.bases.catalog);
    for (set, base) in part.sets.iter_mut().zip(made_from) {
        set.base = base.map(|b| numbers.place(b)).transpose()?;
    }
    Ok(places)
}

fn age_of(place: Place, part: &Part, bases: &Bases) -> Result<u32> {
    match place {
        Place::Here(number) => Ok(part.sets[number].age),
        Place::Earlier(set) => Ok(bases.catalog.set(set)?.age),
    }
}

/// The parts that a part refers to, as it numbers them.
pub(crate) struct Numbers<'a> {
    parts: &'a mut Vec<PartId>,
    known: HashMap<PartId, usize>,
    catalog: &'a Catalog,
}

impl<'a> Numbers<'a> {
    pub(crate) fn new(parts: &'a mut Vec<PartId>, catalog: &'a Catalog) -> Self {
        let known = parts.iter().zip(1..).map(|(&id, number)| (id, number)).collect();
        Self { parts, known, catalog }
    }

    /// A reference to a set. The parts that all of its chain is in are named, too.
    pub(crate) fn refer(&mut self, set: SetId) -> Result<Ref> {
        for link in self.catalog.chain(set)? {
            if !self.known.contains_key(&link.part) {
                self.parts.push(link.part);
                self.known.insert(link.part, self.parts.len());
            }
        }
        Ok(Ref(self.known[&set.part], set.index))
    }

    fn place(&mut self, place: Place) -> Result<Ref> {
        match place {
            Place::Here(number) => Ok(Ref(0, number)),
            Place::Earlier(set) => self.refer(set),
        }
    }
}

/// Says of every file which block sets it is made of.
fn refer(part: &mut Part, catalog: &Catalog, jobs: &[Job<'_>], places: &[Place]) -> Result<()> {
    let mut files: HashMap<&str, Vec<(u64, Extent)>> = HashMap::new();
    let mut numbers = Numbers::new(&mut part.parts, catalog);
    for (Job { input, piece }, &place) in jobs.iter().zip(places) {
        let Ref(of, set) = numbers.place(place)?;
        let mut from = 0;
        let extents = files.entry(&input.name).or_default();
        for r in &piece.ranges {
            extents.push((r.offset, Extent(of, set, from, r.len)));
            from += r.len;
        }
    }
    for f in &mut part.files {
        let mut extents = files.remove(&f.name[..]).unwrap_or_default();
        extents.sort_unstable_by_key(|e| e.0);
        f.extents = extents.into_iter().map(|e| e.1).collect();
    }
    Ok(())
}
