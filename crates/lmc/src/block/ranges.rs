//! The bytes of ranges that a block names.

use super::Origin;
use crate::format::bases::SourceRange;
use crate::format::block_head::NamedRanges;
use lmc_layout::error::Result;
use lmc_layout::io::scratch;

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

    /// The bytes of some ranges that are as long as `out`: there, and an empty slice, unless they are in memory already.
    pub(super) fn get_in_place(&self, named: &NamedRanges, out: &mut [u8]) -> Result<&[u8]> {
        let list = named.of(self.list);
        match in_memory(list, self.origin) {
            Some(bytes) => Ok(bytes),
            None => read_to(list, self.origin, out).map(|()| &[][..]),
        }
    }
}

/// The concatenated bytes of ranges: in `buf` unless they are in memory already.
pub(super) fn read_all<'b>(list: &[SourceRange], origin: &'b dyn Origin, buf: &'b mut Vec<u8>) -> Result<&'b [u8]> {
    if let Some(bytes) = in_memory(list, origin) {
        return Ok(bytes);
    }
    // Heads are checked: a prefix has at most 8 MiB, an operand at most twice the bytes of its column.
    let bytes = scratch(buf, list.iter().map(|d| d.len as usize).sum());
    read_to(list, origin, bytes)?;
    Ok(bytes)
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
