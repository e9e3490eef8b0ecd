//! Whether the chunks of a tensor make all of it.

use super::{Chunk, Tensor};
use crate::error::{Error, Result};
use crate::segment::MAX_RANK;

/// Most cells of the grid of a tensor's chunks: a million, and these for each chunk. Chunks of a device mesh are a cell each.
const MAX_CELLS: u64 = 1 << 20;
const MAX_CELLS_EACH: u64 = 64;

impl Tensor {
    /// Bytes of all elements.
    ///
    /// # Errors
    /// `Unsupported` when the bytes of an element are unknown, `Damaged` when they are more than 2^63.
    pub fn byte_len(&self) -> Result<u64> {
        let unknown = || Error::unsupported(format!("its elements are of type torch.{}", self.torch_dtype));
        let width = self.element_len.ok_or_else(unknown)?;
        elements(&self.shape)
            .and_then(|n| n.checked_mul(width))
            .filter(|&len| len <= u64::MAX / 2 && self.shape.len() < MAX_RANK)
            .ok_or_else(|| self.damaged(format!("its shape {:?} is that of no tensor", self.shape)))
    }

    /// Checks that the chunks are boxes of the tensor, that they have each of its elements once, and that each that has some is stored
    /// somewhere. Takes time and memory in proportion to their number.
    ///
    /// # Errors
    /// Those of [`Self::byte_len`], and `Damaged` with the chunk that is wrong; `Limit` for ten thousands of chunks of irregular sizes.
    pub fn check(&self) -> Result<()> {
        self.byte_len()?;
        let all = elements(&self.shape).unwrap_or(0);
        let mut stored = 0u64;
        let mut chunks = Vec::new();
        for chunk in &self.chunks {
            let shown = Shown(chunk);
            let (Some(own), true) = (elements(&chunk.sizes), chunk.offsets.len() == chunk.sizes.len()) else {
                return Err(self.damaged(format!("its chunk {shown} has an impossible size")));
            };
            if own == 0 {
                continue;
            }
            let ends = || chunk.offsets.iter().zip(&chunk.sizes[..]).map(|(o, s)| o.checked_add(*s));
            let inside = ends().zip(&self.shape[..]).all(|(end, all)| end.is_some_and(|end| end <= *all));
            if chunk.sizes.len() != self.shape.len() || !inside {
                return Err(self.damaged(format!("its chunk {shown} is not inside of its shape {:?}", self.shape)));
            }
            if chunk.place.is_none() {
                return Err(self.damaged(format!("nothing says where its chunk {shown} is stored")));
            }
            stored = stored.saturating_add(own);
            chunks.push(chunk);
        }
        // An overlap is one even where other elements are missing.
        self.check_disjoint(&chunks)?;
        if stored < all {
            return Err(self.damaged(format!(
                "its chunks do not cover its shape {:?}: {} of {all} elements are missing",
                self.shape,
                all - stored
            )));
        }
        Ok(())
    }

    /// Marks the cells of the chunks in the grid that all of their edges make.
    fn check_disjoint(&self, chunks: &[&Chunk]) -> Result<()> {
        if chunks.len() < 2 {
            return Ok(());
        }
        let edges: Vec<Vec<u64>> = (0..self.shape.len())
            .map(|d| {
                let mut edges: Vec<_> = chunks.iter().flat_map(|c| [c.offsets[d], c.offsets[d] + c.sizes[d]]).collect();
                edges.sort_unstable();
                edges.dedup();
                edges
            })
            .collect();
        let cells = edges.iter().try_fold(1u64, |n, e| n.checked_mul(e.len() as u64 - 1));
        let most = MAX_CELLS + MAX_CELLS_EACH * chunks.len() as u64;
        let Some(cells) = cells.filter(|&n| n <= most) else {
            let n = chunks.len();
            return Err(Error::limit(format!("its {n} chunks are too irregular")).in_tensor(&*self.name));
        };
        let mut marked = vec![0u64; cells.div_ceil(64) as usize];
        for chunk in chunks {
            let cell = |d: usize, edge: u64| edges[d].partition_point(|&e| e < edge) as u64;
            let from: Vec<_> = chunk.offsets.iter().enumerate().map(|(d, &o)| cell(d, o)).collect();
            let to: Vec<_> = (0..from.len()).map(|d| cell(d, chunk.offsets[d] + chunk.sizes[d])).collect();
            let mut at = from.clone();
            loop {
                let place = at.iter().zip(&edges).fold(0, |place, (at, e)| place * (e.len() as u64 - 1) + at);
                let (word, bit) = (&mut marked[(place / 64) as usize], 1 << (place % 64));
                if *word & bit != 0 {
                    return Err(self.damaged(format!("its chunk {} overlaps another one", Shown(chunk))));
                }
                *word |= bit;
                // The next cell, the last dimension first.
                let Some(d) = (0..at.len()).rev().find(|&d| at[d] + 1 < to[d]) else { break };
                at[d] += 1;
                at[d + 1..].copy_from_slice(&from[d + 1..]);
            }
        }
        Ok(())
    }

    pub(super) fn damaged(&self, what: String) -> Error {
        Error::damaged(what).in_tensor(&*self.name)
    }
}

/// A chunk in messages: `[2..4, 0..8]`.
pub(super) struct Shown<'a>(pub(super) &'a Chunk);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ranges = self.0.offsets.iter().zip(&self.0.sizes[..]);
        f.debug_list().entries(ranges.map(|(&o, &s)| o..o.saturating_add(s))).finish()
    }
}

/// The number of elements of a box.
pub(super) fn elements(sizes: &[u64]) -> Option<u64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
}
