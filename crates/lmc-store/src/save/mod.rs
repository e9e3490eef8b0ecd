//! Saving: files in, a part out (`docs/store.md` §5).

mod bases;
pub(crate) mod encode;
pub(crate) mod upload;

use std::collections::{HashMap, HashSet};

use lmc::{Base, Level, ReadAt};

use crate::catalog::{Catalog, SetId};
use crate::error::{Error, Result};
use crate::ids::{Hash, PartId, SaveId, Step};
use crate::layout;
use crate::manifest::Document;
use crate::manifest::part::{BlockSet, Extent, File, Part, Ref, Segment, check_name};
use crate::ordered;
use crate::pieces::{Piece, cut};
use crate::remote::Remote;
use bases::Bases;
use encode::{Encoded, Encoder};
use upload::Uploader;

/// A file to be saved.
#[derive(Clone)]
pub struct Input<'a> {
    name: String,
    source: &'a dyn ReadAt,
}

impl<'a> Input<'a> {
    /// What `source` holds, under a name without directories.
    pub fn new(name: impl Into<String>, source: &'a dyn ReadAt) -> Self {
        Self { name: name.into(), source }
    }
}

/// What a snapshot's pieces are made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BasePolicy {
    /// The same piece of the snapshot before, unless that saves next to nothing.
    #[default]
    Auto,
    /// The same piece of the snapshot before.
    Previous,
    /// The piece that the one of the snapshot before began with: larger than with `Previous`, and restored from two pieces at most.
    Anchor,
    /// Nothing: each snapshot stands alone. What did not change is not stored again all the same.
    Nothing,
}

/// How to save.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SaveOptions {
    /// How hard the codec tries.
    pub level: Level,
    /// Threads to compress with; 0 for as many as the machine has. Nothing but speed depends on it.
    pub threads: usize,
    /// What pieces are made from.
    pub base: BasePolicy,
    /// Every so many saves a piece is stored alone, so that no more than these are ever needed to restore one: 1 to 64.
    pub anchor_every: u32,
    /// The snapshot that is the one before; by default the last one of an earlier step.
    pub from: Option<Step>,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self { level: Level::Default, threads: 0, base: BasePolicy::Auto, anchor_every: 16, from: None }
    }
}

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

/// One piece of one of the files.
struct Job<'a> {
    input: &'a Input<'a>,
    piece: Piece,
}

/// Where a piece is, at last.
#[derive(Clone, Copy)]
enum Place {
    Earlier(SetId),
    /// Number of the set in this part.
    Here(usize),
}

/// Saves files as a part. `before`: the parts of the snapshot that pieces may be made from; it counted at the store's time `began`, or later. `id` was never
/// used.
pub(crate) fn save(
    remote: &Remote,
    inputs: &[Input<'_>],
    before: &[PartId],
    o: &SaveOptions,
    began: u64,
    id: SaveId,
) -> Result<Saved> {
    check(inputs, o)?;
    let bases = Bases::new(remote.wait(Catalog::load(remote, before))?, before)?;
    let mut part = Part::new(id, began);
    let mut jobs = Vec::new();
    for input in inputs {
        let (file, pieces) = begin(input)?;
        part.files.push(file);
        jobs.extend(pieces.into_iter().map(|piece| Job { input, piece }));
    }
    let mut uploader = Uploader::new(remote, part.save);
    let done = store(remote, &jobs, &bases, o, &mut part, &mut uploader).and_then(|places| {
        part.objects = uploader.finish()?;
        refer(&mut part, &bases.catalog, &jobs, &places)?;
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
    let mut names = HashSet::new();
    for i in inputs {
        check_name(&i.name)?;
        if !names.insert(&i.name) {
            return Err(Error::usage(format!("two files are named {:?}: names are unique in a snapshot", i.name)));
        }
    }
    Ok(())
}

/// A file as the part will have it, but for its extents, and its pieces.
fn begin(input: &Input<'_>) -> Result<(File, Vec<Piece>)> {
    let at = |e: Error| e.at(&input.name);
    let base = Base::new(input.source).map_err(|e| at(Error::codec(e)))?;
    let file = File {
        name: input.name.clone(),
        len: base.raw_size(),
        layout: base.layout().to_owned(),
        segments: base.segments().iter().map(Segment::of).collect(),
        extents: vec![],
    };
    Ok((file, cut(&input.name, base.segments()).map_err(at)?))
}

/// Stores what is new of all pieces; where each of them is.
fn store(
    remote: &Remote,
    jobs: &[Job<'_>],
    bases: &Bases,
    o: &SaveOptions,
    part: &mut Part,
    uploader: &mut Uploader<'_>,
) -> Result<Vec<Place>> {
    let threads = match o.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    let mut places = Vec::with_capacity(jobs.len());
    // Bases of new sets, which are numbered when all is known.
    let mut made_from: Vec<Option<SetId>> = Vec::new();
    let mut here: HashMap<Hash, usize> = HashMap::new();
    let claims = encode::Claims::default();
    ordered::run(
        // One more than there are cores: while one waits for a base, the others work.
        threads + 1,
        jobs.len(),
        || Encoder::new(remote, bases, &claims, o),
        |encoder, i| encoder.encode(i, jobs[i].input, &jobs[i].piece).map_err(|e| e.at(&jobs[i].input.name)),
        |i, encoded| {
            places.push(match encoded {
                Encoded::Earlier(set) => Place::Earlier(set),
                Encoded::Repeated(raw_hash) => Place::Here(here[&raw_hash]),
                Encoded::New(new) => match here.get(&new.raw_hash) {
                    Some(&same) => Place::Here(same),
                    None => {
                        let number = part.sets.len();
                        here.insert(new.raw_hash, number);
                        let (hash, raw_hash, raw_len) = (Hash::of(&new.bytes), new.raw_hash, jobs[i].piece.len());
                        let at = uploader.append(new.bytes)?;
                        part.sets.push(BlockSet { at, hash, raw_len, raw_hash, base: None, age: new.age });
                        made_from.push(new.base);
                        Place::Here(number)
                    }
                },
            });
            Ok(())
        },
    )?;
    let mut numbers = Numbers::new(&mut part.parts, &bases.catalog);
    for (set, base) in part.sets.iter_mut().zip(made_from) {
        set.base = base.map(|b| numbers.refer(b)).transpose()?;
    }
    Ok(places)
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
}

/// Says of every file which block sets it is made of.
fn refer(part: &mut Part, catalog: &Catalog, jobs: &[Job<'_>], places: &[Place]) -> Result<()> {
    let mut files: HashMap<&str, Vec<(u64, Extent)>> = HashMap::new();
    let mut numbers = Numbers::new(&mut part.parts, catalog);
    for (Job { input, piece }, place) in jobs.iter().zip(places) {
        let Ref(of, set) = match *place {
            Place::Here(number) => Ref(0, number),
            Place::Earlier(set) => numbers.refer(set)?,
        };
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
