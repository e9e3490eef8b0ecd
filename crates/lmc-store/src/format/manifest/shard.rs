//! Shards: the files that one process saved, and the block sets that they consist of.

use std::collections::HashSet;

use lmc::Dtype;
use lmc::layout::NamedDtype;
use serde::{Deserialize, Serialize};

use super::counts;
use super::names::{check_name, check_together};
use super::{Document, VERSION, values};
use crate::error::{Error, Result};
use crate::format::ids::{Hash, SaveId, ShardId};

/// The most raw bytes of a block set.
pub(crate) const MAX_RAW: u64 = 1 << 26;
/// The most stored bytes of a block set.
pub(crate) const MAX_STORED: u64 = 1 << 27;
/// The most bases of a block set besides its first.
const MAX_OTHERS: usize = 3;
/// The most bytes of all data objects, or of all files, of a shard: sums over shards do not overflow.
const MAX_TOTAL: u64 = 1 << 53;

/// A block set: index of the shard (0 is the one with the reference), index of the set in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ref(pub(crate) usize, pub(crate) usize);

/// The save that wrote data objects: index of the first of them; it numbered them from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer(pub(crate) usize, pub(crate) SaveId);

/// Location of a block set: index of the data object, offset and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct At(pub(crate) usize, pub(crate) u64, pub(crate) u64);

/// A range of a file: shard, set, offset of its first raw byte in the set, length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent(pub(crate) usize, pub(crate) usize, pub(crate) u64, pub(crate) u64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockSet {
    pub(crate) at: At,
    pub(crate) hash: Hash,
    pub(crate) raw_len: u64,
    pub(crate) raw_hash: Hash,
    #[serde(default, deserialize_with = "values::some", skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Ref>,
    /// Those that it is decoded with, too, in the order in which its file names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<Ref>,
    pub(crate) age: u32,
}

impl BlockSet {
    /// Its base, and the others that it is decoded with.
    pub(crate) fn bases(&self) -> impl Iterator<Item = Ref> {
        self.base.into_iter().chain(self.others.iter().copied())
    }
}

/// A delta with the raw bytes of a block set that has no base, for readers that hold its own base. Nothing needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alternative {
    /// Index of the block set.
    pub(crate) set: usize,
    pub(crate) at: At,
    pub(crate) hash: Hash,
    /// Hash of the raw bytes of its base, which has the same length.
    pub(crate) base: Hash,
    /// The shard that listed the base when this was written: it may be gone.
    pub(crate) shard: ShardId,
}

/// A range of a file; a tensor if it has a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) len: u64,
    #[serde(default, deserialize_with = "values::some", skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, deserialize_with = "values::some", skip_serializing_if = "Option::is_none")]
    pub(crate) dtype: Option<String>,
    /// Bits of an element, if the `.lmc` format has no code for the dtype.
    #[serde(default, deserialize_with = "values::some", skip_serializing_if = "Option::is_none")]
    pub(crate) bits: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shape: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) len: u64,
    pub(crate) layout: String,
    #[serde(default, deserialize_with = "values::objects", skip_serializing_if = "Vec::is_empty")]
    pub(crate) segments: Vec<Segment>,
    /// The file that lists this one's segments, if this one does not: number of its shard, index of the file there.
    #[serde(default, deserialize_with = "values::some", skip_serializing_if = "Option::is_none")]
    pub(crate) segments_of: Option<Ref>,
    pub(crate) extents: Vec<Extent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shard {
    format: String,
    version: u32,
    pub(crate) save: SaveId,
    pub(crate) began: u64,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) objects: Vec<u64>,
    #[serde(deserialize_with = "values::objects")]
    pub(crate) sets: Vec<BlockSet>,
    #[serde(deserialize_with = "values::objects")]
    pub(crate) files: Vec<File>,
    /// By block set, ascending.
    #[serde(default, deserialize_with = "values::objects", skip_serializing_if = "Vec::is_empty")]
    pub(crate) alternatives: Vec<Alternative>,
    /// In a document made of those of several saves, of whose data objects the others wrote which; by index, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) writers: Vec<Writer>,
}

