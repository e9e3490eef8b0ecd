//! The index (§2.3).

use super::bytes::Bytes;
use super::faults::must;
use super::frames::zstd_frame;
use super::tensors::Tensors;

/// The largest table that is unpacked, so that a lie about its length costs no memory.
const LARGEST_TABLE: u64 = 1 << 28;

pub(super) struct Index {
    pub(super) raw_size: u64,
    pub(super) content_hash: [u8; 16],
    pub(super) exact_features: u32,
    /// Record length and raw length of each block.
    pub(super) blocks: Vec<(u64, u64)>,
}

pub(super) fn parse(head: &[u8]) -> Result<Index, String> {
    let mut head = Bytes::new(head);
    let raw_size = head.u64()?;
    let content_hash = head.array()?;
    let exact_features = head.u32()?;
    let block_count = head.varint()?;
    let table_length = head.varint()?;
    must(table_length <= LARGEST_TABLE, "the table of the index exceeds the limit")?;
    let table = zstd_frame(head.rest(), &[], table_length as usize)?;
    let mut table = Bytes::new(&table);

    let mut blocks = Vec::new();
    for _ in 0..block_count {
        blocks.push((table.varint()?, table.varint()?));
    }
    let _layout = table.string()?;
    let _writer = table.string()?;

    let mut covered = 0u128;
    let mut tensors = Tensors::default();
    for _ in 0..table.varint()? {
        let kind = table.u8()?;
        if kind & 0x7f == 0 {
            must(kind == 0, "an opaque segment refers to a shape")?;
            covered += u128::from(table.varint()?);
            continue;
        }
        covered += u128::from(tensors.next(kind, &mut table)?);
    }
    must(covered == u128::from(raw_size), "the segments do not add up to the raw size")?;
    table.end("something follows the last segment of the index")?;
    Ok(Index { raw_size, content_hash, exact_features, blocks })
}
