//! A piece read, hashed, and compressed if it is new.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use lmc::{Base, CompressOptions, Compressor, Segment};

use super::bases::Bases;
use super::{BasePolicy, Input, SaveOptions};
use crate::catalog::SetId;
use crate::chain::{self, ChainDecoder};
use crate::error::{Error, Result};
use crate::ids::Hash;
use crate::pieces::Piece;
use crate::remote::Remote;

/// What became of a piece.
pub(super) enum Encoded {
    /// The store has it.
    Earlier(SetId),
    /// An earlier piece of this save has the same raw bytes.
    Repeated(Hash),
    New(New),
}

pub(super) struct New {
    pub(super) bytes: Bytes,
    pub(super) raw_hash: Hash,
    pub(super) base: Option<SetId>,
    pub(super) age: u32,
}

/// For raw bytes, the first piece known to have them.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<Hash, usize>>);

impl Claims {
    /// Whether an earlier piece has these bytes. If it comes later to be known both are compressed, so that what is stored does not depend on who was faster.
    fn taken(&self, raw_hash: Hash, piece: usize) -> bool {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = claims.entry(raw_hash).or_insert(piece);
        let taken = *first < piece;
        *first = piece.min(*first);
        taken
    }
}

/// One thread's buffers.
pub(super) struct Encoder<'a> {
    remote: &'a Remote,
    bases: &'a Bases,
    claims: &'a Claims,
    o: &'a SaveOptions,
    compressor: Compressor,
    chain: ChainDecoder,
    raw: Vec<u8>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(remote: &'a Remote, bases: &'a Bases, claims: &'a Claims, o: &'a SaveOptions) -> Result<Self> {
        let mut options = CompressOptions::default();
        options.level = o.level;
        // Pieces are compressed side by side; each by one thread.
        options.threads = 1;
        let compressor = Compressor::new(&options).map_err(Error::codec)?;
        Ok(Self { remote, bases, claims, o, compressor, chain: ChainDecoder::new()?, raw: vec![] })
    }

    pub(super) fn encode(&mut self, number: usize, input: &Input<'_>, piece: &Piece) -> Result<Encoded> {
        self.raw.resize(usize::try_from(piece.len()).expect("pieces are small"), 0);
        let mut rest = &mut self.raw[..];
        for r in &piece.ranges {
            let to = rest.split_off_mut(..r.len as usize).expect("ranges add up to the piece");
            input.source.read_exact_at(to, r.offset).map_err(|e| {
                let shorter = e.kind() == std::io::ErrorKind::UnexpectedEof;
                Error::io(if shorter { "became shorter while it was read" } else { "cannot read" }, e)
            })?;
        }
        let raw_hash = Hash::of(&self.raw);
        if let Some(set) = self.bases.equal(raw_hash) {
            return Ok(Encoded::Earlier(set));
        }
        if self.claims.taken(raw_hash, number) {
            return Ok(Encoded::Repeated(raw_hash));
        }
        let mut alone = Vec::new();
        if let Some((base, age)) = self.base(piece)? {
            let catalog = &self.bases.catalog;
            let chain = catalog.chain(base)?;
            let stored = self.remote.wait(chain::fetch(self.remote, catalog, &chain))?;
            let (old, content_hash) = self.chain.decode(catalog, &chain, &stored, false)?;
            let base_of = |old| match &piece.segments[..] {
                [] => Base::new(old),
                segments => Base::of_segments(old, segments),
            };
            let bases = [base_of(old).map_err(Error::codec)?.with_hash(content_hash)];
            let mut out = Vec::new();
            compress(&mut self.compressor, &self.raw, &piece.segments, &bases, &mut out)?;
            drop(bases);
            if self.pays(&out, piece, &mut alone)? {
                return Ok(Encoded::New(New { bytes: out.into(), raw_hash, base: Some(base), age }));
            }
        }
        if alone.is_empty() {
            compress(&mut self.compressor, &self.raw, &piece.segments, &[], &mut alone)?;
        }
        Ok(Encoded::New(New { bytes: alone.into(), raw_hash, base: None, age: 0 }))
    }

    /// What a piece is to be made from, and the age that it then has.
    fn base(&self, piece: &Piece) -> Result<Option<(SetId, u32)>> {
        let Some(previous) = self.bases.alike(piece) else { return Ok(None) };
        let catalog = &self.bases.catalog;
        let age = catalog.set(previous)?.age.saturating_add(1);
        if age >= self.o.anchor_every {
            return Ok(None);
        }
        Ok(match self.o.base {
            BasePolicy::Nothing => None,
            BasePolicy::Auto | BasePolicy::Previous => Some((previous, age)),
            BasePolicy::Anchor => Some((catalog.chain(previous)?[0], age)),
        })
    }

    /// Whether a delta is worth its chain. If that takes compressing the piece alone, `alone` is what came of it.
    fn pays(&mut self, delta: &[u8], piece: &Piece, alone: &mut Vec<u8>) -> Result<bool> {
        if self.o.base != BasePolicy::Auto || delta.len() <= self.raw.len() / 2 {
            return Ok(true);
        }
        compress(&mut self.compressor, &self.raw, &piece.segments, &[], alone)?;
        Ok(is_worth_its_chain(delta, alone))
    }
}

/// Whether a delta is so much smaller than the same alone that it pays.
pub(crate) fn is_worth_its_chain(delta: &[u8], alone: &[u8]) -> bool {
    // Three percent are less than a longer restore is worth.
    (delta.len() as u64) * 100 < alone.len() as u64 * 97
}

pub(crate) fn compress(
    c: &mut Compressor,
    raw: &[u8],
    segments: &[Segment],
    bases: &[Base<'_>],
    out: &mut Vec<u8>,
) -> Result<()> {
    let done = match segments {
        [] => c.compress_delta_into(raw, bases, out),
        segments => c.compress_segments_into(raw, segments, bases, out),
    };
    // It takes the space of the worst case while it is written.
    out.shrink_to_fit();
    done.map(|_| ()).map_err(Error::codec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_pieces_take_bytes_away() {
        let (claims, a, b) = (Claims::default(), Hash::of(b"a"), Hash::of(b"b"));
        assert!(!claims.taken(a, 5));
        assert!(!claims.taken(a, 3));
        assert!(claims.taken(a, 4) && claims.taken(a, 5));
        assert!(!claims.taken(b, 9));
    }
}