impl Shard {
    pub(crate) fn new(save: SaveId, began: u64) -> Self {
        let format = Self::FORMAT.into();
        let (shards, objects, sets, files, alternatives, writers) = (vec![], vec![], vec![], vec![], vec![], vec![]);
        Self { format, version: VERSION, save, began, shards, objects, sets, files, alternatives, writers }
    }

    /// A data object by its index: the save that wrote it, its number there, and its length.
    pub(crate) fn object(&self, index: usize) -> Option<(SaveId, usize, u64)> {
        let len = *self.objects.get(index)?;
        let others = self.writers.partition_point(|&Writer(first, _)| first <= index);
        Some(match others.checked_sub(1).map(|i| self.writers[i]) {
            None => (self.save, index, len),
            Some(Writer(first, save)) => (save, index - first, len),
        })
    }

    /// Bytes of all files.
    pub(crate) fn raw_size(&self) -> u64 {
        self.files.iter().map(|f| f.len).sum()
    }

    /// Bytes of its data objects.
    pub(crate) fn new_size(&self) -> u64 {
        self.objects.iter().sum()
    }

    /// Segments that its files list themselves.
    pub(crate) fn listed_segments(&self) -> u64 {
        self.files.iter().map(|f| f.segments.len() as u64).sum()
    }

    fn check_at(&self, At(object, offset, len): At) -> Result<()> {
        let within =
            self.objects.get(object).is_some_and(|&size| offset.checked_add(len).is_some_and(|end| end <= size));
        if within { Ok(()) } else { Err(Error::damaged("is not within its data object")) }
    }

    fn check_set(&self, i: usize, set: &BlockSet) -> Result<()> {
        self.check_at(set.at)?;
        let len = set.at.2;
        if set.raw_len > MAX_RAW || len > MAX_STORED {
            return Err(Error::limit(format!(
                "has {len} bytes stored, {} raw: the limits are {MAX_STORED} and {MAX_RAW}",
                set.raw_len
            )));
        }
        if set.others.len() > MAX_OTHERS {
            return Err(Error::damaged(format!("has more than {MAX_OTHERS} bases besides its first")));
        }
        for of in set.bases() {
            match of {
                Ref(0, base) if base >= i => return Err(Error::damaged("has a base that does not come before it")),
                Ref(shard, _) if shard > self.shards.len() => {
                    return Err(Error::damaged("has its base in an unknown shard"));
                }
                _ => {}
            }
        }
        match set.base {
            None if !set.others.is_empty() => Err(Error::damaged("has other bases but none")),
            None if set.age != 0 => Err(Error::damaged("has an age but no base")),
            Some(_) if set.age == 0 => Err(Error::damaged("has a base but no age")),
            _ => Ok(()),
        }
    }

    fn check_alternatives(&self) -> Result<()> {
        if !self.alternatives.is_sorted_by(|a, b| a.set < b.set) {
            return Err(Error::damaged("has alternatives that are not in the order of their block sets"));
        }
        for a in &self.alternatives {
            let checked = match self.sets.get(a.set) {
                None => Err(Error::damaged("is not there")),
                Some(set) if set.base.is_some() => Err(Error::damaged("has a base")),
                // Longer ones would be of no use.
                Some(set) if a.at.2 >= set.at.2 => Err(Error::damaged("is not longer")),
                Some(_) => self.check_at(a.at),
            };
            checked.map_err(|e| e.at(format_args!("alternative of block set {}", a.set)))?;
        }
        Ok(())
    }

