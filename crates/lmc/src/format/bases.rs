//! The bases of a delta: the record that names them (`docs/format.md` §2.6), and the ranges of blocks (§3.6).

use super::checksum::Digest;
use super::header::Features;
use super::limits::MAX_BASES;
use super::record::{self, HEADER_LEN, RecordHeader};
use crate::settings::limits::DecodeLimits;
use lmc_kernels::varint::{Cursor, put, put_string, string};
use lmc_layout::error::{Error, Result};

/// Longest chain of blocks, each depending on the one before, that must be decoded before a block.
pub(crate) const MAX_DEPTH: usize = 8;

/// A base as a delta names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BaseInfo {
    /// Content hash of the base's raw bytes, as in [`Summary`](crate::Summary).
    pub content_hash: Digest,
    /// Size of the base's raw bytes.
    pub raw_size: u64,
    /// Name of its file when the delta was made, for error messages; may be empty.
    pub name: String,
}

/// A range of raw bytes that a block needs to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// 0: this file; i: its i-th base.
    pub source: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl SourceRange {
    pub(crate) fn parse(c: &mut Cursor<'_>, left: &mut u64) -> Result<Self> {
        let source = c.size(MAX_BASES, "the source of a range")? as u32;
        let (offset, len) = (c.varint()?, c.varint()?);
        if len == 0 {
            return Err(Error::damaged(format!("a range of source {source} at offset {offset} has no bytes")));
        }
        if len > *left || offset.checked_add(len).is_none() {
            return Err(Error::damaged(format!(
                "a range of source {source} has {len} bytes at offset {offset}: it ends above 2^64, or the block names more bytes \
                 than it can use"
            )));
        }
        *left -= len;
        Ok(Self { source, offset, len })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.source.into());
        put(out, self.offset);
        put(out, self.len);
    }

    /// End of the range in its source.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// The sources that blocks of a file may depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pub(crate) features: Features,
    pub(crate) bases: Vec<BaseInfo>,
}

impl Sources {
    /// The record that names the bases; empty if there are none.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        if self.bases.is_empty() {
            return Ok(vec![]);
        }
        let mut out = vec![0; HEADER_LEN];
        put(&mut out, self.bases.len() as u64);
        for b in &self.bases {
            out.extend_from_slice(&b.content_hash);
            put(&mut out, b.raw_size);
            put_string(&mut out, &b.name);
        }
        if self.bases.len() > MAX_BASES || out.len() - HEADER_LEN > record::MAX_BASES_HEAD as usize {
            return Err(Error::limit(format!(
                "{} bases with names of {} bytes in all; a file holds at most {MAX_BASES} bases in {} bytes",
                self.bases.len(),
                self.bases.iter().map(|b| b.name.len()).sum::<usize>(),
                record::MAX_BASES_HEAD
            )));
        }
        let header = RecordHeader::encode(record::BASES, &out[HEADER_LEN..], 0);
        out[..HEADER_LEN].copy_from_slice(&header);
        Ok(out)
    }

    /// Refuses a bases record whose head exceeds the limits, before it is read.
    pub(crate) fn check_head_len(len: u32, limits: &DecodeLimits) -> Result<()> {
        let max = limits.max_index_size;
        if len as usize <= max {
            return Ok(());
        }
        Err(Error::limit(format!("the file's list of bases has {len} bytes, more than the limit of {max}")))
    }

    /// Parses the head of a bases record.
    pub(crate) fn parse(features: Features, head: &[u8]) -> Result<Self> {
        let mut c = Cursor::new(head);
        // A base takes 18 bytes at least: the head's own length bounds the allocation.
        let n = c.size(MAX_BASES.min(head.len() / 18), "the number of bases")?;
        if n == 0 {
            return Err(Error::damaged("the number of bases is 0"));
        }
        let bases = (0..n)
            .map(|_| {
                let (content_hash, raw_size) = (c.array()?, c.varint()?);
                Ok(BaseInfo { content_hash, raw_size, name: string(&mut c)?.to_owned() })
            })
            .collect::<Result<_>>()?;
        c.finish()?;
        Ok(Self { features, bases })
    }

    /// Checks the ranges of a block that starts at raw byte `start`, and that the file has the features that it needs.
    pub(crate) fn check(&self, ranges: &[SourceRange], needed: Features, start: u64) -> Result<()> {
        if needed.grids && !self.features.grids {
            return Err(Error::damaged(
                "a block has a grid, but bit 2 of the features (of the header, or of the index) is not set",
            ));
        }
        if needed.optimizer && !self.features.optimizer {
            return Err(Error::damaged(
                "a block has a step of an optimizer or terms, but bit 3 of the features (of the header, or of the index) is not set",
            ));
        }
        if !ranges.is_empty() && !self.features.ranges {
            return Err(Error::damaged(
                "a block names ranges, but bit 0 of the features (of the header, or of the index) is not set",
            ));
        }
        for d in ranges {
            let (end, what) = match d.source {
                0 if !self.features.own => {
                    return Err(Error::damaged(
                        "a range is of the file itself, but bit 1 of the features (of the header, or of the index) is not set",
                    ));
                }
                0 => (start, "the block starts"),
                i => match self.bases.get(i as usize - 1) {
                    Some(base) => (base.raw_size, "its base ends"),
                    None => {
                        return Err(Error::damaged(format!(
                            "a block depends on base {i}; the file names {}",
                            self.bases.len()
                        )));
                    }
                },
            };
            if d.end() > end {
                return Err(Error::damaged(format!(
                    "a range of source {} ends at byte {}, but {what} at byte {end}",
                    d.source,
                    d.end()
                )));
            }
        }
        Ok(())
    }
}

