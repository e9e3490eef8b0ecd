//! The marker: identifies a store, and holds its grace period.

use serde::{Deserialize, Serialize};

use super::{Document, VERSION};
use crate::error::{Error, Result};
use crate::format::ids::RunId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    format: String,
    version: u32,
    /// The run whose store it is.
    pub(crate) run: RunId,
    pub(crate) grace_seconds: u64,
}

/// Grace periods of stores, in seconds: from a minute to a century.
pub(crate) const GRACE_SECONDS: std::ops::RangeInclusive<u64> = 60..=3_200_000_000;

impl Marker {
    pub(crate) fn new(grace_seconds: u64, run: RunId) -> Self {
        Self { format: Self::FORMAT.into(), version: VERSION, run, grace_seconds }
    }
}

impl Document for Marker {
    const FORMAT: &'static str = "lmc-store";
    const MAX: usize = 1 << 12;

    fn check(&self) -> Result<()> {
        if GRACE_SECONDS.contains(&self.grace_seconds) {
            return Ok(());
        }
        Err(Error::limit(format!(
            "a grace period of {} s is not between {} and {} s",
            self.grace_seconds,
            GRACE_SECONDS.start(),
            GRACE_SECONDS.end()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn marker(grace_seconds: u64) -> Marker {
        Marker::new(grace_seconds, RunId::new([0xab; 16]))
    }

    #[test]
    fn limits() {
        for grace in [60, 3_200_000_000] {
            let mut bytes = marker(grace).to_bytes().unwrap();
            bytes.resize(Marker::MAX, b' ');
            assert_eq!(Marker::parse(&bytes).unwrap(), marker(grace));
            bytes.push(b' ');
            assert_eq!(Marker::parse(&bytes).unwrap_err().kind(), ErrorKind::Limit);
        }
        for grace in [59, 3_200_000_001] {
            assert_eq!(marker(grace).to_bytes().unwrap_err().kind(), ErrorKind::Limit);
        }
    }
}
