//! What may be decoded for the sake of one block, in its file and in those that it is made from.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::format::bases::{MAX_DEPTH, too_deep};
use crate::work::Work;

/// Raw bytes of other blocks, of the file and of its bases, that may have to be decoded to read one alone: our files need some dozen
/// MiB.
pub(crate) const MAX_BUDGET: u64 = 1 << 30;
/// The same for a block of a file that is restored whole. A pack may hold thousands of tensors that are far from each other in a
/// compressed base.
const MAX_DETOUR_OF_WHOLE: u64 = 1 << 32;
/// What a block counts at least.
pub(crate) const MIN_COST: u64 = 1 << 16;
/// Blocks that may have to be decoded one within the other, in the file and in its bases: a thread's stack must have room for them.
const MAX_NESTED: usize = 128;
/// Memory that one of our blocks takes while it waits for others, at most, and what all that wait may take beyond that: two that are as
/// wide as the format allows.
pub(crate) const ORDINARY: u64 = 64 << 20;
const MAX_EXCESS: u64 = 1 << 27;

/// What may still be done for the sake of one block. It covers bases, and what they are made from: otherwise each in a chain of
/// deltas could multiply the work.
#[derive(Clone, Copy)]
pub(crate) struct Budget<'a> {
    /// Blocks of one file that depend on each other.
    levels: usize,
    /// Blocks that are decoded one within the other, and memory that they take beyond the ordinary.
    nested: usize,
    excess: u64,
    bytes: &'a AtomicU64,
    /// What the call may decode that all this is for.
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

    /// One block further in.
    pub(crate) fn within(self) -> Result<Self> {
        let nested = self.nested.checked_sub(1).ok_or_else(|| {
            Error::limit(format!(
                "more than {MAX_NESTED} blocks depend on each other, in deltas of deltas: restore one of those first"
            ))
        })?;
        Ok(Self { nested, ..self })
    }

    /// For what is decoded while a block waits for it that takes `n` bytes.
    pub(crate) fn reserve(self, n: u64) -> Result<Self> {
        let excess = self.excess.checked_sub(n.saturating_sub(ORDINARY)).ok_or_else(|| {
            Error::limit(
                "blocks that depend on each other would take too much memory at once: \
                 restore the whole file, from bases that are not compressed",
            )
        })?;
        Ok(Self { excess, ..self })
    }
    /// One level down in a file: for a block that another one depends on.
    pub(crate) fn level_down(self) -> Result<Self> {
        Ok(Self { levels: self.levels.checked_sub(1).ok_or_else(too_deep)?, ..self })
    }

    /// For another file, whose blocks have levels of their own.
    pub(crate) fn in_other_file(self) -> Self {
        Self { levels: MAX_DEPTH, ..self }
    }
}

/// What may be done for the sake of a block of a file that is restored whole.
pub(crate) struct BudgetPool(AtomicU64);

impl BudgetPool {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(MAX_DETOUR_OF_WHOLE))
    }

    pub(crate) fn budget<'a>(&'a self, work: &'a Work) -> Budget<'a> {
        Budget::new(&self.0, work)
    }
}

/// Raw bytes that are decoded for the sake of a block of another file.
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
