//! Ranges of other data (§3.6).

use super::varint;

/// A range of the raw bytes of a base, or of the file itself before the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// 0 for the file itself, or the number of a base.
    pub source: u64,
    pub offset: u64,
    /// The bytes of the range.
    pub bytes: Vec<u8>,
}

impl Range {
    /// All bytes of a base.
    pub fn of_base(number: u64, base: &[u8]) -> Self {
        Self { source: number, offset: 0, bytes: base.to_vec() }
    }
}

/// Writes the number of the ranges, and the ranges.
pub(super) fn write(ranges: &[Range], head: &mut Vec<u8>) {
    varint(head, ranges.len() as u64);
    for range in ranges {
        varint(head, range.source);
        varint(head, range.offset);
        varint(head, range.bytes.len() as u64);
    }
}

/// Their bytes, one after the other.
pub(super) fn bytes(ranges: &[Range]) -> Vec<u8> {
    ranges.iter().map(|range| &range.bytes[..]).collect::<Vec<_>>().concat()
}

/// The bits of the features that a block with these ranges needs.
pub(super) fn needs<'a>(ranges: impl Iterator<Item = &'a Range>) -> u32 {
    ranges.fold(0, |needs, range| needs | if range.source == 0 { 3 } else { 1 })
}