    fn check_file(&self, i: usize, file: &File) -> Result<()> {
        check_name(&file.name).map_err(Error::damaged)?;
        match file.segments_of {
            Some(_) if !file.segments.is_empty() => {
                return Err(Error::damaged("has segments, and those of another file"));
            }
            Some(Ref(0, other)) => {
                let lists = |f: &File| f.segments_of.is_none() && f.len == file.len;
                if !self.files[..i].get(other).is_some_and(lists) {
                    return Err(Error::damaged(format!(
                        "has the segments of file {other}, which does not come before it or lists none of that length"
                    )));
                }
            }
            Some(Ref(shard, _)) if shard > self.shards.len() => {
                return Err(Error::damaged("has the segments of a file of an unknown shard"));
            }
            None if sum(file.segments.iter().map(|s| s.len)) != Some(file.len) => {
                return Err(Error::damaged("does not have the length of its segments"));
            }
            _ => {}
        }
        if sum(file.extents.iter().map(|e| e.3)) != Some(file.len) {
            return Err(Error::damaged("does not have the length of its extents"));
        }
        for &Extent(shard, set, from, len) in &file.extents {
            let end = from.checked_add(len);
            let within = match shard {
                0 => self.sets.get(set).is_some_and(|s| end.is_some_and(|end| end <= s.raw_len)),
                _ => shard <= self.shards.len() && end.is_some(),
            };
            if !within || len == 0 {
                return Err(Error::damaged("has an extent that no block set holds"));
            }
        }
        let mut offset = 0;
        file.segments.iter().try_for_each(|s| {
            let segment = s.to_lmc(offset)?;
            offset = segment.end();
            Ok(())
        })
    }
}

impl Segment {
    pub(crate) fn of(s: &lmc::Segment) -> Self {
        Self {
            len: s.len,
            name: s.name.as_ref().map(|n| n.to_string()),
            dtype: s.dtype.map(|d| d.name().to_owned()),
            bits: s.dtype.filter(|d| matches!(d, Dtype::Named(_))).map(Dtype::bits),
            shape: s.shape.to_vec(),
        }
    }

    /// The codec's view of this segment, which starts at `offset`.
    pub(crate) fn to_lmc(&self, offset: u64) -> Result<lmc::Segment> {
        let dtype = match (self.dtype.as_deref(), self.bits) {
            (None, None) => None,
            (Some(name), None) => Some(name.parse().map_err(|_| {
                Error::unsupported(format!("has a tensor of the unknown dtype {name:?}: use a newer lmc"))
            })?),
            (name, Some(bits)) => {
                let other = name.filter(|name| name.parse::<Dtype>().is_err());
                let named = other.and_then(|name| NamedDtype::new(name, bits)).map(Dtype::Named);
                Some(named.ok_or_else(|| {
                    Error::damaged(format!("has a tensor of the dtype {:?} with {bits} bits", name.unwrap_or_default()))
                })?)
            }
        };
        lmc::Segment::new(self.name.as_deref().map(Into::into), dtype, self.shape[..].into(), offset, self.len)
            .map_err(|e| Error::damaged(e.to_string()))
    }
}

fn sum(mut lens: impl Iterator<Item = u64>) -> Option<u64> {
    lens.try_fold(0, u64::checked_add)
}

impl Document for Shard {
    const FORMAT: &'static str = "lmc-shard";
    const MAX: usize = 1 << 28;

    fn check_counts(bytes: &[u8]) -> Result<()> {
        counts::check_text(bytes)
    }

