//! How much one call may decode in all.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Bytes that may be decoded for each byte that was asked for, and beyond those, unless the caller says how many. The last of a chain of 64 deltas
/// takes 66 for each (`bench/work.py`).
const FACTOR: u64 = 96;
const ALLOWANCE: u64 = 1 << 32;

/// The bytes that a call may still decode: what it was asked for, and whatever else has to be decoded for the sake of that, in the file and in its
/// bases.
pub(crate) struct Work {
    left: AtomicU64,
    /// What there was, unless it grows with what is asked for.
    limit: Option<u64>,
}

impl Work {
    /// For a call that asks for so many bytes. `limit` is [`DecodeLimits::max_work`](crate::DecodeLimits::max_work).
    pub(crate) fn new(limit: Option<u64>, asked: u64) -> Self {
        let work = Self { left: AtomicU64::new(limit.unwrap_or(ALLOWANCE)), limit };
        work.ask(asked);
        work
    }

    /// The call asks for more.
    pub(crate) fn ask(&self, bytes: u64) {
        if self.limit.is_none() {
            let more = bytes.saturating_mul(FACTOR);
            let add = |left: u64| Some(left.saturating_add(more));
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Bytes are about to be decoded.
    ///
    /// # Errors
    /// `Limit` when they are more than what is left.
    pub(crate) fn spend(&self, bytes: u64) -> Result<()> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        left.map(|_| ()).map_err(|_| {
            let limit = match self.limit {
                Some(limit) => format!("max_work is {limit} bytes"),
                None => format!("{FACTOR} times what is asked for and {} GiB are allowed", ALLOWANCE >> 30),
            };
            Error::limit(format!(
                "too much would have to be decoded for what is asked for ({limit}): restore the bases of a long chain of deltas one after the \
                 other, or set a larger max_work if you trust the file"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

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
    fn it_grows_with_what_is_asked_for() {
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
