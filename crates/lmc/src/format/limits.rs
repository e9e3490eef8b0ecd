//! Limits of a file and of a block.

pub(crate) const MAX_RAW: usize = 1 << 24;
pub(crate) const MAX_COLUMNS: usize = 16;
pub(crate) const MAX_EXTENTS: usize = 1 << 20;
pub(crate) const MAX_CLUSTERS: usize = 16;
pub(crate) const MAX_RANGES: usize = 1 << 20;
/// Bytes of a block's ranges.
pub(crate) const MAX_RANGE_BYTES: u64 = 1 << 28;
/// Bytes of the prefix of a zstd column.
pub(crate) const MAX_PREFIX: u64 = 1 << 23;
/// Bases of a file.
pub(crate) const MAX_BASES: usize = 1 << 16;
/// Bytes of the table of the index.
pub(crate) const MAX_TABLE: u64 = 1 << 30;
