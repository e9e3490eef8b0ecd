//! The marker: identifies a store, and holds its grace period.

use serde::{Deserialize, Serialize};

use super::optional::Place;
use super::{Document, VERSION};
use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    const PLACES: &'static [Place] =
        &[Place { array: "", fields: &["format", "version", "grace_seconds", "optional"] }];

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
    use super::super::optional::{fields_of, sorted};
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn only_a_marker_of_this_version_is_one() {
        let bytes = Marker::new(86_400).to_bytes().unwrap();
        assert_eq!(Marker::parse(&bytes).unwrap(), Marker::new(86_400));
        assert_eq!(Marker::new(0).to_bytes().unwrap_err().kind(), ErrorKind::Limit);
        let text = String::from_utf8(bytes).unwrap();
        for (bad, kind) in [
            (text.replace(":1,", ":0,"), ErrorKind::Unsupported),
            (text.replace(":1,", ":2,"), ErrorKind::Unsupported),
            (text.replace("lmc-store", "lmc-shard"), ErrorKind::Damaged),
            (text.replace("86400", "59"), ErrorKind::Limit),
            (text.replace("86400", "3200000001"), ErrorKind::Limit),
            (text.replace("86400", "-1"), ErrorKind::Damaged),
            (text.replace('}', ",\"more\":1}"), ErrorKind::Damaged),
            (text.replace('}', ",\"version\":1}"), ErrorKind::Damaged),
            (text[1..].to_owned(), ErrorKind::Damaged),
            (text + &" ".repeat(Marker::MAX), ErrorKind::Limit),
        ] {
            assert_eq!(Marker::parse(bad.as_bytes()).unwrap_err().kind(), kind, "{}", bad.trim_end());
        }
    }

    #[test]
    fn limits() {
        for grace in [60, 3_200_000_000] {
            let mut bytes = Marker::new(grace).to_bytes().unwrap();
            bytes.resize(Marker::MAX, b' ');
            assert_eq!(Marker::parse(&bytes).unwrap(), Marker::new(grace));
            bytes.push(b' ');
            assert_eq!(Marker::parse(&bytes).unwrap_err().kind(), ErrorKind::Limit);
        }
        for grace in [59, 3_200_000_001] {
            assert_eq!(Marker::new(grace).to_bytes().unwrap_err().kind(), ErrorKind::Limit);
        }
    }

    #[test]
    fn the_list_of_fields_is_complete() {
        let document = serde_json::to_value(Marker::new(60)).unwrap();
        let mut fields = fields_of(&document);
        fields.push("optional");
        assert_eq!(sorted(&fields), sorted(Marker::PLACES[0].fields));
    }
}
