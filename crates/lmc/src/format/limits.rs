//! Limits of a file and of a block (`docs/format.md` §6).

pub(crate) const MAX_RAW: usize = 1 << 24;
pub(crate) const MAX_COLUMNS: usize = 16;
pub(crate) const MAX_EXTENTS: usize = 1 << 20;
pub(crate) const MAX_CLUSTERS: usize = 16;
pub(crate) const MAX_RANGES: usize = 1 << 20;
/// Bytes of a block's ranges.
pub(crate) const MAX_RANGE_BYTES: u64 = 1 << 28;
/// Longest chain of blocks, each depending on the one before, that must be decoded before a block.
pub(crate) const MAX_DEPTH: usize = 8;
/// Raw bytes of a block, and of the blocks that must be decoded before it.
pub(crate) const MAX_BLOCK_COST: u64 = 1 << 30;
/// Bases of a file.
pub(crate) const MAX_BASES: usize = 1 << 16;
/// Bytes of the table of the index.
pub(crate) const MAX_TABLE: u64 = 1 << 28;
pub(crate) const MAX_BLOCKS: u64 = 1 << 24;
/// Bytes of the name of a tensor.
pub(crate) const MAX_NAME: usize = (1 << 16) - 1;
/// Bytes of the names of all tensors, eight for each dimension, and [`OF_SEGMENT`] for each segment.
pub(crate) const MAX_WRITTEN_OUT: u64 = 1 << 28;
/// Bytes that count for a segment, beside its name and dimensions.
pub(crate) const OF_SEGMENT: u64 = 64;
/// Bytes of the names of the layout, the writer, and a base.
pub(crate) const MAX_LABEL: usize = 255;