    fn check(&self) -> Result<()> {
        let lens = [self.shards.len(), self.objects.len(), self.files.len()].map(|n| n as u64);
        let dimensions = self.files.iter().flat_map(|f| &f.segments).map(|s| s.shape.len() as u64).sum();
        let extents = self.files.iter().map(|f| f.extents.len() as u64).sum();
        counts::check([lens[0], lens[1], lens[2], self.listed_segments(), dimensions, extents])?;
        let mut seen = HashSet::new();
        if let Some(p) = self.shards.iter().find(|p| !seen.insert(**p)) {
            return Err(Error::damaged(format!("names the shard {p} twice")));
        }
        if sum(self.objects.iter().copied()).is_none_or(|total| total > MAX_TOTAL) {
            return Err(Error::limit("has data objects of more than 2^53 bytes"));
        }
        let ascend = self.writers.is_sorted_by(|a, b| a.0 < b.0);
        if !ascend || self.writers.last().is_some_and(|last| last.0 >= self.objects.len()) {
            return Err(Error::damaged("has writers that are not in the order of its data objects"));
        }
        let mut writers: HashSet<SaveId> = self.writers.iter().map(|w| w.1).collect();
        if writers.len() < self.writers.len() || !writers.insert(self.save) {
            return Err(Error::damaged("has a save as a writer twice"));
        }
        for (i, set) in self.sets.iter().enumerate() {
            self.check_set(i, set).map_err(|e| e.at(format_args!("block set {i}")))?;
        }
        self.check_alternatives()?;
        if sum(self.files.iter().map(|f| f.len)).is_none_or(|total| total > MAX_TOTAL) {
            return Err(Error::limit("has files of more than 2^53 bytes"));
        }
        for (i, f) in self.files.iter().enumerate() {
            self.check_file(i, f).map_err(|e| e.at(format_args!("file {:?}", f.name)))?;
        }
        check_together(self.files.iter().map(|f| &f.name[..])).map_err(Error::damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn shard() -> Shard {
        let hash = Hash::of(b"");
        let set = |at, raw_len, base: Option<Ref>| BlockSet {
            at,
            hash,
            raw_len,
            raw_hash: hash,
            base,
            others: vec![],
            age: base.is_some().into(),
        };
        let mut p = Shard::new(SaveId::new([7; 16]), 1000);
        p.shards = vec![ShardId::of(b"earlier")];
        p.objects = vec![100];
        p.sets = vec![
            set(At(0, 0, 60), 1000, None),
            set(At(0, 60, 40), 24, Some(Ref(0, 0))),
            set(At(0, 60, 0), 8, Some(Ref(1, 9))),
        ];
        let tensor =
            Segment { len: 1000, name: Some("t".into()), dtype: Some("BF16".into()), bits: None, shape: vec![5, 100] };
        let header = Segment { len: 24, name: None, dtype: None, bits: None, shape: vec![] };
        p.files = vec![File {
            name: "m.safetensors".into(),
            len: 1024,
            layout: "safetensors".into(),
            segments: vec![header, tensor],
            segments_of: None,
            extents: vec![Extent(0, 1, 0, 24), Extent(1, 4, 8, 1000)],
        }];
        let shard = ShardId::of(b"gone");
        p.alternatives = vec![Alternative { set: 0, at: At(0, 41, 59), hash, base: hash, shard }];
        p
    }

    #[test]
    fn shards_are_parsed_again() {
        let p = shard();
        assert_eq!(Shard::parse(&p.to_bytes().unwrap()).unwrap(), p);
    }

    #[test]
    fn named_dtypes_have_bits() {
        let dtype = NamedDtype::new("F12_X", 12).map(Dtype::Named);
        let segment = lmc::Segment::new(Some("t".into()), dtype, [2, 5].into(), 8, 15).unwrap();
        let stored = Segment::of(&segment);
        assert_eq!((stored.dtype.as_deref(), stored.bits), (Some("F12_X"), Some(12)));
        assert_eq!(stored.to_lmc(8).unwrap(), segment);
    }

    #[test]
    fn limits() {
        let mut p = shard();
        p.objects = vec![MAX_STORED, MAX_TOTAL - MAX_STORED];
        p.sets[0].at = At(0, 0, MAX_STORED);
        p.sets[0].raw_len = MAX_RAW;
        let len = MAX_TOTAL - 1024;
        p.files.push(File {
            name: "large".into(),
            len,
            layout: "bytes".into(),
            segments: vec![Segment { len, name: None, dtype: None, bits: None, shape: vec![] }],
            segments_of: None,
            extents: vec![Extent(1, 0, 0, len)],
        });
        assert_eq!(Shard::parse(&p.to_bytes().unwrap()).unwrap(), p);
        let above: [fn(&mut Shard); 4] = [
            |p| p.objects[1] += 1,
            |p| (p.objects[0], p.objects[1], p.sets[0].at.2) = (MAX_STORED + 1, 0, MAX_STORED + 1),
            |p| p.sets[0].raw_len += 1,
            |p| {
                p.files[1].len += 1;
                p.files[1].segments[0].len += 1;
                p.files[1].extents[0].3 += 1;
            },
        ];
        for spoil in above {
            let mut p = p.clone();
            spoil(&mut p);
            assert_eq!(p.to_bytes().unwrap_err().kind(), ErrorKind::Limit);
            assert_eq!(Shard::parse(&serde_json::to_vec(&p).unwrap()).unwrap_err().kind(), ErrorKind::Limit);
        }
    }

    /// The text of [`shard`] with more fields, each in some object.
    fn with(edits: &[(&str, &str)]) -> Vec<u8> {
        let mut text = String::from_utf8(shard().to_bytes().unwrap()).unwrap();
        for (place, fields) in edits {
            let begin = match *place {
                "" => text.len() - 1,
                "sets" | "segments" | "alternatives" => {
                    text.find(&format!("\"{place}\":[{{")).unwrap() + place.len() + 5
                }
                "second set" => text.rfind("{\"at\"").unwrap() + 1,
                "second segment" => text.rfind("{\"len\"").unwrap() + 1,
                "files" => text.find(",\"segments\"").unwrap() + 1,
                _ => unreachable!("no such place"),
            };
            let fields = if place.is_empty() { format!(",{fields}") } else { format!("{fields},") };
            text.insert_str(begin, &fields);
        }
        text.into_bytes()
    }

    #[test]
    fn unknown_fields_are_ignored_only_with_a_prefix() {
        let everywhere = [
            ("", r#""x_":[{"x":{"x":null,"x":1}},"deep",-1.5e300]"#),
            ("sets", r#""x_a":1"#),
            ("second set", r#""x_a":{}"#),
            ("segments", r#""x_a":"a","x_b":[]"#),
            ("second segment", r#""x_b":"b","x_a":false"#),
            ("files", r#""x_a":{"segments":[{"z":1}]}"#),
            ("alternatives", r#""x_a":[0]"#),
        ];
        assert_eq!(Shard::parse(&with(&everywhere)).unwrap(), shard());
        for (place, field, path) in [
            ("", r#""x":1"#, "x"),
            ("", r#""X_a":1"#, "X_a"),
            ("", r#""":1"#, ""),
            ("sets", r#""ax_":1"#, "sets.0.ax_"),
            ("second set", r#""x_a":1,"b":{"x_a":1}"#, "sets.2.b"),
            ("segments", r#""x-":1"#, "files.0.segments.0.x-"),
            ("second segment", r#""x":1"#, "files.0.segments.1.x"),
            ("files", r#""x":1"#, "files.0.x"),
            ("alternatives", r#""x":1"#, "alternatives.0.x"),
        ] {
            let e = Shard::parse(&with(&[(place, field)])).expect_err(path);
            assert_eq!((e.kind(), e.to_string()), (ErrorKind::Damaged, format!("has the unknown field {path:?}")));
        }
        // Ignored values are not limited by their depth: they are skipped without recursion.
        let deep = format!("\"x_\":{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(Shard::parse(&with(&[("", &deep)])).unwrap(), shard());
        // An unknown field with a long name makes no long error.
        let long = format!("\"{}\":1", "x".repeat(1_000_000));
        assert!(Shard::parse(&with(&[("", &long)])).unwrap_err().to_string().len() < 1000);
    }
}
