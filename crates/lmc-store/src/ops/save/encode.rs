//! Encoding a chunk: read, hashed, and compressed if it is new.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Reader, Segment, Source};

use super::bases::{Bases, rename};
use super::choice::Choice;
use super::clocks::Clocks;
use super::input::Input;
use super::options::BasePolicy;
use super::plan::Job;
use crate::chunks::cache::ChunkCache;
use crate::chunks::catalog::{MAX_CHAIN, SetId};
use crate::chunks::chain::{self, ChainDecoder};
use crate::chunks::cut::{Chunk, Range};
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
    pub(super) base: MadeFrom,
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
    fn of(bytes: Bytes, raw_hash: Hash, base: MadeFrom) -> Self {
        Self { hash: Hash::of(&bytes), bytes, raw_hash, base, changed: None, alternative: None }
    }
}

/// The base of a block set.
#[derive(Clone, Copy)]
pub(super) enum MadeFrom {
    Nothing,
    /// A set of an earlier save; the age of a delta against it.
    Earlier(SetId, u32),
    /// The first chunk of its group.
    Lead,
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
    /// For chunks that are not in memory: the first of a group, and the next one.
    lead: Buffer,
    buf: Buffer,
}

/// A chunk compressed without a base, and its content hash.
type Alone = (Vec<u8>, [u8; 16]);

/// A chunk's role in its group.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// The first; whether others are predicted from it.
    Lead { followed: bool },
    /// Predicted from these bytes, which are the first; and their segments, with the names of those that are predicted from them.
    Follower(&'a [Segment], &'a [u8]),
}

