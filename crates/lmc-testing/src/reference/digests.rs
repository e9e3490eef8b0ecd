//! Digests and the content hash (§2.5).

use xxhash_rust::xxh3::xxh3_128;

/// Raw bytes that one digest covers.
pub(super) const LEAF: usize = 1 << 18;

pub(super) fn digest(leaf: &[u8]) -> [u8; 16] {
    xxh3_128(leaf).to_le_bytes()
}

/// The content hash.
pub fn content_hash(raw: &[u8]) -> [u8; 16] {
    digest(&raw.chunks(LEAF).flat_map(digest).collect::<Vec<u8>>())
}
