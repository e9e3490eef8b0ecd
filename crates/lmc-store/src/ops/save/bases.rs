//! The block sets of an earlier snapshot that a new one can refer to or use as bases.

use std::collections::{HashMap, HashSet};

use lmc::{Dtype, Segment};

use super::input::Input;
use crate::chunks::catalog::{Catalog, SetId};
use crate::chunks::cut::{ANY, Chunk, Keys, Range, cuts_of, is_small};
use crate::chunks::presence::Presence;
use crate::error::{Error, Result};
use crate::format::ids::{Hash, ShardId};
use crate::format::manifest::shard::{Extent, File, Ref};
use crate::objects::remote::Remote;

pub(super) struct Bases {
    pub(super) catalog: Catalog,
    /// By hash of the raw bytes.
    equal: HashMap<Hash, SetId>,
    /// The place of each key's bytes.
    places: Known<Spot>,
    /// Indices into `cuts`.
    cut: Known<usize>,
    /// Tensors that are not small, whatever their lengths.
    tensors: Known<Before>,
    /// Parts of tensors that are not cut as usual, in order: by others (`flat.rs`), or since they were resized.
    cuts: Vec<Vec<Part>>,
    /// The segments of each set that consists of bytes of one file.
    contents: HashMap<SetId, Vec<Segment>>,
    /// The data objects of the sets.
    presence: Presence,
}

/// The bytes of an earlier snapshot, by the keys that identify them.
#[derive(Debug)]
struct Known<T> {
    exact: HashMap<Hash, T>,
    /// By keys without wrappers; `None` if several have the key.
    unwrapped: HashMap<Hash, Option<T>>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), unwrapped: HashMap::new() }
    }
}

impl<T: Copy + PartialEq> Known<T> {
    /// The first of several with an exact key counts.
    fn add(&mut self, keys: Keys, value: T) {
        for key in keys.exact {
            self.exact.entry(key).or_insert(value);
        }
        for key in keys.unwrapped {
            let one = self.unwrapped.entry(key).or_insert(Some(value));
            *one = one.filter(|&v| v == value);
        }
    }

    fn get(&self, keys: Keys) -> Option<T> {
        let exact = keys.exact.iter().find_map(|k| self.exact.get(k)).copied();
        exact.or_else(|| keys.unwrapped.iter().find_map(|k| *self.unwrapped.get(k)?))
    }
}

/// Bytes of a file: the set that has them, and their offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    set: SetId,
    first: u64,
}

/// A part of a tensor that stands in one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) set: SetId,
    /// Its offset in the set.
    pub(super) first: u64,
    /// Its bytes in the tensor.
    pub(super) range: Range,
}

/// A tensor of an earlier snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before {
    len: u64,
    /// Index into `cuts`; none if it is cut as usual.
    cut: Option<usize>,
}

/// Bytes of one segment of a file that stand in one set.
struct Piece {
    first: u64,
    /// Index of the segment, and the place in it.
    segment: usize,
    start: u64,
    len: u64,
}

