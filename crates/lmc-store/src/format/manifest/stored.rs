//! A shard's document as it is stored: its JSON, in one frame of zstd (`docs/store.md` §4).

use std::io::Read;

use zstd::stream::read::Decoder;

use super::Document;
use super::shard::Shard;
use crate::error::{Error, Result};
use crate::format::ids::ShardId;

/// Documents of many tensors are smaller than at levels 3 and 9 (decision 5).
const LEVEL: i32 = 1;

impl Shard {
    /// The stored bytes of the document, and its id: their hash.
    ///
    /// # Errors
    /// Those of [`Document::to_bytes`].
    pub(crate) fn to_stored(&self) -> Result<(ShardId, Vec<u8>)> {
        let stored = zstd::bulk::compress(&self.to_bytes()?, LEVEL);
        let stored = stored.map_err(|e| Error::io("cannot compress a shard", e))?;
        Self::check_size(stored.len())?;
        Ok((ShardId::of(&stored), stored))
    }

    /// Decompresses a document, and parses it. No more than [`Document::MAX`] bytes are decompressed. Also returns how many were.
    ///
    /// # Errors
    /// Those of [`Document::parse`].
    pub(crate) fn parse_stored(stored: &[u8]) -> Result<(Self, u64)> {
        let document = decompress(stored, Self::MAX)?;
        Ok((Self::parse(&document)?, document.len() as u64))
    }
}

/// The contents of a frame, or the first `limit` bytes of them and one more.
fn decompress(stored: &[u8], limit: usize) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::damaged(format!("is not a frame of zstd: {e}"));
    let mut decoder = Decoder::with_buffer(stored).map_err(failed)?.single_frame();
    let mut document = Vec::new();
    decoder.by_ref().take(limit as u64 + 1).read_to_end(&mut document).map_err(failed)?;
    if document.len() <= limit && !decoder.finish().is_empty() {
        return Err(Error::damaged("has bytes after the frame of zstd"));
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::ids::SaveId;

    fn shard() -> Shard {
        let mut shard = Shard::new(SaveId::new([7; 16]), 1000);
        shard.shards = (0..100u8).map(|i| ShardId::of(&[i])).collect();
        shard
    }

    fn kind(stored: &[u8]) -> ErrorKind {
        Shard::parse_stored(stored).unwrap_err().kind()
    }

    #[test]
    fn shards_are_read_as_they_were_stored() {
        let (id, stored) = shard().to_stored().unwrap();
        assert_eq!(id, ShardId::of(&stored));
        assert!(stored.len() < shard().to_bytes().unwrap().len());
        let len = shard().to_bytes().unwrap().len() as u64;
        assert_eq!(Shard::parse_stored(&stored).unwrap(), (shard(), len));
    }

    #[test]
    fn only_a_whole_frame_is_a_shard() {
        let (_, stored) = shard().to_stored().unwrap();
        for len in 0..stored.len() {
            assert_eq!(kind(&stored[..len]), ErrorKind::Damaged, "{len}");
        }
    }

    #[test]
    fn no_more_than_the_limit_is_decompressed() {
        let frame = zstd::bulk::compress(&vec![b' '; 1 << 20], 1).unwrap();
        assert!(frame.len() < 1000);
        assert_eq!(decompress(&frame, 1 << 20).unwrap().len(), 1 << 20);
        assert_eq!(decompress(&frame, (1 << 20) - 1).unwrap().len(), 1 << 20);
        assert_eq!(decompress(&frame, 1000).unwrap().len(), 1001);
        assert_eq!(decompress(b"x", 1000).unwrap_err().kind(), ErrorKind::Damaged);
        let bomb = zstd::stream::encode_all(std::io::repeat(b' ').take(2 * Shard::MAX as u64), 1).unwrap();
        assert_eq!(kind(&bomb), ErrorKind::Limit);
    }
}
