//! Records: each defines the snapshot of a step.

use std::num::NonZeroU64;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::metadata::{self, Metadata};
use super::{Document, VERSION, values};
use crate::error::{Error, Result};
use crate::format::ids::{Hash, SaveId, ShardId, Step};
use crate::format::keys;

/// The most records that one names.
pub(crate) const MAX_SEEN: usize = 64;

/// A record's step and generation. In JSON it is the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordId {
    pub(crate) step: Step,
    pub(crate) generation: u32,
}

impl std::fmt::Display for RecordId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        keys::record(self.step, self.generation).fmt(f)
    }
}

impl Serialize for RecordId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RecordId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let key = String::deserialize(d)?;
        let (step, generation) = keys::parse_record(&object_store::path::Path::from(&key[..]))
            .filter(|&(step, generation)| keys::record(step, generation).as_ref() == key)
            .ok_or_else(|| serde::de::Error::custom(format!("{key:?} is not the key of a record")))?;
        Ok(Self { step, generation })
    }
}

/// A record that the writer of another one saw: its key, and the hash of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) key: RecordId,
    pub(crate) hash: Hash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Kept,
    Pruned,
}

/// One generation of the snapshot of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    format: String,
    version: u32,
    pub(crate) step: Step,
    pub(crate) id: SaveId,
    /// Seconds since 1970 by the store's clock.
    pub(crate) time: u64,
    #[serde(deserialize_with = "values::word")]
    pub(crate) state: State,
    #[serde(deserialize_with = "metadata::distinct")]
    pub(crate) metadata: Metadata,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) raw_size: u64,
    pub(crate) new_size: u64,
    /// Bytes of files that went with the states of optimizers.
    #[serde(default, deserialize_with = "values::some", skip_serializing_if = "Option::is_none")]
    pub(crate) dropped: Option<NonZeroU64>,
    /// The records its writer saw that no other names, and the one that it supersedes.
    #[serde(deserialize_with = "values::objects")]
    pub(crate) seen: Vec<Seen>,
    /// The hash of the document without this field, which comes last. Set only while parsing: [`Document::seal`] writes it.
    #[serde(skip_serializing)]
    check: Option<Hash>,
}

impl Record {
    pub(crate) fn kept(step: Step, id: SaveId, time: u64, metadata: Metadata) -> Self {
        let format = Self::FORMAT.into();
        Self {
            format,
            version: VERSION,
            step,
            id,
            time,
            state: State::Kept,
            metadata,
            shards: vec![],
            raw_size: 0,
            new_size: 0,
            dropped: None,
            seen: vec![],
            check: None,
        }
    }

    /// The record of a pruned snapshot.
    pub(crate) fn pruned(step: Step, id: SaveId, time: u64) -> Self {
        Self { state: State::Pruned, ..Self::kept(step, id, time, Metadata::new()) }
    }
}

impl Document for Record {
    const FORMAT: &'static str = "lmc-snapshot";
    const MAX: usize = 1 << 24;

    const SEALED: bool = true;

    fn take_check(&mut self) -> Option<Hash> {
        self.check.take()
    }

