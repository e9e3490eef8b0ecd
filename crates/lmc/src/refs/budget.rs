//! Limits of the work for one block: decoding the ranges that it names, in its file and in bases.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::bases::too_deep;
use crate::format::limits::MAX_DEPTH;
use crate::refs::work::Work;
use lmc_layout::error::{Error, Result};

/// Most raw bytes of other blocks, in the file and its bases, that are decoded to read one block; files of this encoder need some dozen
/// MiB.
pub(crate) const MAX_BUDGET: u64 = 1 << 30;
/// [`MAX_BUDGET`] of a block of a file that is restored whole: it may hold thousands of small tensors that are far apart in a compressed
/// base.
const MAX_DETOUR_OF_WHOLE: u64 = 1 << 32;
/// Least cost of a block, in bytes.
pub(crate) const MIN_COST: u64 = 1 << 16;
/// Most nested decodings of blocks, in the file and its bases; a thread's stack must have room for them.
const MAX_NESTED: usize = 128;
/// Most memory of a waiting block of this encoder, and the memory above that which all waiting blocks may take: as many blocks of the largest
/// size that the format allows as can wait for each other in one file.
pub(crate) const ORDINARY: u64 = 64 << 20;
const MAX_EXCESS: u64 = (MAX_DEPTH as u64) << 27;

/// The remaining work for one block. It includes bases and their bases: otherwise every delta of a chain could multiply the work.
#[derive(Clone, Copy)]
pub(crate) struct Budget<'a> {
    /// Depth of blocks left in this file.
    levels: usize,
    /// Nested decodings left, and memory left above [`ORDINARY`].
    nested: usize,
    excess: u64,
    bytes: &'a AtomicU64,
    /// Limit of the whole call.
    work: &'a Work,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(bytes: &'a AtomicU64, work: &'a Work) -> Self {
        Self { levels: MAX_DEPTH, nested: MAX_NESTED, excess: MAX_EXCESS, bytes, work }
    }

    pub(crate) fn spend(&self, n: u64) -> Result<()> {
        let n = n.max(MIN_COST);
        self.work.spend(n)?;
        let left = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(n));
        left.map(|_| ()).map_err(|_| {
            Error::limit(
                "too many other blocks would have to be decoded for this one: restore the whole file, from bases that are not \
                 compressed",
            )
        })
    }

    /// One nested decoding more.
    pub(crate) fn within(self) -> Result<Self> {
        let nested = self.nested.checked_sub(1).ok_or_else(|| {
            Error::limit(format!(
                "more than {MAX_NESTED} blocks depend on each other, in deltas of deltas: restore one of their bases first"
            ))
        })?;
        Ok(Self { nested, ..self })
    }

    /// The budget of decodings that a block of `n` bytes waits for.
    pub(crate) fn reserve(self, n: u64) -> Result<Self> {
        let excess = self.excess.checked_sub(n.saturating_sub(ORDINARY)).ok_or_else(|| {
            Error::limit(
                "blocks that depend on each other would take too much memory at once: \
                 restore the whole file, from bases that are not compressed",
            )
        })?;
        Ok(Self { excess, ..self })
    }
    /// The budget of a range in the same file.
    pub(crate) fn level_down(self) -> Result<Self> {
        Ok(Self { levels: self.levels.checked_sub(1).ok_or_else(too_deep)?, ..self })
    }

    /// The budget in another file, where depth starts anew.
    pub(crate) fn in_other_file(self) -> Self {
        Self { levels: MAX_DEPTH, ..self }
    }
}

/// The budget of a block of a file that is restored whole.
pub(crate) struct BudgetPool(AtomicU64);

impl BudgetPool {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(MAX_DETOUR_OF_WHOLE))
    }

    pub(crate) fn budget<'a>(&'a self, work: &'a Work) -> Budget<'a> {
        Budget::new(&self.0, work)
    }
}

/// Raw bytes that are decoded for a block of another file.
pub(crate) trait ReadWithin: Send + Sync {
    fn read_within(&self, offset: u64, buf: &mut [u8], budget: Budget<'_>) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends() {
        let bytes = AtomicU64::new(MAX_BUDGET);
        let work = Work::new(None, 0);
        let budget = Budget::new(&bytes, &work);
        let n = (0..).take_while(|_| budget.spend(1).is_ok()).count() as u64;
        assert_eq!(n, MAX_BUDGET / MIN_COST);
        let nested = std::iter::successors(Some(budget), |b| b.within().ok()).count();
        assert_eq!(nested, MAX_NESTED + 1);
    }
}