/// The depth of every block of a file that depends on itself; blocks are added in order.
#[derive(Default)]
pub(crate) struct Depths {
    /// End of each block in the raw file.
    ends: Vec<u64>,
    /// The blocks of each depth from 1 on, in order.
    of: [Vec<u32>; MAX_DEPTH],
}

impl Depths {
    /// Memory that a block takes here, in bytes.
    pub(crate) const BLOCK_COST: usize = size_of::<u64>() + size_of::<u32>();

    /// Adds the next block; its ranges were checked.
    pub(crate) fn push(&mut self, raw_len: u64, ranges: &[SourceRange]) -> Result<()> {
        let depth = ranges.iter().map(|d| self.of_range(d)).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        self.push_of(raw_len, depth);
        Ok(())
    }

    /// Adds the next block, of known depth.
    pub(crate) fn push_of(&mut self, raw_len: u64, depth: usize) {
        let start = self.ends.last().copied().unwrap_or(0);
        if let Some(level) = depth.checked_sub(1) {
            self.of[level].push(self.ends.len() as u32);
        }
        self.ends.push(start + raw_len);
    }

    /// The depth of a block with this range alone.
    pub(crate) fn of_range(&self, d: &SourceRange) -> usize {
        if d.source == 0 { 1 + self.deepest(d) } else { 0 }
    }

    /// The largest depth of the blocks that a range touches.
    fn deepest(&self, d: &SourceRange) -> usize {
        let first = self.ends.partition_point(|&end| end <= d.offset) as u32;
        let last = self.ends.partition_point(|&end| end < d.end()) as u32;
        let touched =
            |blocks: &Vec<u32>| blocks.get(blocks.partition_point(|&b| b < first)).is_some_and(|&b| b <= last);
        self.of.iter().rposition(touched).map_or(0, |i| i + 1)
    }
}

pub(crate) fn too_deep() -> Error {
    Error::damaged(format!("the depth of a block exceeds {MAX_DEPTH}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(names: &[&str]) -> Sources {
        let bases = names
            .iter()
            .zip(1u64..)
            .map(|(n, i)| BaseInfo { content_hash: [i as u8; 16], raw_size: i << 40, name: (*n).to_owned() })
            .collect();
        Sources { features: Features { ranges: true, own: true, ..Features::default() }, bases }
    }

    #[test]
    fn bases_are_named_again() {
        for names in [&["old.safetensors"][..], &["", "b", "wörter"], &["x"; 300]] {
            let s = sources(&names.iter().map(|n| &n[..]).collect::<Vec<_>>());
            let record = s.encode().unwrap();
            let h = RecordHeader::parse(record[..HEADER_LEN].try_into().unwrap()).unwrap();
            let head = &record[HEADER_LEN..];
            assert_eq!((h.tag, h.len()), (record::BASES, record.len() as u64));
            h.verify(record[..HEADER_LEN].try_into().unwrap(), head).unwrap();
            assert_eq!(Sources::parse(s.features, head).unwrap().bases, s.bases);
            for n in 0..head.len() {
                Sources::parse(s.features, &head[..n]).unwrap_err();
            }
            Sources::parse(s.features, &[head, &[0]].concat()).unwrap_err();
        }
        assert!(Sources::default().encode().unwrap().is_empty());
        Sources::parse(Features::default(), &[0]).unwrap_err();
        let long = "x".repeat(record::MAX_BASES_HEAD as usize);
        sources(&[&long]).encode().unwrap_err();
    }
}