impl Bases {
    /// Takes the sets that the files of `shards` refer to, and no others of the catalog: only those are sure to stay
    /// while we save `inputs`. Looks at the data objects of files with their names; at others once they are of use.
    pub(super) fn new(remote: &Remote, catalog: Catalog, shards: &[ShardId], inputs: &[Input<'_>]) -> Result<Self> {
        let mut bases = Self {
            catalog,
            equal: HashMap::new(),
            places: Known::default(),
            tensors: Known::default(),
            cut: Known::default(),
            cuts: vec![],
            contents: HashMap::new(),
            presence: Presence::new(remote),
        };
        let names: HashSet<&str> = inputs.iter().map(|i| &i.name[..]).collect();
        let mut likely = vec![];
        for &id in shards {
            let shard = bases.catalog.shard(id)?.clone();
            for file in &shard.files {
                for &Extent(of, set, ..) in &file.extents {
                    let set = bases.catalog.resolve(id, Ref(of, set))?;
                    if names.contains(&file.name[..]) {
                        likely.push(set);
                    }
                    // The bases of an existing set exist, too.
                    for link in bases.catalog.chain(set)? {
                        let raw_hash = bases.catalog.set(link)?.raw_hash;
                        bases.equal.entry(raw_hash).or_insert(link);
                    }
                }
                bases.add_file(id, file)?;
            }
        }
        bases.presence.look(&bases.catalog, likely)?;
        Ok(bases)
    }

    /// Notes where the bytes of a file are, however it was cut.
    fn add_file(&mut self, shard: ShardId, file: &File) -> Result<()> {
        let mut offset = 0;
        let listed = self.catalog.segments(shard, file)?;
        let mut segments = Vec::with_capacity(listed.len());
        for s in listed {
            segments.push(s.to_lmc(offset)?);
            offset += s.len;
        }
        let mut held: HashMap<SetId, Vec<Piece>> = HashMap::new();
        let mut parts: Vec<Vec<Part>> = vec![vec![]; segments.len()];
        for (of, piece) in pieces(&segments, &file.extents) {
            let Piece { first, segment, start, len } = piece;
            let s = &segments[segment];
            let keys = match s.dtype {
                Some(_) => Keys::tensor(&file.name, s, start, len),
                None => Keys::opaque(&file.name, s.offset + start, len),
            };
            let set = self.catalog.resolve(shard, of)?;
            let place = Spot { set, first };
            self.places.add(keys, place);
            parts[segment].push(Part { set, first, range: Range { offset: start, len } });
            held.entry(set).or_default().push(piece);
        }
        for (set, pieces) in held {
            if !self.contents.contains_key(&set)
                && let Some(segments) = contents(&segments, pieces, self.catalog.set(set)?.raw_len)?
            {
                self.contents.insert(set, segments);
            }
        }
        self.add_cuts(&file.name, &segments, parts);
        Ok(())
    }

    /// Notes the tensors of a file that are cut otherwise than by [`cut`](crate::chunks::cut::cut), and those that share their sets.
    fn add_cuts(&mut self, file: &str, segments: &[Segment], parts: Vec<Vec<Part>>) {
        let irregular = |(s, parts): &(&Segment, &Vec<Part>)| {
            let ranges = parts.iter().map(|p| (p.range.offset, p.range.len));
            match s.dtype {
                Some(dtype) if !is_small(s) => !ranges.eq(cuts_of(s.len, dtype)),
                Some(_) => parts.len() > 1,
                None => false,
            }
        };
        let cut = segments.iter().zip(&parts).filter(irregular);
        let sets: HashSet<SetId> = cut.flat_map(|(_, parts)| parts.iter().map(|p| p.set)).collect();
        for (s, parts) in segments.iter().zip(parts).filter(|(s, _)| s.dtype.is_some()) {
            let cut = parts.iter().any(|p| sets.contains(&p.set)).then_some(self.cuts.len());
            if s.len > 0 && !is_small(s) {
                self.tensors.add(Keys::tensor(file, s, 0, ANY), Before { len: s.len, cut });
            }
            if let Some(i) = cut {
                self.cut.add(Keys::tensor(file, s, 0, s.len), i);
                self.cuts.push(parts);
            }
        }
    }

    /// A set with these raw bytes that can be referred to.
    pub(super) fn equal(&self, raw_hash: Hash) -> Result<Option<SetId>> {
        match self.equal.get(&raw_hash) {
            Some(&set) if self.is_there(set)? => Ok(Some(set)),
            _ => Ok(None),
        }
    }

    /// Whether the data objects of a set and of its bases are there.
    pub(super) fn is_there(&self, set: SetId) -> Result<bool> {
        self.presence.has(&self.catalog, set)
    }

    /// Counts the data object that an error names as lost: that of a set, or of one of its bases.
    pub(super) fn condemn(&self, set: SetId, e: &Error) -> Result<()> {
        self.presence.condemn(&self.catalog, set, e)
    }

    /// A message about data objects that are not there.
    pub(super) fn note(&self) -> Option<String> {
        self.presence.note()
    }

    /// The set with the same tensors as a chunk, or at least half of its bytes; preferably from a file of the same name. Bytes are known by
    /// names, or by names without wrappers if there is only one such.
    pub(super) fn alike(&self, chunk: &Chunk) -> Option<SetId> {
        let places = self.places(chunk);
        // Sets in the order of the tensors, so that the choice is definite.
        let (mut votes, mut sets): (HashMap<SetId, u64>, Vec<SetId>) = (HashMap::new(), vec![]);
        for (place, len) in places.iter().zip(chunk.lens()) {
            if let Some(Spot { set, .. }) = place.filter(|p| self.contents.contains_key(&p.set)) {
                *votes.entry(set).or_insert_with(|| {
                    sets.push(set);
                    0
                }) += len;
            }
        }
        let most = sets.iter().map(|set| votes[set]).max().filter(|&most| most >= chunk.len().div_ceil(2))?;
        sets.into_iter().find(|set| votes[set] == most)
    }

    /// Whether a set has each tensor of a chunk at its own place, under its own name, in a file of the same name.
    pub(super) fn is_same(&self, chunk: &Chunk, set: SetId) -> bool {
        let spots = chunk.keys().map(|keys| self.places.exact.get(&keys.exact[0]).copied());
        spots.zip(&chunk.segments).all(|(spot, s)| spot == Some(Spot { set, first: s.offset }))
    }

    /// The segments of a set that [`Self::alike`] gave for a chunk, with the names of the chunk's.
    pub(super) fn described(&self, set: SetId, chunk: &Chunk) -> Result<Vec<Segment>> {
        if chunk.segments.is_empty() {
            return Ok(vec![]);
        }
        let places = self.places(chunk);
        let named = places.iter().zip(&chunk.segments).filter_map(|(p, s)| Some(((*p)?, s)));
        let names: HashMap<u64, &Segment> = named.filter(|(p, _)| p.set == set).map(|(p, s)| (p.first, s)).collect();
        rename(&self.contents[&set], &chunk.segments, |s| names.get(&s.offset).copied())
    }

    /// The parts of a tensor, if it was cut otherwise than by [`cut`](crate::chunks::cut::cut), or shares a set with one that was.
    pub(super) fn cuts(&self, file: &str, s: &Segment) -> &[Part] {
        self.cut.get(Keys::tensor(file, s, 0, s.len)).map_or(&[], |i| &self.cuts[i])
    }

    /// Where a tensor that is not small is cut, in elements, so that its parts begin where they did: if it had another length, or was cut
    /// otherwise than usual.
    pub(super) fn ends(&self, file: &str, s: &Segment) -> Vec<u64> {
        let Some((dtype, before)) = s.dtype.zip(self.tensors.get(Keys::tensor(file, s, 0, ANY))) else { return vec![] };
        // What `recut.rs` leaves is cut as usual again.
        if before.len == s.len && (before.cut.is_none() || dtype.bits() == 16) {
            return vec![];
        }
        let mut ends: Vec<u64> = self.parts(before, dtype).map(|part| part.offset).collect();
        // What is new goes to the last part, if there is room.
        let rest = s.len.saturating_sub(ends.last().copied().unwrap_or(0));
        if cuts_of(rest, dtype).next().is_some_and(|first| first.1 < rest) {
            ends.push(before.len);
        }
        let bits = u64::from(dtype.bits());
        ends.into_iter().filter(|at| (at * 8).is_multiple_of(bits)).map(|at| at * 8 / bits).collect()
    }

    /// The parts of a tensor, in order.
    fn parts(&self, before: Before, dtype: Dtype) -> impl Iterator<Item = Range> {
        let irregular = before.cut.map(|i| self.cuts[i].iter().map(|part| part.range));
        let regular =
            before.cut.is_none().then(|| cuts_of(before.len, dtype).map(|(offset, len)| Range { offset, len }));
        irregular.into_iter().flatten().chain(regular.into_iter().flatten())
    }

    /// Where each tensor of a chunk was, or each range of its opaque bytes.
    fn places(&self, chunk: &Chunk) -> Vec<Option<Spot>> {
        let mut places: Vec<_> = chunk.keys().map(|keys| self.places.get(keys)).collect();
        if let [place @ None] = &mut places[..] {
            *place = self.resized(chunk);
        }
        places
    }

    /// The bytes that began where a chunk of a single tensor begins, if that had another length, and they are half as many at least.
    fn resized(&self, chunk: &Chunk) -> Option<Spot> {
        let (s, start) = chunk.part()?;
        let (dtype, before) = s.dtype.zip(self.tensors.get(Keys::tensor(&chunk.file, s, 0, ANY)))?;
        let part = self.parts(before, dtype).find(|part| part.offset == start)?;
        let spot = self.places.get(Keys::tensor(&chunk.file, s, start, part.len))?;
        (2 * part.len >= s.len).then_some(spot)
    }
}

/// The segments of a base, where the counterpart of each one of `own` has its name, and no other has one of those names.
pub(super) fn rename<'s>(
    base: &[Segment],
    own: &[Segment],
    counterpart: impl Fn(&Segment) -> Option<&'s Segment>,
) -> Result<Vec<Segment>> {
    let taken: HashSet<&str> = own.iter().filter_map(|s| s.name.as_deref()).collect();
    let renamed = |s: &Segment| {
        let name = match (counterpart(s), s.name.as_deref()) {
            (Some(own), _) => own.name.clone(),
            (None, Some(name)) if taken.contains(name) => Some("".into()),
            _ => s.name.clone(),
        };
        let name = name.filter(|_| s.dtype.is_some());
        Segment::new(name, s.dtype, s.shape.clone(), s.offset, s.len).map_err(Error::codec)
    };
    base.iter().map(renamed).collect()
}

