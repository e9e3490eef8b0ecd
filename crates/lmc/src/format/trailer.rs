//! The last 32 bytes of a file: where its index is (`docs/format.md` §2.4).

use super::checksum::check64;
use super::record::HEADER_LEN;
use super::{header, record};
use lmc_layout::error::{Error, Result};

pub(crate) const LEN: usize = 32;
const MAGIC: [u8; 8] = *b"LMCend\r\n";

/// The place of the index record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) index_offset: u64,
    pub(crate) index_len: u64,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut t = [0; LEN];
        t[..8].copy_from_slice(&self.index_offset.to_le_bytes());
        t[8..16].copy_from_slice(&self.index_len.to_le_bytes());
        let check = check64(&t[..16]);
        t[16..24].copy_from_slice(&check.to_le_bytes());
        t[24..].copy_from_slice(&MAGIC);
        t
    }

    /// Parses the last bytes of a file of `size` bytes. The index is then known to lie between header and trailer.
    pub(crate) fn parse(t: &[u8; LEN], size: u64) -> Result<Self> {
        let u64_at = |i: usize| u64::from_le_bytes(t[i..i + 8].try_into().expect("8 bytes"));
        if t[24..] != MAGIC {
            return Err(Error::damaged(
                "the last 8 bytes are not those of a trailer: the file ends early, or has more after its end; fetch it again",
            )
            .at_offset(size));
        }
        let at = size - LEN as u64;
        if u64_at(16) != check64(&t[..16]) {
            return Err(Error::damaged("the trailer's checksum does not match; fetch the file again").at_offset(at));
        }
        let t = Self { index_offset: u64_at(0), index_len: u64_at(8) };
        let most = HEADER_LEN as u64 + u64::from(record::MAX_INDEX_HEAD);
        if t.index_offset < header::LEN as u64
            || t.index_len < HEADER_LEN as u64
            || t.index_len > most
            || t.index_offset.checked_add(t.index_len) != Some(at)
        {
            let Self { index_offset, index_len } = t;
            return Err(Error::damaged(format!(
                "the trailer gives the index {index_len} bytes at byte {index_offset}; it must end at byte {at}: fetch the file again"
            ))
            .at_offset(at));
        }
        Ok(t)
    }
}
