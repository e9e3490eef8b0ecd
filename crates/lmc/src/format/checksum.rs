//! XXH3 as the format uses it: 64-bit checks of heads, 128-bit digests of leaves, one hash over the leaves.
//!
//! They detect accidents and do not resist an attacker.

use twox_hash::{XxHash3_64, XxHash3_128};

/// Raw bytes that one digest covers (`docs/format.md` §2.5).
pub(crate) const LEAF: usize = 1 << 18;

/// An xxh3-128 as it is stored: low half, then high half, little-endian.
pub(crate) type Digest = [u8; 16];

pub(crate) fn check64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    XxHash3_128::oneshot(bytes).to_le_bytes()
}

/// Lengths of the leaves of a block of `len` bytes.
pub(crate) fn leaf_lens(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(LEAF).map(move |at| LEAF.min(len - at))
}

/// Digests of the leaves of a block.
pub(crate) fn leaves(raw: &[u8]) -> Vec<Digest> {
    raw.chunks(LEAF).map(digest).collect()
}

/// Fills `raw` by `read(offset, leaf)`, and gives the digests of its leaves. Each leaf is hashed while it is in the cache.
pub(crate) fn read_leaves<E>(
    raw: &mut [u8],
    mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<Digest>, E> {
    let leaf = |(i, leaf): (usize, &mut [u8])| {
        read(i * LEAF, leaf)?;
        Ok(digest(leaf))
    };
    raw.chunks_mut(LEAF).enumerate().map(leaf).collect()
}

/// The digest of a block with these leaves.
pub(crate) fn block_digest(leaves: &[Digest]) -> Digest {
    digest(leaves.as_flattened())
}

/// The content hash of a file, built from its leaf digests in order.
#[derive(Clone, Default)]
pub(crate) struct ContentHash(XxHash3_128);

impl ContentHash {
    pub(crate) fn push(&mut self, leaf: &Digest) {
        self.0.write(leaf);
    }
    pub(crate) fn finish(&self) -> Digest {
        self.0.finish_128().to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Vectors of the xxHash reference implementation: XXH3 of the empty string, seed 0.
        assert_eq!(check64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(digest(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f_u128.to_le_bytes());
        assert_eq!(ContentHash::default().finish(), digest(b""));
    }

    #[test]
    fn content_hash_is_the_digest_of_the_digests() {
        let leaves: Vec<Digest> = (0..100u8).map(|i| digest(&[i])).collect();
        let mut h = ContentHash::default();
        leaves.iter().for_each(|l| h.push(l));
        assert_eq!(h.finish(), digest(&leaves.concat()));
    }
}
