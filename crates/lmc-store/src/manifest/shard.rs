//! Shards: the files that one process saved, and the block sets that they consist of.

use std::collections::HashSet;

use lmc::{Dtype, NamedDtype};
use serde::{Deserialize, Serialize};

use super::names::{check_name, check_together};
use super::{Document, VERSION};
use crate::error::{Error, Result};
use crate::ids::{Hash, SaveId, ShardId};

/// The most raw bytes of a block set.
pub(crate) const MAX_RAW: u64 = 1 << 26;
/// The most stored bytes of a block set.
pub(crate) const MAX_STORED: u64 = 1 << 27;
/// The most bytes of all data objects, or of all files, of a shard: sums over shards do not overflow.
const MAX_TOTAL: u64 = 1 << 53;

/// A block set: index of the shard (0 is the one with the reference), index of the set in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ref(pub(crate) usize, pub(crate) usize);

/// Location of a block set: index of the data object, offset and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct At(pub(crate) usize, pub(crate) u64, pub(crate) u64);

/// A range of a file: shard, set, offset of its first raw byte in the set, length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent(pub(crate) usize, pub(crate) usize, pub(crate) u64, pub(crate) u64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockSet {
    pub(crate) at: At,
    pub(crate) hash: Hash,
    pub(crate) raw_len: u64,
    pub(crate) raw_hash: Hash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Ref>,
    pub(crate) age: u32,
}

/// A range of a file; a tensor if it has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Segment {
    pub(crate) len: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dtype: Option<String>,
    /// Bits of an element, if the `.lmc` format has no code for the dtype.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bits: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shape: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) len: u64,
    pub(crate) layout: String,
    pub(crate) segments: Vec<Segment>,
    pub(crate) extents: Vec<Extent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shard {
    format: String,
    version: u32,
    pub(crate) save: SaveId,
    pub(crate) began: u64,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) objects: Vec<u64>,
    pub(crate) sets: Vec<BlockSet>,
    pub(crate) files: Vec<File>,
}

impl Shard {
    pub(crate) fn new(save: SaveId, began: u64) -> Self {
        let format = Self::FORMAT.into();
        Self { format, version: VERSION, save, began, shards: vec![], objects: vec![], sets: vec![], files: vec![] }
    }

    /// Bytes of all files.
    pub(crate) fn raw_size(&self) -> u64 {
        self.files.iter().map(|f| f.len).sum()
    }

    /// Bytes of its data objects.
    pub(crate) fn new_size(&self) -> u64 {
        self.objects.iter().sum()
    }

    fn check_set(&self, i: usize, set: &BlockSet) -> Result<()> {
        let At(object, offset, len) = set.at;
        let within =
            self.objects.get(object).is_some_and(|&size| offset.checked_add(len).is_some_and(|end| end <= size));
        if !within {
            return Err(Error::damaged("is not within its data object"));
        }
        if set.raw_len > MAX_RAW || len > MAX_STORED {
            return Err(Error::limit(format!(
                "has {len} bytes stored, {} raw: the limits are {MAX_STORED} and {MAX_RAW}",
                set.raw_len
            )));
        }
        match set.base {
            Some(Ref(0, base)) if base >= i => Err(Error::damaged("has a base that does not come before it")),
            Some(Ref(shard, _)) if shard > self.shards.len() => Err(Error::damaged("has its base in an unknown shard")),
            None if set.age != 0 => Err(Error::damaged("has an age but no base")),
            Some(_) if set.age == 0 => Err(Error::damaged("has a base but no age")),
            _ => Ok(()),
        }
    }

