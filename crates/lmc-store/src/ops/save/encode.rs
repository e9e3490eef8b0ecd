//! Encoding a chunk: read, hashed, and compressed if it is new.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Reader, Segment, Source};

use super::bases::Bases;
use super::choice::Choice;
use super::clocks::Clocks;
use super::options::BasePolicy;
use super::plan::Job;
use super::read::{like, read};
use crate::chunks::cache::ChunkCache;
use crate::chunks::catalog::{MAX_CHAIN, SetId};
use crate::chunks::chain::{self, ChainDecoder};
use crate::chunks::cut::Chunk;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Hash;
use crate::objects::buffer::{Buffer, Pool};
use crate::objects::remote::Remote;

/// The result of encoding a chunk.
pub(super) enum Encoded {
    /// The store has it; whether the same tensors had it in the snapshot before.
    Earlier(SetId, bool),
    /// An earlier chunk of this save has the same raw bytes.
    Repeated(Hash),
    New(New),
}

pub(super) struct New {
    pub(super) bytes: Bytes,
    pub(super) hash: Hash,
    pub(super) raw_hash: Hash,
    /// Its bases, in the order in which its file names them.
    pub(super) bases: Vec<MadeFrom>,
    /// Whether it is stored even if another chunk has the same bytes: others of its group count on how long its chain is.
    pub(super) is_own: bool,
    /// How many elements differ from those of the snapshot before, if that is known.
    pub(super) changed: Option<u64>,
    /// The same chunk as a delta, if this has no base.
    pub(super) alternative: Option<Box<Alternative>>,
}

/// A delta beside a block set with the same raw bytes.
pub(super) struct Alternative {
    pub(super) bytes: Bytes,
    pub(super) hash: Hash,
    pub(super) base: SetId,
}

impl New {
    fn of(bytes: Bytes, raw_hash: Hash, bases: Vec<MadeFrom>) -> Self {
        Self { hash: Hash::of(&bytes), bytes, raw_hash, bases, is_own: false, changed: None, alternative: None }
    }
}

/// A base of a block set.
#[derive(Clone, Copy)]
pub(super) enum MadeFrom {
    /// A set of an earlier save.
    Earlier(SetId),
    /// The chunk with this number in its group.
    Here(usize),
}

/// For a hash of raw bytes, the first chunk known to have it.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<Hash, usize>>);

impl Claims {
    /// Whether an earlier chunk has these bytes. If that becomes known only later, both are compressed, so that the output does not depend
    /// on timing.
    fn taken(&self, raw_hash: Hash, chunk: usize) -> bool {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = claims.entry(raw_hash).or_insert(chunk);
        let taken = *first < chunk;
        *first = chunk.min(*first);
        taken
    }
}

/// Shared by all threads of a save.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) remote: &'a Remote,
    pub(super) choice: Choice<'a>,
    pub(super) cache: Option<&'a ChunkCache>,
    pub(super) clocks: &'a Clocks,
    /// For compressed chunks, until they are stored.
    pub(super) buffers: &'a Pool,
}

/// Buffers of one thread.
pub(super) struct Encoder<'a> {
    shared: Shared<'a>,
    claims: &'a Claims,
    compressor: Compressor,
    chain: ChainDecoder,
    /// For chunks that are not in memory: those of a group that others are predicted from, and the next one.
    bufs: Vec<Buffer>,
    /// For a base that several chunks of a group have.
    old: Buffer,
}

/// A chunk compressed without a base, and its content hash.
type Alone = (Vec<u8>, [u8; 16]);

/// A chunk's role in its group.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// One that is not rounded from another; whether others are predicted from it, and what tells a step, if anything does: the averages
    /// before it, and moments after it; and whether its chain ends.
    Lead { followed: bool, known: Option<&'a Old<'a>>, moments: &'a [Moment<'a>], ends: bool },
    /// Predicted from these bytes, of the chunk with this number; and their segments, with the names of those that are predicted from them.
    Follower(usize, &'a [Segment], &'a [u8]),
}

/// What tells a step of an optimizer.
struct Moment<'a> {
    raw: &'a [u8],
    segments: &'a [Segment],
    /// Number of the chunk in the group.
    of: usize,
    /// The sets of earlier saves that it is decoded with.
    earlier: Vec<SetId>,
}

impl MadeFrom {
    fn earlier(&self) -> Option<SetId> {
        match self {
            Self::Earlier(set) => Some(*set),
            Self::Here(_) => None,
        }
    }
}

