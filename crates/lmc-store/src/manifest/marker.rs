//! The marker: identifies a store, and holds its grace period.

use serde::{Deserialize, Serialize};

use super::{Document, VERSION};
use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Marker {
    format: String,
    version: u32,
    pub(crate) grace_seconds: u64,
}

/// From a minute to a century.
const GRACE: std::ops::RangeInclusive<u64> = 60..=3_200_000_000;

impl Marker {
    pub(crate) fn new(grace_seconds: u64) -> Self {
        Self { format: Self::FORMAT.into(), version: VERSION, grace_seconds }
    }
}

impl Document for Marker {
    const FORMAT: &'static str = "lmc-store";
    const MAX: usize = 1 << 12;

    fn check(&self) -> Result<()> {
        if GRACE.contains(&self.grace_seconds) {
            return Ok(());
        }
        Err(Error::limit(format!(
            "a grace period of {} s is not between {} and {} s",
            self.grace_seconds,
            GRACE.start(),
            GRACE.end()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn only_a_marker_of_this_version_is_one() {
        let bytes = Marker::new(86_400).to_bytes().unwrap();
        assert_eq!(Marker::parse(&bytes).unwrap(), Marker::new(86_400));
        assert_eq!(Marker::new(0).to_bytes().unwrap_err().kind(), ErrorKind::Limit);
        let text = String::from_utf8(bytes).unwrap();
        for (bad, kind) in [
            (text.replace(":0,", ":1,"), ErrorKind::Unsupported),
            (text.replace("lmc-store", "lmc-part"), ErrorKind::Damaged),
            (text.replace("86400", "1"), ErrorKind::Limit),
            (text.replace("86400", "-1"), ErrorKind::Damaged),
            (text.replace('}', ",\"more\":1}"), ErrorKind::Damaged),
            (text.replace('}', ",\"version\":0}"), ErrorKind::Damaged),
            (text[1..].to_owned(), ErrorKind::Damaged),
            (text + &" ".repeat(Marker::MAX), ErrorKind::Limit),
        ] {
            assert_eq!(Marker::parse(bad.as_bytes()).unwrap_err().kind(), kind, "{}", bad.trim_end());
        }
    }
}