    fn check_file(&self, file: &File) -> Result<()> {
        check_name(&file.name).map_err(Error::damaged)?;
        if sum(file.segments.iter().map(|s| s.len)) != Some(file.len) {
            return Err(Error::damaged("does not have the length of its segments"));
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
                let named = name.and_then(|name| NamedDtype::new(name, bits)).map(Dtype::Named);
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

    fn check(&self) -> Result<()> {
        let mut seen = HashSet::new();
        if let Some(p) = self.shards.iter().find(|p| !seen.insert(**p)) {
            return Err(Error::damaged(format!("names the shard {p} twice")));
        }
        if sum(self.objects.iter().copied()).is_none_or(|total| total > MAX_TOTAL) {
            return Err(Error::limit("has data objects of more than 2^53 bytes"));
        }
        for (i, set) in self.sets.iter().enumerate() {
            self.check_set(i, set).map_err(|e| e.at(format_args!("block set {i}")))?;
        }
        if sum(self.files.iter().map(|f| f.len)).is_none_or(|total| total > MAX_TOTAL) {
            return Err(Error::limit("has files of more than 2^53 bytes"));
        }
        for f in &self.files {
            self.check_file(f).map_err(|e| e.at(format_args!("file {:?}", f.name)))?;
        }
        check_together(self.files.iter().map(|f| &f.name[..])).map_err(Error::damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard() -> Shard {
        let hash = Hash::of(b"");
        let set = |at, raw_len, base: Option<Ref>| BlockSet {
            at,
            hash,
            raw_len,
            raw_hash: hash,
            base,
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
            extents: vec![Extent(0, 1, 0, 24), Extent(1, 4, 8, 1000)],
        }];
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
    fn shards_that_contradict_themselves_are_refused() {
        type Spoil = fn(&mut Shard);
        let bad: &[(&str, Spoil)] = &[
            ("shard twice", |p| p.shards.push(p.shards[0])),
            ("beyond its object", |p| p.objects[0] = 99),
            ("no such object", |p| p.sets[0].at.0 = 1),
            ("offset overflows", |p| p.sets[0].at = At(0, u64::MAX, 2)),
            ("too large", |p| p.sets[0].raw_len = MAX_RAW + 1),
            ("objects overflow", |p| p.objects.push(u64::MAX)),
            ("large objects", |p| p.objects.push(MAX_TOTAL)),
            ("large files", |p| p.files.push(File { name: "x".into(), len: MAX_TOTAL, ..p.files[0].clone() })),
            ("its own base", |p| p.sets[1].base = Some(Ref(0, 1))),
            ("a later base", |p| p.sets[1].base = Some(Ref(0, 2))),
            ("unknown shard", |p| p.sets[1].base = Some(Ref(2, 0))),
            ("age without base", |p| p.sets[0].age = 1),
            ("base without age", |p| p.sets[1].age = 0),
            ("length of segments", |p| p.files[0].segments[0].len += 1),
            ("length of extents", |p| p.files[0].extents[0].3 -= 1),
            ("extents overflow", |p| p.files[0].extents[1].3 = u64::MAX),
            ("beyond its set", |p| p.files[0].extents[0].2 = 1),
            ("no such set", |p| p.files[0].extents[0].1 = 3),
            ("no such shard", |p| p.files[0].extents[1].0 = 2),
            ("an empty extent", |p| p.files[0].extents.push(Extent(0, 0, 0, 0))),
            ("shape", |p| p.files[0].segments[1].shape[0] = 6),
            ("dtype", |p| p.files[0].segments[1].dtype = Some("F99".into())),
            ("bits of another length", |p| p.files[0].segments[1].bits = Some(8)),
            ("bits without dtype", |p| p.files[0].segments[0].bits = Some(8)),
            ("dtype without name", |p| p.files[0].segments[1].name = None),
            ("name twice", |p| p.files.push(p.files[0].clone())),
            ("in a file", |p| p.files.push(File { name: "m.safetensors/x".into(), ..p.files[0].clone() })),
        ];
        for (what, spoil) in bad {
            let mut p = shard();
            spoil(&mut p);
            p.to_bytes().expect_err(what);
            Shard::parse(&serde_json::to_vec(&p).unwrap()).expect_err(what);
        }
        for name in ["", ".", "..", "../x", "x/../../y", "/etc/passwd", "a\\b", "C:x", "a\nb"] {
            let mut p = shard();
            p.files[0].name = name.into();
            // `Damaged`, not `Usage`: the reader did not choose the name.
            let e = Shard::parse(&serde_json::to_vec(&p).unwrap()).expect_err(name);
            assert_eq!(e.kind(), crate::ErrorKind::Damaged, "{e}");
            p.to_bytes().expect_err(name);
        }
    }
}
