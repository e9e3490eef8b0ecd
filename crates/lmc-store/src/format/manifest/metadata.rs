//! The user's metadata of a snapshot: text and numbers by name.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// The metadata of a snapshot.
pub type Metadata = BTreeMap<String, MetaValue>;

/// The largest magnitude of an integer: every JSON reader represents it exactly.
const MAX_INTEGER: u64 = 1 << 53;

/// A value of a snapshot's metadata: text, or a number.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetaValue {
    /// Text.
    Text(String),
    /// An integer of a magnitude of at most 2^53.
    Integer(i64),
    /// A finite number.
    Float(f64),
}

// A record has no NaN.
impl Eq for MetaValue {}

impl MetaValue {
    /// What a text says: a number if it is one in JSON, within the limits, and else that text.
    pub fn parse(text: &str) -> Self {
        let is_number = |value: &Self| match value {
            Self::Text(_) => false,
            // The parser makes a float of an integer that is beyond its own.
            Self::Float(_) => text.contains(['.', 'e', 'E']),
            Self::Integer(_) => value.check().is_ok(),
        };
        // The parser skips white space.
        let number = serde_json::from_str(text).ok().filter(|value| text.trim() == text && is_number(value));
        number.unwrap_or_else(|| text.into())
    }

    /// Its value, if it is a number.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::Text(_) => None,
            Self::Integer(n) => Some(n as f64),
            Self::Float(x) => Some(x),
        }
    }

    /// # Errors
    /// `Limit` when no record can hold it.
    fn check(&self) -> Result<()> {
        match self {
            Self::Integer(n) if n.unsigned_abs() > MAX_INTEGER => {
                Err(Error::limit(format!("{n} is beyond 2^53, the largest integer of a record: give it as text")))
            }
            Self::Float(x) if !x.is_finite() => {
                Err(Error::limit(format!("{x} is not a finite number, and no record can hold it: give it as text")))
            }
            _ => Ok(()),
        }
    }
}

impl From<&str> for MetaValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for MetaValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for MetaValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(n) => n.fmt(f),
            // As in the record.
            Self::Float(x) => match serde_json::Number::from_f64(*x) {
                Some(number) => number.fmt(f),
                None => x.fmt(f),
            },
        }
    }
}

impl Serialize for MetaValue {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => s.serialize_str(text),
            Self::Integer(n) => s.serialize_i64(*n),
            Self::Float(x) => s.serialize_f64(*x),
        }
    }
}

impl<'de> Deserialize<'de> for MetaValue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Value;
        impl Visitor<'_> for Value {
            type Value = MetaValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<MetaValue, E> {
                Ok(text.into())
            }

            fn visit_string<E>(self, text: String) -> Result<MetaValue, E> {
                Ok(text.into())
            }

            fn visit_i64<E>(self, n: i64) -> Result<MetaValue, E> {
                Ok(MetaValue::Integer(n))
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<MetaValue, E> {
                i64::try_from(n).map(MetaValue::Integer).map_err(|_| E::custom(format!("{n} is beyond 2^53")))
            }

            fn visit_f64<E>(self, x: f64) -> Result<MetaValue, E> {
                Ok(MetaValue::Float(x))
            }
        }
        d.deserialize_any(Value)
    }
}

/// Checks that a record can hold these metadata.
///
/// # Errors
/// `Limit` when it cannot.
pub(super) fn check(metadata: &Metadata) -> Result<()> {
    metadata.iter().try_for_each(|(key, value)| value.check().map_err(|e| e.at(format_args!("the metadata {key:?}"))))
}

/// A map without duplicate keys: serde's own takes the last value of each.
pub(super) fn distinct<'de, D: Deserializer<'de>>(d: D) -> Result<Metadata, D::Error> {
    struct Distinct;
    impl<'de> Visitor<'de> for Distinct {
        type Value = Metadata;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of text and numbers")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Metadata, A::Error> {
            let mut map = Metadata::new();
            while let Some((key, value)) = entries.next_entry::<String, MetaValue>()? {
                if map.contains_key(&key) {
                    return Err(serde::de::Error::custom(format!("the metadata has the key {key:?} twice")));
                }
                map.insert(key, value);
            }
            Ok(map)
        }
    }
    d.deserialize_map(Distinct)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_a_number_of_json_is_one() {
        let float = MetaValue::Float;
        for (text, value) in [
            ("2.31", float(2.31)),
            ("2.310", float(2.31)),
            ("1e-05", float(1e-5)),
            ("-0.5", float(-0.5)),
            ("2.0", float(2.0)),
            ("9007199254740992", MetaValue::Integer(1 << 53)),
            ("-7", MetaValue::Integer(-7)),
        ] {
            assert_eq!(MetaValue::parse(text), value, "{text}");
        }
        for text in [
            "",
            "x",
            "007",
            ".5",
            "5.",
            "+1",
            "1_000",
            "0x10",
            "nan",
            "NaN",
            "inf",
            "Infinity",
            "true",
            "null",
            "[1]",
            "\"1\"",
            " 1",
            "1 ",
            "1\n",
            "1e400",
            "9007199254740993",
            "-9007199254740993",
            "18446744073709551616",
        ] {
            let parsed = MetaValue::parse(text);
            assert_eq!((&parsed, parsed.to_string()), (&MetaValue::from(text), text.to_owned()), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let mut floats = vec![0.1 + 0.2, f64::MIN_POSITIVE, 5e-324, f64::MAX, -1e-7, 1e21, 123_456_789.123_456_78];
        // Those of single precision have many digits, as losses do.
        floats.extend((0..1000u32).map(|i| f64::from(f32::from_bits(0x3f80_0000 + i * 7919))));
        for x in floats {
            let text = serde_json::to_string(&MetaValue::Float(x)).unwrap();
            let read: MetaValue = serde_json::from_str(&text).unwrap();
            assert_eq!((&read, read.to_string()), (&MetaValue::Float(x), text));
        }
        assert_eq!(serde_json::to_string(&MetaValue::Float(2.0)).unwrap(), "2.0");
        assert_eq!(serde_json::to_string(&MetaValue::Integer(2)).unwrap(), "2");
    }

    #[test]
    fn limits() {
        let check = |value| check(&Metadata::from([("loss".into(), value)]));
        for n in [1 << 53, -(1 << 53)] {
            check(MetaValue::Integer(n)).unwrap();
            let e = check(MetaValue::Integer(n + n.signum())).unwrap_err();
            assert!(e.kind() == crate::ErrorKind::Limit && e.to_string().contains("\"loss\""), "{e}");
        }
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(check(MetaValue::Float(x)).unwrap_err().kind(), crate::ErrorKind::Limit);
        }
        serde_json::from_str::<MetaValue>("9223372036854775808").unwrap_err();
    }
}
