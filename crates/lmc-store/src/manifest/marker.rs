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
    fn optional_fields_are_skipped_and_others_refused() {
        let marker = Marker::new(86_400);
        let text = String::from_utf8(marker.to_bytes().unwrap()).unwrap();
        let with = |fields: &str| Marker::parse(text.replace('}', &format!(",{fields}}}")).as_bytes());
        for good in [
            r#""optional":["a"],"a":{"b":[1,null,"\u00e9"]}"#,
            r#""b":1,"optional":["a","b"],"a":"}""#,
            r#""optional":["\u0061"],"a":2"#,
        ] {
            assert_eq!(with(good).unwrap(), marker, "{good}");
        }
        for bad in [
            r#""a":1"#,
            r#""optional":[]"#,
            r#""optional":["b"],"a":1,"b":2"#,
            r#""optional":["a"]"#,
            r#""optional":["a"],"a":1,"a":2"#,
            r#""optional":["a","a"],"a":1"#,
            r#""optional":["grace_seconds"]"#,
            r#""optional":["optional"]"#,
            r#""optional":["format"]"#,
            r#""optional":"a","a":1"#,
            r#""optional":["a"],"a":1,"optional":["a"]"#,
        ] {
            assert_eq!(with(bad).unwrap_err().kind(), ErrorKind::Damaged, "{bad}");
        }
        let names: Vec<String> = (0..65).map(|i| format!("f{i}")).collect();
        let fields = |n: usize| names[..n].iter().map(|f| format!(r#""{f}":0"#)).collect::<Vec<_>>().join(",");
        let listed = |n: usize| format!(r#""optional":{:?},{}"#, &names[..n], fields(n));
        assert_eq!(with(&listed(64)).unwrap(), marker);
        assert_eq!(with(&listed(65)).unwrap_err().kind(), ErrorKind::Limit);
    }

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
            (text.replace("86400", "1"), ErrorKind::Limit),
            (text.replace("86400", "-1"), ErrorKind::Damaged),
            (text.replace('}', ",\"more\":1}"), ErrorKind::Damaged),
            (text.replace('}', ",\"version\":1}"), ErrorKind::Damaged),
            (text[1..].to_owned(), ErrorKind::Damaged),
            (text + &" ".repeat(Marker::MAX), ErrorKind::Limit),
        ] {
            assert_eq!(Marker::parse(bad.as_bytes()).unwrap_err().kind(), kind, "{}", bad.trim_end());
        }
    }
}
