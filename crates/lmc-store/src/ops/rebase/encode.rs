//! Rewriting a block set: verbatim, against another base, or alone.

use bytes::Bytes;
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Reader, Segment};

use crate::chunks::catalog::{Catalog, SetId};
use crate::chunks::chain::{self, ChainDecoder};
use crate::error::{Error, ErrorKind, Result};
use crate::objects::remote::Remote;
use crate::ops::save::encode::{compress, is_worth_its_chain, names_base};

/// A block set to be rewritten.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) set: SetId,
    pub(super) base: Option<SetId>,
    /// Whether the stored bytes can be copied verbatim, because the new base has the raw bytes of the old one.
    pub(super) copy: bool,
}

pub(super) struct New {
    pub(super) bytes: Bytes,
    pub(super) base: Option<SetId>,
}

/// Buffers of one thread.
pub(super) struct Encoder<'a> {
    remote: &'a Remote,
    catalog: &'a Catalog,
    compressor: Compressor,
    chain: ChainDecoder,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(remote: &'a Remote, catalog: &'a Catalog, o: &CompressOptions) -> Result<Self> {
        let compressor = Compressor::new(o).map_err(Error::codec)?;
        Ok(Self { remote, catalog, compressor, chain: ChainDecoder::new()? })
    }

    pub(super) fn encode(&mut self, job: Job) -> Result<New> {
        let Job { set, base, copy } = job;
        if copy && let Some(bytes) = self.copied(set, base)? {
            return Ok(New { bytes, base });
        }
        let chain = self.catalog.chain(set)?;
        let stored = chain::fetch(self.remote, self.catalog, &chain)?;
        let raw = self.chain.decode(self.catalog, &chain, &stored)?.0.to_vec();
        // The segments stay as they were, so that deltas against the old set find their base in the new one.
        let o = DecompressOptions::default().with_threads(1);
        let own =
            Reader::open(&stored[stored.len() - 1][..], &o).map_err(|e| chain::undecodable(self.catalog, set, e))?;
        let segments = own.segments();
        let mut alone = Vec::new();
        if let Some(base) = base {
            let chain = self.catalog.chain(base)?;
            let stored = chain::fetch(self.remote, self.catalog, &chain)?;
            let (old, content_hash) = self.chain.decode(self.catalog, &chain, &stored)?;
            let base_segments = if old.len() == raw.len() && segments.len() == 1 {
                segments.to_vec()
            } else {
                like(&stored[stored.len() - 1], segments).map_err(|e| chain::undecodable(self.catalog, base, e))?
            };
            let bases = [Base::of_segments(old, &base_segments).map_err(Error::codec)?.with_hash(content_hash)];
            let delta = compressed(&mut self.compressor, &raw, segments, &bases)?;
            drop(bases);
            if !names_base(&delta)? {
                return Ok(New { bytes: delta.into(), base: None });
            }
            if delta.len() > raw.len() / 2 {
                alone = compressed(&mut self.compressor, &raw, segments, &[])?;
            }
            if alone.is_empty() || is_worth_its_chain(&delta, &alone) {
                return Ok(New { bytes: delta.into(), base: Some(base) });
            }
        } else {
            alone = compressed(&mut self.compressor, &raw, segments, &[])?;
        }
        Ok(New { bytes: alone.into(), base: None })
    }

    /// The stored bytes of a set, if they decode against the other base.
    fn copied(&mut self, set: SetId, base: Option<SetId>) -> Result<Option<Bytes>> {
        let mut chain = base.map_or(Ok(vec![]), |base| self.catalog.chain(base))?;
        chain.push(set);
        let mut stored = chain::fetch(self.remote, self.catalog, &chain)?;
        match self.chain.decode(self.catalog, &chain, &stored) {
            Ok(_) => Ok(stored.pop()),
            // The same bytes with other segment borders do not serve as base: `lmc` identifies bases by hashes of leaves.
            Err(e) if e.kind() == ErrorKind::Damaged => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// A block set in no more memory than it takes: while it is written, it occupies the space of the worst case.
fn compressed(c: &mut Compressor, raw: &[u8], segments: &[Segment], bases: &[Base<'_>]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    compress(c, raw, segments, bases, &mut out)?;
    out.shrink_to_fit();
    Ok(out)
}

/// The segments of a stored set, as segments of the set predicted from it: a rounded tensor is matched by name. Several small tensors have
/// their own names.
fn like(stored: &[u8], segments: &[Segment]) -> lmc::Result<Vec<Segment>> {
    let o = DecompressOptions::default().with_threads(1);
    let mut theirs = Reader::open(stored, &o)?.segments().to_vec();
    if let ([theirs], [own]) = (&mut theirs[..], segments)
        && theirs.name.is_some()
    {
        theirs.name.clone_from(&own.name);
    }
    Ok(theirs)
}
