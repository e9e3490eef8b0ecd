//! Chooses the set of an earlier save against which a chunk is compressed.

use super::bases::Bases;
use super::options::{BasePolicy, SaveOptions};
use crate::chunks::catalog::SetId;
use crate::chunks::cut::Chunk;
use crate::error::Result;

/// Under the policy `auto`, a chain ends before its stored bytes exceed this many times those of its first set, which has no base.
const MAX_READ: u64 = 2;

#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) bases: &'a Bases,
    pub(super) options: &'a SaveOptions<'a>,
}

impl Choice<'_> {
    /// The base of a chunk, and the age of a delta against it.
    pub(super) fn choose(&self, chunk: &Chunk) -> Result<Option<(SetId, u32)>> {
        let Some((previous, age)) = self.previous(chunk)? else { return Ok(None) };
        if self.ends_chain(previous, age)? {
            return Ok(None);
        }
        // Checked last: it needs a request.
        Ok(if self.bases.is_there(previous)? { Some((previous, age)) } else { None })
    }

    /// The base of a chunk that is stored without one because its chain ends, and also as a delta.
    pub(super) fn choose_alternative(&self, chunk: &Chunk) -> Result<Option<SetId>> {
        if !self.options.alternatives {
            return Ok(None);
        }
        let Some((previous, age)) = self.previous(chunk)? else { return Ok(None) };
        let fits = self.bases.catalog.set(previous)?.raw_len == chunk.len();
        let chosen = fits && self.ends_chain(previous, age)? && self.bases.is_there(previous)?;
        Ok(chosen.then_some(previous))
    }

    /// The chunk's predecessor, and the age of a delta against it.
    fn previous(&self, chunk: &Chunk) -> Result<Option<(SetId, u32)>> {
        let previous = self.bases.alike(chunk);
        previous.map(|set| Ok((set, self.bases.catalog.set(set)?.age.saturating_add(1)))).transpose()
    }

    /// Whether a chunk starts a new chain in place of a delta of this age.
    fn ends_chain(&self, previous: SetId, age: u32) -> Result<bool> {
        Ok(age >= self.options.anchor_every || self.is_heavy(previous)?)
    }

    /// Whether a chain would become so expensive to read, with one more delta like the last, that the next chunk should start a new one.
    fn is_heavy(&self, set: SetId) -> Result<bool> {
        if self.options.base != BasePolicy::Auto {
            return Ok(false);
        }
        let catalog = &self.bases.catalog;
        let sizes =
            catalog.chain(set)?.into_iter().map(|link| Ok(catalog.set(link)?.at.2)).collect::<Result<Vec<u64>>>()?;
        let [whole, .., last] = sizes[..] else { return Ok(false) };
        Ok(sizes.iter().sum::<u64>() + last > MAX_READ * whole)
    }
}