impl<'a> Shared<'a> {
    pub(super) fn bases(&self) -> &'a Bases {
        self.choice.bases
    }

    /// Whether a chunk of this save may be the base of another.
    fn can_lead(&self, lead: &Encoded) -> Result<bool> {
        // The length of a chain is bounded by the age of its last set, which is one more than this set's. A new set's age depends on which
        // of several chunks with these bytes comes first.
        let age = match lead {
            Encoded::Earlier(set, _) => self.bases().catalog.set(*set)?.age,
            Encoded::Repeated(_) | Encoded::New(_) => self.choice.options.anchor_every,
        };
        Ok(age as usize + 1 < MAX_CHAIN)
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
            lead: Buffer::default(),
            buf: Buffer::default(),
        })
    }

    /// Encodes a group: its first chunk, given by number, and those predicted from it.
    pub(super) fn encode(&mut self, number: usize, group: &[Job<'_>]) -> Result<Vec<Encoded>> {
        let (mut lead_buf, mut buf) = (std::mem::take(&mut self.lead), std::mem::take(&mut self.buf));
        let clocks = self.shared.clocks;
        let done = clocks.work(|| self.encode_with(number, group, &mut lead_buf, &mut buf));
        (self.lead, self.buf) = (lead_buf, buf);
        done
    }

    fn encode_with(
        &mut self,
        number: usize,
        group: &[Job<'_>],
        lead_buf: &mut Buffer,
        buf: &mut Buffer,
    ) -> Result<Vec<Encoded>> {
        let at = |job: &Job<'_>, e: Error| e.at(&job.input.name);
        let (lead, others) = group.split_first().expect("a group has a first chunk");
        let clocks = self.shared.clocks;
        let (lead_raw, hash) = clocks.read(|| read(lead, lead_buf)).map_err(|e| at(lead, e))?;
        let role = Role::Lead { followed: !others.is_empty() };
        let mut encoded = vec![self.encode_raw(number, (lead_raw, hash), &lead.chunk, role).map_err(|e| at(lead, e))?];
        let leads = self.shared.can_lead(&encoded[0])?;
        for (job, number) in others.iter().zip(number + 1..) {
            let (raw, hash) = clocks.read(|| read(job, buf)).map_err(|e| at(job, e))?;
            let segments;
            let role = match leads {
                true => {
                    segments = like(&lead.chunk, job)?;
                    Role::Follower(&segments, lead_raw)
                }
                false => Role::Lead { followed: false },
            };
            encoded.push(self.encode_raw(number, (raw, hash), &job.chunk, role).map_err(|e| at(job, e))?);
        }
        Ok(encoded)
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
        if self.claims.taken(raw_hash, number) && !matches!(role, Role::Lead { followed: true }) {
            return Ok(Encoded::Repeated(raw_hash));
        }
        if let Role::Follower(of, lead_raw) = role {
            let mut out = buffers.take(room);
            let bases = [Base::of_segments(lead_raw, of).map_err(Error::codec)?];
            compress(&mut self.compressor, raw, &chunk.segments, &bases, &mut out)?;
            // The samples of a tensor may not be typical of the rest.
            if out.len() < raw.len() / 4 && names_base(&out)? {
                return Ok(Encoded::New(New::of(buffers.bytes(out), raw_hash, MadeFrom::Lead)));
            }
            buffers.put(out);
        }
        let mut alone = None;
        if let Some((base, age)) = shared.choice.choose(chunk)? {
            let mut out = buffers.take(room);
            let made = match self.compress_from(base, raw, chunk, &mut out) {
                Err(e) if e.kind() == ErrorKind::Damaged => shared.bases().condemn(base, &e).map(|()| None)?,
                made => made.map(Some)?,
            };
            match made {
                Some(content) if !names_base(&out)? => alone = Some((out, content)),
                Some(content) if self.pays(&out, raw, chunk, &mut alone)? => {
                    alone.into_iter().for_each(|(alone, _)| buffers.put(alone));
                    shared.keep(raw_hash, raw, Some(content), chunk)?;
                    let changed = self.changed(&out, chunk, base)?;
                    let new = New::of(buffers.bytes(out), raw_hash, MadeFrom::Earlier(base, age));
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
        let new = New::of(buffers.bytes(alone), raw_hash, MadeFrom::Nothing);
        Ok(Encoded::New(New { changed, alternative, ..new }))
    }

    /// The delta to store beside a chunk that takes `alone` bytes without a base.
    fn alternative(&mut self, raw: &[u8], chunk: &Chunk, alone: usize) -> Result<Option<Box<Alternative>>> {
        let shared = self.shared;
        let Some(base) = shared.choice.choose_alternative(chunk)? else { return Ok(None) };
        let mut out = shared.buffers.take(lmc::compress_bound(raw.len() as u64) as usize);
        match self.compress_from(base, raw, chunk, &mut out) {
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

    /// Compresses a chunk against a base; returns its content hash.
    fn compress_from(&mut self, base: SetId, raw: &[u8], chunk: &Chunk, out: &mut Vec<u8>) -> Result<[u8; 16]> {
        let shared = self.shared;
        let catalog = &shared.bases().catalog;
        let set = catalog.set(base)?;
        let segments = shared.bases().described(base, chunk)?;
        let base_of = |old| match &segments[..] {
            [] => Base::new(old),
            segments => Base::of_segments(old, segments),
        };
        let cached = shared.cache.and_then(|c| c.get(set.raw_hash, set.raw_len));
        let (old, bases);
        if let Some((cached, content)) = &cached {
            old = &cached[..];
            let base = base_of(old).map_err(Error::codec)?;
            bases = [match content {
                Some(content) => base.with_hash(*content),
                None => base,
            }];
        } else {
            let chain = catalog.chain(base)?;
            let stored = chain::finish(shared.remote, chain::begin(shared.remote, catalog, &chain))?;
            let (decoded, content_hash) = self.chain.decode(catalog, &chain, &stored)?;
            old = decoded;
            bases = [base_of(old).map_err(Error::codec)?.with_hash(content_hash)];
        }
        compress(&mut self.compressor, raw, &chunk.segments, &bases, out)
    }

    /// Compresses a chunk without a base; returns its content hash, too.
    fn compress_alone(&mut self, raw: &[u8], chunk: &Chunk) -> Result<Alone> {
        let mut out = self.shared.buffers.take(lmc::compress_bound(raw.len() as u64) as usize);
        let content = compress(&mut self.compressor, raw, &chunk.segments, &[], &mut out)?;
        Ok((out, content))
    }

    /// Whether a delta is worth its chain. If finding out takes compressing the chunk alone, the result goes to `alone`.
    fn pays(&mut self, delta: &[u8], raw: &[u8], chunk: &Chunk, alone: &mut Option<Alone>) -> Result<bool> {
        if self.shared.choice.options.base != BasePolicy::Auto || delta.len() <= raw.len() / 2 {
            return Ok(true);
        }
        Ok(is_worth_its_chain(delta, &alone.insert(self.compress_alone(raw, chunk)?).0))
    }
}

/// The segments of the first chunk of a group. Each part that a segment of another chunk is rounded from gets the name
/// of that segment. Several parts may be of one tensor.
fn like(lead: &Chunk, job: &Job<'_>) -> Result<Vec<Segment>> {
    let mut rounded: Vec<(u64, u64)> =
        job.rounded.iter().map(|(&offset, &own)| (offset, offset + 2 * job.chunk.segments[own].len)).collect();
    rounded.sort_unstable();
    let mut rounded = rounded.into_iter().peekable();
    let mut segments = Vec::with_capacity(lead.segments.len());
    for s in &lead.segments {
        let mut cuts = vec![s.offset];
        while let Some((start, end)) = rounded.next_if(|r| r.1 <= s.end()) {
            cuts.extend([start, end]);
        }
        cuts.push(s.end());
        cuts.dedup();
        match cuts.len() {
            2 => segments.push(s.clone()),
            _ => {
                for cut in cuts.windows(2) {
                    let len = cut[1] - cut[0];
                    let shape = [len * 8 / s.dtype.map_or(8, |d| u64::from(d.bits()))].into();
                    segments.push(Segment::new(s.name.clone(), s.dtype, shape, cut[0], len).map_err(Error::codec)?);
                }
            }
        }
    }
    rename(&segments, &job.chunk.segments, |s| Some(&job.chunk.segments[*job.rounded.get(&s.offset)?]))
}

/// The bytes of a chunk: borrowed if they are contiguous in memory, otherwise read into `buf`; and their hash if they were read.
fn read<'b>(job: &Job<'b>, buf: &'b mut Buffer) -> Result<(&'b [u8], Option<Hash>)> {
    let (raw, hash) = read_ranges(job.input, &job.chunk, buf)?;
    for (Range { offset, len }, hash) in &job.repeated {
        // Another file would be restored with bytes that it never had.
        if Hash::of(&raw[*offset as usize..][..*len as usize]) != *hash {
            return Err(Error::io(
                "changed while it was read",
                std::io::Error::other("save it again when nothing writes to it"),
            ));
        }
    }
    Ok((raw, hash))
}

fn read_ranges<'b>(input: &Input<'b>, chunk: &Chunk, buf: &'b mut Buffer) -> Result<(&'b [u8], Option<Hash>)> {
    if let [r] = chunk.ranges[..]
        && let Some(raw) = input.source.slice_at(r.offset, r.len as usize)
    {
        return Ok((raw, None));
    }
    let mut rest = buf.reset(usize::try_from(chunk.len()).expect("chunks are small"));
    let mut hasher = blake3::Hasher::new();
    for r in &chunk.ranges {
        let range = rest.split_off_mut(..r.len as usize).expect("ranges add up to the chunk");
        for (i, part) in range.chunks_mut(READ_AT_ONCE).enumerate() {
            input.read_exact_at(part, r.offset + (i * READ_AT_ONCE) as u64)?;
            hasher.update(part);
        }
    }
    Ok((buf, Some(Hash::finish(&hasher))))
}

/// Bytes that are hashed right after they were read, while they are in the second-level cache.
const READ_AT_ONCE: usize = 1 << 18;

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
