//! Typed ids of snapshots, shards and data, and how they are written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// `N` bytes as lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Hex<const N: usize>([u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl<const N: usize> Hex<N> {
    fn parse(s: &str) -> Option<Self> {
        let digit = |b: u8| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'a'..=b'f' => Some(b - b'a' + 10),
            _ => None,
        };
        let s = s.as_bytes();
        let mut bytes = [0; N];
        if s.len() != 2 * N {
            return None;
        }
        for (b, pair) in bytes.iter_mut().zip(s.chunks_exact(2)) {
            *b = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

/// An id of `N` bytes: displayed, parsed and serialized as hexadecimal digits.
macro_rules! hex_id {
    ($(#[$doc:meta])* $vis:vis $name:ident, $bytes:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(Hex<$bytes>);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(s: &str) -> Result<Self> {
                let wrong = || Error::damaged(format!("{s:?} is not {} ({} lower-case hexadecimal digits)", $what, 2 * $bytes));
                Hex::parse(s).map(Self).ok_or_else(wrong)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let s = std::borrow::Cow::<'de, str>::deserialize(d)?;
                s.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id!(
    /// BLAKE3 of some bytes.
    pub(crate) Hash, 32, "a BLAKE3 hash"
);
hex_id!(
    /// A shard of a snapshot: the hash of its manifest.
    pub ShardId, 32, "the id of a shard"
);
hex_id!(
    /// One save by one process, drawn at random; a snapshot's id is that of the process that committed it.
    pub SaveId, 16, "the id of a save"
);

hex_id!(
    /// A training run, drawn at random for its store; a copy of the store keeps it.
    pub RunId, 16, "the id of a run"
);

impl RunId {
    pub(crate) fn new(random: [u8; 16]) -> Self {
        Self(Hex(random))
    }
}

impl Hash {
    /// The hash of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Hex(*blake3::hash(bytes).as_bytes()))
    }

    /// The hash of the bytes that the hasher got.
    pub(crate) fn finish(hasher: &blake3::Hasher) -> Self {
        Self(Hex(*hasher.finalize().as_bytes()))
    }
}

impl ShardId {
    /// The id of the shard with this manifest.
    pub(crate) fn of(manifest: &[u8]) -> Self {
        Self(Hash::of(manifest).0)
    }
}

impl SaveId {
    pub(crate) fn new(random: [u8; 16]) -> Self {
        Self(Hex(random))
    }
}

/// A step of a training run, which identifies a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Step(u64);

impl Step {
    /// The largest step: every JSON reader represents it exactly.
    pub const MAX: Step = Step(1 << 53);

    /// Step `n`.
    ///
    /// # Errors
    /// `Usage` when it is above [`Self::MAX`].
    pub fn new(n: u64) -> Result<Self> {
        if n > Self::MAX.0 {
            return Err(Error::usage(format!("step {n} is above the largest, {}", Self::MAX.0)));
        }
        Ok(Self(n))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The next one.
    pub(crate) fn next(self) -> Result<Self> {
        Self::new(self.0 + 1)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Step::new(u64::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// The name of a tag: 1 to 128 of `A-Z a-z 0-9 . _ -`, not beginning with `.` or `-`, and neither a step, nor an id, nor `latest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagName(String);

impl FromStr for TagName {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_name = (1..=128).contains(&s.len()) && s.bytes().all(allowed) && !s.starts_with(['.', '-']);
        let is_other = s == "latest" || s.bytes().all(|b| b.is_ascii_digit()) || s.parse::<SaveId>().is_ok();
        if is_name && !is_other {
            return Ok(Self(s.to_owned()));
        }
        Err(Error::usage(format!(
            "{s:?} cannot be a tag: a tag has 1 to 128 letters (A to Z), digits, and `.`, `_` and `-`, which two do not come first, and \
             is no number, no id and not \"latest\""
        )))
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for TagName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TagName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_blake3_in_lower_case() {
        let empty = Hash::of(b"").to_string();
        assert_eq!(empty, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
        assert_eq!(empty.parse::<Hash>().unwrap(), Hash::of(b""));
        for bad in ["", &empty[1..], &empty.to_uppercase(), &format!("{empty}0"), &empty.replace('a', "g")] {
            bad.parse::<Hash>().unwrap_err();
        }
    }

    #[test]
    fn ids_are_json_strings() {
        let id = SaveId::new([0xab; 16]);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{}\"", "ab".repeat(16)));
        assert_eq!(serde_json::from_str::<SaveId>(&json).unwrap(), id);
        serde_json::from_str::<SaveId>("\"ab\"").unwrap_err();
        serde_json::from_str::<SaveId>("7").unwrap_err();
    }

    #[test]
    fn no_tag_looks_like_a_step_or_an_id() {
        let longest = "a".repeat(128);
        for name in ["best", "A", "v1.0", "_x", "7b", "1e5", "Latest", "a-b_c.d-", &"A".repeat(32), &longest] {
            assert_eq!(name.parse::<TagName>().unwrap().to_string(), name);
        }
        let id = "ab".repeat(16);
        for name in [
            "",
            "latest",
            "0",
            "300",
            &"9".repeat(40),
            &id,
            ".x",
            "-x",
            "a/b",
            "a b",
            "ä",
            "a:b",
            &(longest.clone() + "a"),
        ] {
            assert_eq!(name.parse::<TagName>().unwrap_err().kind(), crate::ErrorKind::Usage, "{name}");
        }
    }

    #[test]
    fn steps_end() {
        assert_eq!(serde_json::from_str::<Step>("300").unwrap(), Step::new(300).unwrap());
        for bad in ["-1", "1.5", "9007199254740993", "\"1\""] {
            serde_json::from_str::<Step>(bad).unwrap_err();
        }
        Step::MAX.next().unwrap_err();
    }
}