/// The bytes of a set of an earlier save, and their content hash.
struct Old<'b> {
    set: SetId,
    raw: &'b [u8],
    content: Option<[u8; 16]>,
    segments: Vec<Segment>,
}

impl Old<'_> {
    fn base(&self) -> Result<Base<'_>> {
        let base = match &self.segments[..] {
            [] => Base::new(self.raw),
            segments => Base::of_segments(self.raw, segments),
        };
        let base = base.map_err(Error::codec)?;
        Ok(match self.content {
            Some(content) => base.with_hash(content),
            None => base,
        })
    }
}

impl<'a> Shared<'a> {
    pub(super) fn bases(&self) -> &'a Bases {
        self.choice.bases
    }

    /// Whether a chunk of this save may be the base of another.
    fn can_lead(&self, lead: &Encoded) -> Result<bool> {
        // How long the chain of a new set is depends on which of several chunks with these bytes comes first.
        let links = match lead {
            Encoded::Earlier(set, _) => self.bases().catalog.chain(*set)?.len(),
            Encoded::Repeated(_) | Encoded::New(_) => self.choice.options.anchor_every as usize,
        };
        Ok(links + 1 < MAX_CHAIN)
    }

    /// Caches the raw bytes as base for the next save, in place of this save's base; with their content hash, if it is known.
    fn keep(&self, raw_hash: Hash, raw: &[u8], content: Option<[u8; 16]>, chunk: &Chunk) -> Result<()> {
        let Some(cache) = self.cache else { return Ok(()) };
        let before = self.bases().alike(chunk).map(|set| self.bases().catalog.set(set)).transpose()?;
        cache.put(raw_hash, raw, content, before.map(|b| b.raw_hash));
        Ok(())
    }
}

impl<'a> Encoder<'a> {
    pub(super) fn new(shared: &Shared<'a>, claims: &'a Claims) -> Result<Self> {
        // Chunks are compressed in parallel; each by one thread.
        let options = CompressOptions::default().with_level(shared.choice.options.level).with_threads(1);
        let compressor = Compressor::new(&options).map_err(Error::codec)?;
        Ok(Self {
            shared: *shared,
            claims,
            compressor,
            chain: ChainDecoder::new()?,
            bufs: vec![],
            old: Buffer::default(),
        })
    }

