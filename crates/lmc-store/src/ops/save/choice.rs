//! Chooses the set of an earlier save against which a chunk is compressed.

use std::collections::BTreeSet;

use super::bases::Bases;
use super::options::{BasePolicy, SaveOptions};
use crate::chunks::catalog::{MAX_CHAIN, SetId};
use crate::chunks::chain::is_linear;
use crate::chunks::cut::Chunk;
use crate::error::Result;

/// Under the policy `auto`, a chain ends before its stored bytes exceed this many times those of its first set, which has no base.
const MAX_READ: u64 = 2;
/// The same for the sets of a parameter that tell each other. A step takes a third of what they take alone, whatever is read for it.
const MAX_READ_OF_STEPS: u64 = 4;

#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) bases: &'a Bases,
    pub(super) options: &'a SaveOptions<'a>,
}

impl Choice<'_> {
    /// The base of a chunk.
    pub(super) fn choose(&self, chunk: &Chunk) -> Result<Option<SetId>> {
        let Some(previous) = self.bases.alike(chunk) else { return Ok(None) };
        if self.ends_chain(previous)? {
            return Ok(None);
        }
        // Checked last: it needs a request.
        Ok(if self.bases.is_there(previous)? { Some(previous) } else { None })
    }

    /// The base of a chunk that is stored without one because its chain ends, and also as a delta.
    pub(super) fn choose_alternative(&self, chunk: &Chunk) -> Result<Option<SetId>> {
        if !self.options.alternatives {
            return Ok(None);
        }
        let Some(previous) = self.bases.alike(chunk) else { return Ok(None) };
        let fits = self.bases.catalog.set(previous)?.raw_len == chunk.len();
        let chosen = fits && self.ends_chain(previous)? && self.bases.is_there(previous)?;
        Ok(chosen.then_some(previous))
    }

    /// Whether a chunk starts a new chain in place of a delta.
    fn ends_chain(&self, previous: SetId) -> Result<bool> {
        let (line, chain) = (self.bases.catalog.line(previous)?.len(), self.bases.catalog.chain(previous)?.len());
        // One more may be rounded from what comes next.
        let is_full = chain > line && chain + 2 > MAX_CHAIN;
        Ok(line >= self.options.anchor_every as usize || is_full || self.is_heavy(previous)?)
    }

    /// Whether the sets of a parameter, of which some tell others, need so much already that the next ones start new chains.
    pub(super) fn ends_steps(&self, sets: &[SetId]) -> Result<bool> {
        let catalog = &self.bases.catalog;
        let (mut chain, mut firsts) = (BTreeSet::new(), vec![]);
        for &set in sets {
            chain.extend(catalog.chain(set)?);
            firsts.extend(catalog.line(set)?.first().copied());
        }
        let chain: Vec<SetId> = chain.into_iter().collect();
        if is_linear(catalog, &chain)? {
            return Ok(false);
        }
        let stored = |sets: &[SetId]| sets.iter().map(|&set| Ok(catalog.set(set)?.at.2)).sum::<Result<u64>>();
        let next = stored(&sets[..1])?;
        let is_heavy =
            self.options.base == BasePolicy::Auto && stored(&chain)? + next > MAX_READ_OF_STEPS * stored(&firsts)?;
        Ok(is_heavy || chain.len() + sets.len() + 2 > MAX_CHAIN)
    }

    /// Whether a chain would become so expensive to read, with one more delta like the last, that the next chunk should start a new one.
    fn is_heavy(&self, set: SetId) -> Result<bool> {
        if self.options.base != BasePolicy::Auto {
            return Ok(false);
        }
        let catalog = &self.bases.catalog;
        let sizes =
            catalog.line(set)?.into_iter().map(|link| Ok(catalog.set(link)?.at.2)).collect::<Result<Vec<u64>>>()?;
        let [whole, .., last] = sizes[..] else { return Ok(false) };
        Ok(sizes.iter().sum::<u64>() + last > MAX_READ * whole)
    }
}
