//! The limit of bytes that one call decodes in all.

use std::sync::atomic::{AtomicU64, Ordering};

use lmc_layout::error::{Error, Result};

/// Default limit: decoded bytes per requested byte, and a constant. The last of a chain of 64 deltas decodes 66 per byte.
const FACTOR: u64 = 96;
const ALLOWANCE: u64 = 1 << 32;

/// The bytes that a call may still decode, requested ones and those that they are predicted from, in the file and its bases.
pub(crate) struct Work {
    left: AtomicU64,
    /// The caller's limit; `None` for one that grows with the requests.
    limit: Option<u64>,
}

impl Work {
    /// The work of a call that requests `asked` bytes. `limit` is [`DecodeLimits::max_work`](crate::DecodeLimits::max_work).
    pub(crate) fn new(limit: Option<u64>, asked: u64) -> Self {
        let work = Self { left: AtomicU64::new(limit.unwrap_or(ALLOWANCE)), limit };
        work.ask(asked);
        work
    }

    /// The call requests more bytes.
    pub(crate) fn ask(&self, bytes: u64) {
        if self.limit.is_none() {
            let more = bytes.saturating_mul(FACTOR);
            let add = |left: u64| Some(left.saturating_add(more));
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Counts bytes that are about to be decoded.
    ///
    /// # Errors
    /// `Limit` when they exceed the limit.
    pub(crate) fn spend(&self, bytes: u64) -> Result<()> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        left.map(|_| ()).map_err(|_| {
            let limit = match self.limit {
                Some(limit) => format!("max_work is {limit} bytes"),
                None => format!("the default max_work is {FACTOR} times the requested bytes and {} GiB", ALLOWANCE >> 30),
            };
            Error::limit(format!(
                "the request needs more decoding than is allowed ({limit}): restore the bases of a long chain of deltas one after the \
                 other, or set a larger max_work if you trust the file"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_layout::error::ErrorKind;

    #[test]
    fn work_ends() {
        let own = Work::new(Some(10), 1 << 40);
        own.ask(1 << 40);
        own.spend(7).unwrap();
        let e = own.spend(4).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Limit);
        assert!(e.to_string().contains("max_work is 10 bytes"), "{e}");
        own.spend(3).unwrap();
        own.spend(1).unwrap_err();
    }

    #[test]
    fn the_default_grows_with_the_requests() {
        let work = Work::new(None, 100);
        work.spend(ALLOWANCE + 100 * FACTOR).unwrap();
        work.spend(1).unwrap_err();
        work.ask(1);
        work.spend(FACTOR).unwrap();
        work.spend(1).unwrap_err();
        work.ask(u64::MAX);
        work.ask(u64::MAX);
        work.spend(u64::MAX).unwrap();
    }
}
