//! The bases of a delta: the record that names them (`docs/format.md` §2.6), and the ranges of blocks (§3.6).

use super::checksum::Digest;
use super::header::Features;
use super::limits::{MAX_BASES, MAX_BLOCK_COST, MAX_DEPTH};
use super::names;
use super::record::{self, HEADER_LEN, RecordHeader};
use crate::settings::limits::DecodeLimits;
use lmc_kernels::varint::{Cursor, put, put_string};
use lmc_layout::error::{Error, Result};

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
    /// In raw bytes of the source.
    pub offset: u64,
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
            put_string(&mut out, &names::of_base(&b.name));
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
                Ok(BaseInfo { content_hash, raw_size, name: names::base(&mut c)? })
            })
            .collect::<Result<_>>()?;
        c.finish()?;
        Ok(Self { features, bases })
    }

    /// Checks the ranges of a block that starts at raw byte `start`, and that the file has the features that it needs.
    pub(crate) fn check(&self, ranges: &[SourceRange], needed: Features, start: u64) -> Result<()> {
        if needed.grids && !self.features.grids {
            return Err(Error::damaged(
                "a block has a grid, but the file (its header, or its index) does not have the feature grids",
            ));
        }
        if needed.optimizer && !self.features.optimizer {
            return Err(Error::damaged(
                "a block has a step of an optimizer or terms, but the file (its header, or its index) does not have the feature optimizer",
            ));
        }
        if !ranges.is_empty() && !self.features.ranges {
            return Err(Error::damaged(
                "a block names ranges, but the file (its header, or its index) does not have the feature ranges",
            ));
        }
        for d in ranges {
            let (end, what) = match d.source {
                0 if !self.features.own => {
                    return Err(Error::damaged(
                        "a range is of the file itself, but the file (its header, or its index) does not have the feature own-ranges",
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

/// What must be decoded before each block of a file that depends on itself: depth and cost. Blocks are added in order.
#[derive(Default)]
pub(crate) struct Chains {
    /// End of each block in the raw file.
    ends: Vec<u64>,
    /// The costs of all blocks up to each one, added up.
    costs: Vec<u64>,
    /// The blocks of each depth from 1 on, in order.
    of: [Vec<u32>; MAX_DEPTH],
}

impl Chains {
    /// Memory that a block takes here, in bytes.
    pub(crate) const BLOCK_COST: usize = 2 * size_of::<u64>() + size_of::<u32>();

    /// Adds the next block; its ranges were checked.
    pub(crate) fn push(&mut self, raw_len: u64, ranges: &[SourceRange]) -> Result<()> {
        let depth = ranges.iter().map(|d| self.of_range(d)).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let cost = raw_len + self.cost_of(ranges);
        if cost > MAX_BLOCK_COST {
            return Err(Error::damaged(format!(
                "the cost of a block, the bytes that must be decoded to read it, is {cost}; it can be at most {MAX_BLOCK_COST}"
            )));
        }
        self.push_of(raw_len, depth, cost);
        Ok(())
    }

    /// Adds the next block, of known depth and cost.
    pub(crate) fn push_of(&mut self, raw_len: u64, depth: usize, cost: u64) {
        let start = self.ends.last().copied().unwrap_or(0);
        if let Some(level) = depth.checked_sub(1) {
            self.of[level].push(self.ends.len() as u32);
        }
        self.ends.push(start + raw_len);
        self.costs.push(self.costs.last().copied().unwrap_or(0) + cost);
    }

    /// The depth of a block with this range alone.
    pub(crate) fn of_range(&self, d: &SourceRange) -> usize {
        if d.source == 0 { 1 + self.deepest(d) } else { 0 }
    }

    /// The costs of the different blocks that ranges touch.
    pub(crate) fn cost_of(&self, ranges: &[SourceRange]) -> u64 {
        let mut touched: Vec<_> = ranges.iter().filter(|d| d.source == 0).map(|d| self.touched(d)).collect();
        touched.sort_unstable();
        let (mut cost, mut next) = (0, 0);
        for (first, last) in touched {
            let first = first.max(next);
            if first <= last {
                cost += self.costs[last] - first.checked_sub(1).map_or(0, |before| self.costs[before]);
                next = last + 1;
            }
        }
        cost
    }

    /// The first and the last block that a range of the file itself touches.
    fn touched(&self, d: &SourceRange) -> (usize, usize) {
        (self.ends.partition_point(|&end| end <= d.offset), self.ends.partition_point(|&end| end < d.end()))
    }

    /// The largest depth of the blocks that a range touches.
    fn deepest(&self, d: &SourceRange) -> usize {
        let (first, last) = self.touched(d);
        let touched = |blocks: &Vec<u32>| {
            blocks.get(blocks.partition_point(|&b| (b as usize) < first)).is_some_and(|&b| b as usize <= last)
        };
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
        let many = vec!["x".repeat(255); MAX_BASES];
        sources(&many.iter().map(|n| &n[..]).collect::<Vec<_>>()).encode().unwrap_err();
    }

    #[test]
    fn a_block_that_is_touched_twice_costs_once() {
        let range = |source, offset, len| SourceRange { source, offset, len };
        let mut chains = Chains::default();
        for _ in 0..3 {
            chains.push(100, &[]).unwrap();
        }
        assert_eq!(chains.cost_of(&[range(0, 0, 1), range(1, 100, 100), range(0, 99, 1)]), 100);
        assert_eq!(chains.cost_of(&[range(0, 150, 60), range(0, 0, 101)]), 300);
        chains.push(10, &[range(0, 199, 2), range(0, 100, 1)]).unwrap();
        assert_eq!(chains.cost_of(&[range(0, 305, 1)]), 210);
        assert_eq!(chains.cost_of(&[range(0, 305, 1), range(0, 0, 300)]), 510);
    }

    #[test]
    fn a_block_may_cost_a_gibibyte() {
        let largest = 1 << 24;
        let mut chains = Chains::default();
        for _ in 0..64 {
            chains.push(largest, &[]).unwrap();
        }
        let all_but = |n: u64| SourceRange { source: 0, offset: 0, len: (64 - n) * largest };
        chains.push(largest, &[all_but(1)]).unwrap();
        let e = chains.push(largest, &[all_but(0)]).unwrap_err();
        assert!(e.to_string().contains("the cost of a block"), "{e}");
        assert_eq!(e.kind(), crate::ErrorKind::Damaged);
    }
}
