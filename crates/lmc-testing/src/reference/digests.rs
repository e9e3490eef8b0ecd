//! Digests and the content hash (§2.5), and cryptographic digests (§2.7).

use super::bytes::Bytes;
use super::faults::must;
use sha2::{Digest as _, Sha256};
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

/// Checks the record of cryptographic digests with this head, of a file with these raw bytes and bases.
pub(super) fn compare(head: &[u8], raw: &[u8], bases: &[&[u8]]) -> Result<(), String> {
    let mut head = Bytes::new(head);
    let count = head.varint()?;
    must(count >= 1, "a record of digests has none")?;
    let mut before = None;
    for _ in 0..count {
        let entry = (head.varint()?, head.u8()?);
        must(before < Some(entry), "digests are not in their order")?;
        before = Some(entry);
        let (whose, algorithm) = entry;
        let bytes = match whose {
            0 => raw,
            base => *bases.get(base as usize - 1).ok_or("a digest is of a base that is not named")?,
        };
        let stated: [u8; 32] = head.array()?;
        must(algorithm != 1 || Sha256::digest(bytes)[..] == stated, "a digest is not that of the raw bytes")?;
    }
    head.end("something follows the last digest")
}
