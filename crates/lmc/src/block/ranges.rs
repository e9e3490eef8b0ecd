//! The bytes of ranges that a block names.

use super::Origin;
use crate::format::bases::SourceRange;
use crate::format::limits::MAX_RANGES;
use lmc_kernels::inline::array;
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::Result;
use lmc_layout::io::scratch;

/// Ranges that a column names: consecutive ranges of its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedRanges {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl NamedRanges {
    /// The `count` ranges from number `first` on.
    pub(super) fn new(first: usize, count: usize) -> Self {
        Self { first, count }
    }

    pub(crate) fn of<'d>(&self, ranges: &'d [SourceRange]) -> &'d [SourceRange] {
        &ranges[self.first..][..self.count]
    }

    /// Bytes of the ranges.
    pub(crate) fn bytes(&self, ranges: &[SourceRange]) -> u64 {
        self.of(ranges).iter().map(|d| d.len).sum()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        put(out, self.count as u64);
        self.of(ranges).iter().for_each(|d| d.put(out));
    }
}

/// The ranges of a block, while its columns are parsed.
pub(super) struct Ranges {
    pub(super) all: Vec<SourceRange>,
    /// Bytes that the block may still name.
    pub(super) left: u64,
}

impl Ranges {
    pub(super) fn parse(&mut self, c: &mut Cursor<'_>) -> Result<NamedRanges> {
        let first = self.all.len();
        // A range takes three bytes at least: the head's own length bounds the allocation.
        let count = c.size((MAX_RANGES - first).min(c.remaining() / 3), "a column's number of ranges")?;
        self.all.reserve(count);
        for _ in 0..count {
            self.all.push(SourceRange::parse(c, &mut self.left)?);
        }
        Ok(NamedRanges { first, count })
    }
}

/// The ranges of a block, and the origin of their bytes.
pub(super) struct BlockRanges<'a> {
    pub(super) list: &'a [SourceRange],
    pub(super) origin: &'a dyn Origin,
}

impl BlockRanges<'_> {
    /// The bytes of some ranges, concatenated: in `buf` unless they are in memory already.
    pub(super) fn get<'b>(&'b self, named: &NamedRanges, buf: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        read_all(named.of(self.list), self.origin, buf)
    }

    /// The bytes of several operands, as [`read_each`] gives them.
    pub(super) fn get_all<'b, const N: usize>(
        &self,
        named: [NamedRanges; N],
        len: usize,
        buf: &'b mut Vec<u8>,
    ) -> Result<[&'b [u8]; N]> {
        read_each(named.map(|named| &self.list[named.first..][..named.count]), len, self.origin, buf)
    }

    /// The bytes of some ranges that are as long as `out`, if they are in memory already; if not, they are written there.
    pub(super) fn get_in_place(&self, named: &NamedRanges, out: &mut [u8]) -> Result<Option<&[u8]>> {
        let list = named.of(self.list);
        match in_memory(list, self.origin) {
            None => read_to(list, self.origin, out).map(|()| None),
            bytes => Ok(bytes),
        }
    }
}

/// The concatenated bytes of ranges: in `buf` unless they are in memory already.
pub(super) fn read_all<'b>(list: &[SourceRange], origin: &'b dyn Origin, buf: &'b mut Vec<u8>) -> Result<&'b [u8]> {
    if let Some(bytes) = in_memory(list, origin) {
        return Ok(bytes);
    }
    // Heads are checked: an operand has at most twice the bytes of its column.
    let bytes = scratch(buf, list.iter().map(|d| d.len as usize).sum());
    read_to(list, origin, bytes)?;
    Ok(bytes)
}

/// The bytes of several lists of ranges, of `len` bytes each: in `buf`. Those of an empty list are arbitrary.
pub(super) fn read_each<'b, const N: usize>(
    lists: [&[SourceRange]; N],
    len: usize,
    origin: &dyn Origin,
    buf: &'b mut Vec<u8>,
) -> Result<[&'b [u8]; N]> {
    let bytes = scratch(buf, N * len);
    for (list, to) in lists.iter().zip(bytes.chunks_exact_mut(len)).filter(|(list, _)| !list.is_empty()) {
        read_to(list, origin, to)?;
    }
    let bytes = &*bytes;
    Ok(array(|i| &bytes[i * len..][..len]))
}

/// The bytes of ranges, if there is one, and it is in memory.
fn in_memory<'b>(list: &[SourceRange], origin: &'b dyn Origin) -> Option<&'b [u8]> {
    let [d] = list else { return None };
    origin.slice(d.source, d.offset, d.len as usize)
}

/// Fills `bytes` with the concatenated bytes of ranges, which have its length.
fn read_to(list: &[SourceRange], origin: &dyn Origin, mut bytes: &mut [u8]) -> Result<()> {
    for d in list {
        let (to, more) = bytes.split_at_mut(d.len as usize);
        origin.read(d.source, d.offset, to)?;
        bytes = more;
    }
    Ok(())
}