    /// Encodes a group: those chunks that are not rounded from others, the first given by number, and those that are.
    pub(super) fn encode(&mut self, number: usize, group: &[Job<'_>]) -> Result<Vec<Encoded>> {
        let (mut bufs, mut old) = (std::mem::take(&mut self.bufs), std::mem::take(&mut self.old));
        let clocks = self.shared.clocks;
        let done = clocks.work(|| self.encode_with(number, group, &mut bufs, &mut old));
        (self.bufs, self.old) = (bufs, old);
        done
    }

    fn encode_with(
        &mut self,
        number: usize,
        group: &[Job<'_>],
        bufs: &mut Vec<Buffer>,
        old: &mut Buffer,
    ) -> Result<Vec<Encoded>> {
        let at = |job: &Job<'_>, e: Error| e.at(&job.input.name);
        let (leading, following) = group.split_at(group.iter().take_while(|job| job.lead.is_none()).count());
        let clocks = self.shared.clocks;
        bufs.resize_with(bufs.len().max(leading.len() + 1), Buffer::default);
        let (of_leading, rest) = bufs.split_at_mut(leading.len());
        let read_all =
            leading.iter().zip(of_leading).map(|(job, buf)| clocks.read(|| read(job, buf)).map_err(|e| at(job, e)));
        let raws = read_all.collect::<Result<Vec<_>>>()?;
        // A step of an optimizer tells the second moment of the averages of gradients before and after it, and the weights of both after it.
        let is_parameter = leading.len() > 1;
        let before: Vec<SetId> = leading.iter().filter_map(|job| self.shared.bases().alike(&job.chunk)).collect();
        let ends = is_parameter && self.shared.choice.ends_steps(&before)?;
        let averages = if is_parameter && !ends { self.averages(&leading[0], old)? } else { None };
        let mut encoded: Vec<Encoded> = Vec::with_capacity(group.len());
        let mut moments: Vec<Moment<'_>> = vec![];
        for (i, (job, &raw)) in leading.iter().zip(&raws).enumerate() {
            let followed = is_parameter || following.iter().any(|f| f.lead == Some(i));
            let known = averages.as_ref().filter(|_| i < 2);
            let role = Role::Lead { followed, known, moments: &moments, ends };
            let new = self.encode_raw(number + i, raw, &job.chunk, role).map_err(|e| at(job, e))?;
            // Without the first, the second is of no use; nor for the third, if it did not need the first.
            match &new {
                Encoded::New(new) if averages.is_some() && (i == 0 || new.bases.len() > 1) => {
                    let earlier = new.bases.iter().filter_map(MadeFrom::earlier).collect();
                    moments.push(Moment { raw: raw.0, segments: &job.chunk.segments, of: i, earlier });
                }
                _ => moments.clear(),
            }
            encoded.push(new);
        }
        let is_told = |new: &New| new.bases.iter().any(|base| matches!(base, MadeFrom::Here(_)));
        // What tells others comes before them.
        if let Some(last) = encoded.iter().rposition(|new| matches!(new, Encoded::New(new) if is_told(new))) {
            for new in &mut encoded[..=last] {
                if let Encoded::New(new) = new {
                    new.is_own = true;
                }
            }
        }
        for (job, number) in following.iter().zip(number + leading.len()..) {
            let raw = clocks.read(|| read(job, &mut rest[0])).map_err(|e| at(job, e))?;
            let lead = job.lead.expect("those without one come first");
            let segments;
            let role = match self.shared.can_lead(&encoded[lead])? {
                true => {
                    segments = like(&leading[lead].chunk, job)?;
                    Role::Follower(lead, &segments, raws[lead].0)
                }
                false => Role::Lead { followed: false, known: None, moments: &[], ends: false },
            };
            encoded.push(self.encode_raw(number, raw, &job.chunk, role).map_err(|e| at(job, e))?);
        }
        Ok(encoded)
    }

    /// The averages of gradients before, if the new ones are to be predicted from them.
    fn averages<'b>(&mut self, job: &Job<'_>, buf: &'b mut Buffer) -> Result<Option<Old<'b>>> {
        let shared = self.shared;
        let Some(set) = shared.bases().alike(&job.chunk) else { return Ok(None) };
        if !shared.bases().is_there(set)? {
            return Ok(None);
        }
        let catalog = &shared.bases().catalog;
        let of = catalog.set(set)?;
        let segments = shared.bases().described(set, &job.chunk)?;
        let content = match shared.cache.and_then(|c| c.get(of.raw_hash, of.raw_len)) {
            Some((cached, content)) => {
                buf.reset(cached.len()).copy_from_slice(&cached);
                content
            }
            None => {
                let chain = catalog.chain(set)?;
                let stored = chain::finish(shared.remote, chain::begin(shared.remote, catalog, &chain))?;
                match self.chain.decode(catalog, &chain, &stored) {
                    Ok((raw, content)) => {
                        buf.reset(raw.len()).copy_from_slice(raw);
                        Some(content)
                    }
                    Err(e) if e.kind() == ErrorKind::Damaged => {
                        shared.bases().condemn(set, &e)?;
                        return Ok(None);
                    }
                    Err(e) => return Err(e),
                }
            }
        };
        Ok(Some(Old { set, raw: buf, content, segments }))
    }

    /// Encodes a chunk of these bytes, with their hash if it is known.
    fn encode_raw(
        &mut self,
        number: usize,
        (raw, hash): (&[u8], Option<Hash>),
        chunk: &Chunk,
        role: Role<'_>,
    ) -> Result<Encoded> {
        let raw_hash = hash.unwrap_or_else(|| Hash::of(raw));
        let shared = self.shared;
        let room = usize::try_from(lmc::compress_bound(raw.len() as u64)).expect("chunks are small");
        let buffers = shared.buffers;
        if let Some(set) = shared.bases().equal(raw_hash)? {
            if matches!(role, Role::Lead { .. }) {
                shared.keep(raw_hash, raw, None, chunk)?;
            }
            return Ok(Encoded::Earlier(set, shared.bases().is_same(chunk, set)));
        }
        // A chunk that others are predicted from is always encoded: the output must not depend on timing.
        if self.claims.taken(raw_hash, number) && !matches!(role, Role::Lead { followed: true, .. }) {
            return Ok(Encoded::Repeated(raw_hash));
        }
        if let Role::Follower(lead, of, lead_raw) = role {
            let mut out = buffers.take(room);
            let bases = [Base::of_segments(lead_raw, of).map_err(Error::codec)?];
            compress(&mut self.compressor, raw, &chunk.segments, &bases, &mut out)?;
            // The samples of a tensor may not be typical of the rest.
            if out.len() < raw.len() / 4 && names_base(&out)? {
                return Ok(Encoded::New(New::of(buffers.bytes(out), raw_hash, vec![MadeFrom::Here(lead)])));
            }
            buffers.put(out);
        }
        let mut alone = None;
        let (known, moments, ends) = match role {
            Role::Lead { known, moments, ends, .. } => (known, moments, ends),
            Role::Follower(..) => (None, &[][..], false),
        };
        if let Some(base) = if ends { None } else { shared.choice.choose(chunk)? } {
            let mut out = buffers.take(room);
            let made = match self.compress_from(base, raw, chunk, (known, moments), &mut out) {
                Err(e) if e.kind() == ErrorKind::Damaged => shared.bases().condemn(base, &e).map(|()| None)?,
                made => made.map(Some)?,
            };
            match made {
                Some((content, bases)) if bases.is_empty() => alone = Some((out, content)),
                Some((content, bases)) if self.pays(&out, raw, chunk, &mut alone)? => {
                    alone.into_iter().for_each(|(alone, _)| buffers.put(alone));
                    shared.keep(raw_hash, raw, Some(content), chunk)?;
                    let changed = self.changed(&out, chunk, base)?;
                    let new = New::of(buffers.bytes(out), raw_hash, bases);
                    return Ok(Encoded::New(New { changed, ..new }));
                }
                _ => buffers.put(out),
            }
        }
        let (alone, content) = alone.map_or_else(|| self.compress_alone(raw, chunk), Ok)?;
        // Previous the cache replaces its base.
        let alternative = self.alternative(raw, chunk, alone.len())?;
        shared.keep(raw_hash, raw, Some(content), chunk)?;
        let changed = alternative.as_ref().map(|a| self.changed(&a.bytes, chunk, a.base)).transpose()?.flatten();
        let new = New::of(buffers.bytes(alone), raw_hash, vec![]);
        Ok(Encoded::New(New { changed, alternative, ..new }))
    }

    /// The delta to store beside a chunk that takes `alone` bytes without a base.
    fn alternative(&mut self, raw: &[u8], chunk: &Chunk, alone: usize) -> Result<Option<Box<Alternative>>> {
        let shared = self.shared;
        let Some(base) = shared.choice.choose_alternative(chunk)? else { return Ok(None) };
        let mut out = shared.buffers.take(lmc::compress_bound(raw.len() as u64) as usize);
        match self.compress_from(base, raw, chunk, (None, &[]), &mut out) {
            Err(e) if e.kind() == ErrorKind::Damaged => shared.bases().condemn(base, &e)?,
            // A newer lmc can decode it, or one with more memory. Nothing needs an alternative.
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::Limit) => {}
            Err(e) => return Err(e),
            Ok(_) if out.len() <= alone / 2 => {
                let hash = Hash::of(&out);
                let bytes = shared.buffers.bytes(out);
                return Ok(Some(Alternative { bytes, hash, base }.into()));
            }
            Ok(_) => {}
        }
        shared.buffers.put(out);
        Ok(None)
    }

    /// How many elements a delta changes, if its heads say it.
    fn changed(&self, delta: &[u8], chunk: &Chunk, base: SetId) -> Result<Option<u64>> {
        match self.shared.bases().is_same(chunk, base) {
            true => lmc::changed_count(&delta).map_err(Error::codec),
            false => Ok(None),
        }
    }

    /// Compresses a chunk against a base, and what tells a step from there; returns its content hash, and the bases that it needs.
    fn compress_from(
        &mut self,
        base: SetId,
        raw: &[u8],
        chunk: &Chunk,
        (known, moments): (Option<&Old<'_>>, &[Moment<'_>]),
        out: &mut Vec<u8>,
    ) -> Result<([u8; 16], Vec<MadeFrom>)> {
        let shared = self.shared;
        let catalog = &shared.bases().catalog;
        let set = catalog.set(base)?;
        let tells = !moments.is_empty() && self.fits_chain(base, known, moments)?;
        let (cached, old);
        let before = match known.filter(|known| known.set == base) {
            Some(known) => known.base()?,
            None => {
                let segments = shared.bases().described(base, chunk)?;
                cached = shared.cache.and_then(|c| c.get(set.raw_hash, set.raw_len));
                old = match &cached {
                    Some((cached, content)) => Old { set: base, raw: cached, content: *content, segments },
                    None => {
                        let chain = catalog.chain(base)?;
                        let stored = chain::finish(shared.remote, chain::begin(shared.remote, catalog, &chain))?;
                        let (raw, content) = self.chain.decode(catalog, &chain, &stored)?;
                        Old { set: base, raw, content: Some(content), segments }
                    }
                };
                old.base()?
            }
        };
        let (mut of, mut bases) = (vec![MadeFrom::Earlier(base)], vec![before]);
        if tells {
            if let Some(known) = known {
                of.push(MadeFrom::Earlier(known.set));
                bases.push(known.base()?);
            }
            for moment in moments {
                of.push(MadeFrom::Here(moment.of));
                bases.push(Base::of_segments(moment.raw, moment.segments).map_err(Error::codec)?.beside());
            }
        }
        let content = compress(&mut self.compressor, raw, &chunk.segments, &bases, out)?;
        let o = DecompressOptions::default().with_threads(1);
        let mut needed = vec![];
        for named in Reader::open(&out[..], &o).map_err(Error::codec)?.bases() {
            for (&of, base) in of.iter().zip(&bases) {
                if base.raw_size() == named.raw_size
                    && base.content_hash(1).map_err(Error::codec)? == named.content_hash
                {
                    needed.push(of);
                    break;
                }
            }
        }
        Ok((content, needed))
    }