/// The pieces of a file: each lies in one segment and in one extent. In order.
fn pieces(segments: &[Segment], extents: &[Extent]) -> impl Iterator<Item = (Ref, Piece)> {
    let (mut at, mut end) = (0, 0);
    let ends = extents.iter().map(move |&e| {
        end += e.3;
        (end, e)
    });
    let mut ends = ends.peekable();
    let mut segment = 0;
    std::iter::from_fn(move || {
        while segments.get(segment)?.end() <= at {
            segment += 1;
        }
        while ends.peek()?.0 <= at {
            ends.next();
        }
        let &(end, Extent(shard, set, first, len)) = ends.peek()?;
        let s = &segments[segment];
        let until = end.min(s.end());
        let piece = Piece { first: first + (at - (end - len)), segment, start: at - s.offset, len: until - at };
        at = until;
        Some((Ref(shard, set), piece))
    })
}

/// The segments of a set of `len` bytes, if it is all of these pieces.
fn contents(segments: &[Segment], mut pieces: Vec<Piece>, len: u64) -> Result<Option<Vec<Segment>>> {
    pieces.sort_by_key(|p| p.first);
    // A tensor that the file has twice.
    pieces.dedup_by_key(|p| p.first);
    let mut at = 0;
    let mut found = Vec::with_capacity(pieces.len());
    for p in pieces {
        let s = &segments[p.segment];
        let bits = p.len * 8;
        let shape = match s.dtype {
            _ if p.first != at => return Ok(None),
            Some(dtype) if bits.is_multiple_of(u64::from(dtype.bits())) => [bits / u64::from(dtype.bits())].into(),
            Some(_) => return Ok(None),
            None => lmc::layout::Shape::default(),
        };
        found.push(Segment::new(s.name.clone(), s.dtype, shape, at, p.len).map_err(Error::codec)?);
        at += p.len;
    }
    Ok((at == len).then_some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(tensors: &[(&str, u64)]) -> Vec<Segment> {
        let mut at = 0;
        let tensor = |&(name, len): &(&str, u64)| {
            at += len;
            Segment::new(Some(name.into()), Some(Dtype::U8), [len].into(), at - len, len).unwrap()
        };
        tensors.iter().map(tensor).collect()
    }

    #[test]
    fn pieces_are_cut_by_segments_and_extents() {
        let extents = [Extent(0, 0, 0, 10), Extent(0, 1, 0, 5), Extent(0, 0, 10, 5), Extent(0, 1, 5, 5)];
        let segments = tensors(&[("a", 4), ("", 0), ("b", 11), ("c", 10)]);
        let all: Vec<_> =
            pieces(&segments, &extents).map(|(of, p)| (of.1, p.first, p.segment, p.start, p.len)).collect();
        assert_eq!(all, [(0, 0, 0, 0, 4), (0, 4, 2, 0, 6), (1, 0, 2, 6, 5), (0, 10, 3, 0, 5), (1, 5, 3, 5, 5)]);
        assert_eq!(pieces(&segments, &[]).count() + pieces(&[], &extents).count(), 0);
    }

    #[test]
    fn a_set_is_known_if_it_is_all_of_a_file() {
        let segments = tensors(&[("a", 4), ("b", 6), ("c", 4)]);
        let piece = |first, segment, start, len| Piece { first, segment, start, len };
        let names = |pieces: Vec<Piece>, len| -> Option<Vec<(String, u64, u64)>> {
            let found = contents(&segments, pieces, len).unwrap()?;
            Some(found.iter().map(|s| (s.name.as_deref().unwrap().to_owned(), s.offset, s.len)).collect())
        };
        let expected = vec![("b".to_owned(), 0, 6), ("a".to_owned(), 6, 4)];
        assert_eq!(names(vec![piece(6, 0, 0, 4), piece(0, 1, 0, 6)], 10), Some(expected.clone()));
        // What a file has twice counts once.
        assert_eq!(names(vec![piece(6, 0, 0, 4), piece(0, 1, 0, 6), piece(6, 2, 0, 4)], 10), Some(expected));
        assert_eq!(names(vec![piece(6, 0, 0, 4), piece(0, 1, 0, 6)], 11), None);
        assert_eq!(names(vec![piece(7, 0, 0, 4), piece(0, 1, 0, 6)], 11), None);
        assert_eq!(names(vec![piece(5, 0, 0, 4), piece(0, 1, 0, 6)], 9), None);
    }

    #[test]
    fn counterparts_get_the_names_and_no_others_have_them() {
        let (base, own) = (tensors(&[("a", 4), ("b", 4), ("c", 4)]), tensors(&[("x", 4), ("c", 4)]));
        let renamed = rename(&base, &own, |s| (s.offset == 4).then_some(&own[0])).unwrap();
        let names: Vec<_> = renamed.iter().map(|s| s.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a", "x", ""]);
    }
}
