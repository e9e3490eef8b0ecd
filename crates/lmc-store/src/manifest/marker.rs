//! The marker: identifies a store, and holds its grace period.

use serde::{Deserialize, Serialize};

use super::optional::Place;
use super::{Document, VERSION};
use crate::error::{Error, Result};
use crate::ids::RunId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    format: String,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    pub(crate) grace_seconds: u64,
}

/// Grace periods of stores, in seconds: from a minute to a century.
pub const GRACE_SECONDS: std::ops::RangeInclusive<u64> = 60..=3_200_000_000;

impl Marker {
    pub(crate) fn new(grace_seconds: u64, run: RunId) -> Self {
        Self { format: Self::FORMAT.into(), version: VERSION, run: Some(run), grace_seconds }
    }

    /// The run whose store it is.
    pub(crate) fn run(&self) -> RunId {
        self.run.expect("a marker without one is refused")
    }
}

impl Document for Marker {
    const FORMAT: &'static str = "lmc-store";
    const MAX: usize = 1 << 12;
    const PLACES: &'static [Place] =
        &[Place { array: "", fields: &["format", "version", "run", "grace_seconds", "optional"] }];

    fn check(&self) -> Result<()> {
        if self.run.is_none() {
            return Err(Error::unsupported(
                "names no run: a test version of lmc 0.2 wrote this store; restore its snapshots with that one, and save them to a new store",
            ));
        }
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
    use super::super::optional::{fields_of, sorted};
    use super::*;
    use crate::error::ErrorKind;

    fn marker(grace_seconds: u64) -> Marker {
        Marker::new(grace_seconds, RunId::new([0xab; 16]))
    }

    #[test]
    fn only_a_marker_of_this_version_is_one() {
        let bytes = marker(86_400).to_bytes().unwrap();
        assert_eq!(Marker::parse(&bytes).unwrap(), marker(86_400));
        assert_eq!(marker(0).to_bytes().unwrap_err().kind(), ErrorKind::Limit);
        let text = String::from_utf8(bytes).unwrap();
        for (bad, kind) in [
            (text.replace(":1,", ":0,"), ErrorKind::Unsupported),
            (text.replace(":1,", ":2,"), ErrorKind::Unsupported),
            (text.replace("lmc-store", "lmc-shard"), ErrorKind::Damaged),
            (text.replace("abab", "ABAB"), ErrorKind::Damaged),
            (text.replace("abab", ""), ErrorKind::Damaged),
            (text.replace("\"run\"", "\"runs\""), ErrorKind::Damaged),
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
    fn markers_without_a_run_are_refused_in_one_sentence() {
        let e = Marker::parse(br#"{"format":"lmc-store","version":1,"grace_seconds":86400}"#).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        assert!(e.to_string().contains("a test version of lmc 0.2 wrote this store"), "{e}");
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

    #[test]
    fn the_list_of_fields_is_complete() {
        let document = serde_json::to_value(marker(60)).unwrap();
        let mut fields = fields_of(&document);
        fields.push("optional");
        assert_eq!(sorted(&fields), sorted(Marker::PLACES[0].fields));
    }
}