    /// Compresses a chunk without a base; returns its content hash, too.
    fn compress_alone(&mut self, raw: &[u8], chunk: &Chunk) -> Result<Alone> {
        let mut out = self.shared.buffers.take(lmc::compress_bound(raw.len() as u64) as usize);
        let content = compress(&mut self.compressor, raw, &chunk.segments, &[], &mut out)?;
        Ok((out, content))
    }

    /// Whether the chain of a chunk with these bases has at most as many links as one may have; and one that is rounded from it, too.
    fn fits_chain(&self, base: SetId, known: Option<&Old<'_>>, moments: &[Moment<'_>]) -> Result<bool> {
        let earlier = moments.iter().flat_map(|m| m.earlier.iter().copied()).chain(known.map(|known| known.set));
        match self.shared.bases().catalog.chain_of(earlier.chain([base]), &mut |_| false) {
            Ok(chain) => Ok(chain.len() + moments.len() + 2 < MAX_CHAIN),
            Err(e) if e.kind() == ErrorKind::Limit => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether a delta is worth its chain. If finding out takes compressing the chunk alone, the result goes to `alone`.
    fn pays(&mut self, delta: &[u8], raw: &[u8], chunk: &Chunk, alone: &mut Option<Alone>) -> Result<bool> {
        if self.shared.choice.options.base != BasePolicy::Auto || delta.len() <= raw.len() / 2 {
            return Ok(true);
        }
        Ok(is_worth_its_chain(delta, &alone.insert(self.compress_alone(raw, chunk)?).0))
    }
}

/// Whether a delta is enough smaller than the chunk alone.
pub(crate) fn is_worth_its_chain(delta: &[u8], alone: &[u8]) -> bool {
    // Saving less than an eighth is not worth a longer restore, nor the base that must stay as long as the delta.
    (delta.len() as u64) * 8 < alone.len() as u64 * 7
}

/// Whether what was compressed given a base needs it: if nothing in it is like the base, it is what it would be alone.
pub(crate) fn names_base(file: &[u8]) -> Result<bool> {
    let o = DecompressOptions::default().with_threads(1);
    Ok(!Reader::open(file, &o).map_err(Error::codec)?.bases().is_empty())
}

/// Compresses bytes with these segments, or opaque ones; replaces the contents of `out`. Returns the content hash.
pub(crate) fn compress(
    c: &mut Compressor,
    raw: &[u8],
    segments: &[Segment],
    bases: &[Base<'_>],
    out: &mut Vec<u8>,
) -> Result<[u8; 16]> {
    let done = match segments {
        [] => c.compress(raw, bases, out),
        segments => c.compress(Source::segments(raw, segments), bases, out),
    };
    done.map(|summary| summary.content_hash).map_err(Error::codec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_chunks_take_bytes_away() {
        let (claims, a, b) = (Claims::default(), Hash::of(b"a"), Hash::of(b"b"));
        assert!(!claims.taken(a, 5));
        assert!(!claims.taken(a, 3));
        assert!(claims.taken(a, 4) && claims.taken(a, 5));
        assert!(!claims.taken(b, 9));
    }
}