    fn check(&self) -> Result<()> {
        let mut shards = self.shards.clone();
        shards.sort_unstable();
        shards.dedup();
        if shards.len() != self.shards.len() {
            return Err(Error::damaged("names a shard twice"));
        }
        if self.seen.len() > MAX_SEEN {
            return Err(Error::limit(format!("names {} records: the limit is {MAX_SEEN}", self.seen.len())));
        }
        metadata::check(&self.metadata)?;
        match self.state {
            State::Kept if shards.is_empty() => Err(Error::damaged("is of a snapshot without shards")),
            State::Pruned
                if !shards.is_empty() || !self.metadata.is_empty() || (self.raw_size, self.new_size) != (0, 0) =>
            {
                Err(Error::damaged("is of a pruned snapshot, but has shards, metadata or a size"))
            }
            State::Pruned if self.dropped.is_some() => {
                Err(Error::damaged("is of a pruned snapshot, but says what was dropped"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::manifest::metadata::MetaValue;

    #[test]
    fn records_are_parsed_again() {
        let id = SaveId::new([1; 16]);
        let mut r = Record::kept(Step::new(300).unwrap(), id, 7, Metadata::from([("loss".into(), "2.7".into())]));
        r.to_bytes().unwrap_err();
        r.shards = vec![ShardId::of(b"a"), ShardId::of(b"b")];
        let bytes = r.to_bytes().unwrap();
        assert_eq!(Record::parse(&bytes).unwrap(), r);
        r.metadata.insert("note".into(), "x".repeat(Record::MAX).into());
        r.to_bytes().unwrap_err();
    }

    /// The text with the checksum that belongs to it.
    fn resealed(text: &str) -> Vec<u8> {
        Record::seal(without_check(text).into_bytes())
    }

    fn without_check(text: &str) -> String {
        let (before, _) = text.rsplit_once(",\"check\"").unwrap();
        format!("{before}}}")
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_seen() {
        let mut r = Record::kept(
            Step::new(300).unwrap(),
            SaveId::new([0xab; 16]),
            7,
            Metadata::from([
                ("loss".into(), MetaValue::Float(2.5e-7)),
                ("note".into(), "a \u{1f} control \" and é".into()),
                ("tokens".into(), MetaValue::Integer(-(1 << 53))),
            ]),
        );
        r.shards = vec![ShardId::of(b"a")];
        r.seen = vec![Seen { key: RecordId { step: Step::new(9).unwrap(), generation: 3 }, hash: Hash::of(b"9") }];
        let bytes = r.to_bytes().unwrap();
        assert_eq!(Record::parse(&bytes).unwrap(), r);
        for bit in 0..8 * bytes.len() {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            Record::parse(&bad).expect_err(&String::from_utf8_lossy(&bad));
        }
        for len in 0..bytes.len() {
            Record::parse(&bytes[..len]).unwrap_err();
        }
        // The checksum covers the bytes, whatever the JSON's layout.
        let text = String::from_utf8(bytes).unwrap();
        for spaced in [format!("{text} "), format!(" {text}"), text.replace("\"}", "\" }")] {
            Record::parse(spaced.as_bytes()).unwrap_err();
        }
        for key in ["snapshots/9/3.json", "shards/x.json", "/snapshots/9007/199/254/740/983-0000000003.json", ""] {
            Record::parse(&resealed(&text.replace(&r.seen[0].key.to_string(), key))).expect_err(key);
        }
    }

    #[test]
    fn limits() {
        let mut r = Record::kept(Step::new(1 << 53).unwrap(), SaveId::new([1; 16]), 7, Metadata::new());
        assert!(Step::new((1 << 53) + 1).is_err());
        r.shards = vec![ShardId::of(b"a")];
        let seen = Seen { key: RecordId { step: Step::new(9).unwrap(), generation: 3 }, hash: Hash::of(b"9") };
        r.seen = vec![seen; MAX_SEEN];
        assert_eq!(Record::parse(&r.to_bytes().unwrap()).unwrap(), r);
        r.seen.push(seen);
        assert_eq!(r.to_bytes().unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!(Record::parse(&Record::seal(serde_json::to_vec(&r).unwrap())).unwrap_err().kind(), ErrorKind::Limit);

        r.seen.clear();
        r.metadata.insert("note".into(), "".into());
        let room = Record::MAX - r.to_bytes().unwrap().len();
        r.metadata.insert("note".into(), "x".repeat(room).into());
        let bytes = r.to_bytes().unwrap();
        assert_eq!((bytes.len(), Record::parse(&bytes).unwrap()), (Record::MAX, r.clone()));
        r.metadata.insert("note".into(), "x".repeat(room + 1).into());
        assert_eq!(r.to_bytes().unwrap_err().kind(), ErrorKind::Limit);
        let bytes = Record::seal(serde_json::to_vec(&r).unwrap());
        assert_eq!((bytes.len(), Record::parse(&bytes).unwrap_err().kind()), (Record::MAX + 1, ErrorKind::Limit));
    }

    #[test]
    fn the_checksum_covers_ignored_fields() {
        let mut r = Record::kept(Step::new(300).unwrap(), SaveId::new([1; 16]), 7, Metadata::new());
        r.shards = vec![ShardId::of(b"a")];
        let text = String::from_utf8(r.to_bytes().unwrap()).unwrap();
        let (before, check) = text.rsplit_once(",\"check\"").unwrap();
        let more = format!("{before},\"x_host\":\"node7\",\"check\"{check}");
        assert_eq!(Record::parse(&resealed(&more)).unwrap(), r);
        let e = Record::parse(more.as_bytes()).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("checksum"), "{e}");
        let bytes = resealed(&more);
        for bit in 0..8 * bytes.len() {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            Record::parse(&bad).expect_err(&String::from_utf8_lossy(&bad));
        }
        // The checksum stays last.
        let end = String::from_utf8(bytes).unwrap();
        let (rest, check) = end.rsplit_once(",\"check\"").unwrap();
        let moved = format!(
            "{},\"check\"{},\"x_host\":\"node7\"}}",
            rest.replace(",\"x_host\":\"node7\"", ""),
            &check[..check.len() - 1]
        );
        Record::parse(moved.as_bytes()).unwrap_err();
    }
}
