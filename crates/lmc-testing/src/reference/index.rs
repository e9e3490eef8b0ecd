//! The index (§2.3).

use super::bytes::Bytes;
use super::faults::must;
use super::frames::zstd_frame;
use super::tensors::Tensors;

/// The longest table, and the most bytes of segments, names and dimensions.
const LARGEST_TABLE: u64 = 1 << 28;
/// The most blocks, and the most segments.
const MOST: u64 = 1 << 24;

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
    must(block_count <= MOST, "the index has more than 2^24 blocks")?;
    let table_length = head.varint()?;
    must(table_length <= LARGEST_TABLE, "the table of the index exceeds 2^28 bytes")?;
    let table = zstd_frame(head.rest(), table_length as usize)?;
    let mut table = Bytes::new(&table);

    let mut blocks = Vec::new();
    for _ in 0..block_count {
        blocks.push((table.varint()?, table.varint()?));
    }
    for what in ["the layout", "the writer"] {
        let text = table.string()?;
        must(text.len() <= 255, &format!("{what} has more than 255 bytes"))?;
        must(is_shown(text), &format!("{what} has control characters"))?;
    }

    let mut covered = 0u128;
    let mut tensors = Tensors::default();
    let segment_count = table.varint()?;
    for _ in 0..segment_count {
        tensors.written_out += 64;
        let kind = table.u8()?;
        if kind & 0x7f == 0 {
            must(kind == 0, "an opaque segment refers to a shape")?;
            let length = table.varint()?;
            must(length >= 1, "an opaque segment is empty")?;
            covered += u128::from(length);
        } else {
            covered += u128::from(tensors.next(kind, &mut table)?);
        }
        must(tensors.written_out <= LARGEST_TABLE, "segments, names and dimensions exceed 2^28 bytes")?;
    }
    must(covered == u128::from(raw_size), "the segments do not add up to the raw size")?;
    table.end("something follows the last segment of the index")?;
    Ok(Index { raw_size, content_hash, exact_features, blocks })
}

/// Whether a text has no byte below 0x20, and no 0x7F.
pub(super) fn is_shown(text: &str) -> bool {
    text.bytes().all(|byte| byte >= 0x20 && byte != 0x7f)
}
