//! Records: the self-delimiting units that follow a file's header (`docs/format.md` §2.2).

use std::hash::Hasher;

use twox_hash::XxHash3_64;

use lmc_layout::error::{Error, Result};

/// Length of the header of a record in bytes.
pub const HEADER_LEN: usize = 24;
pub(crate) const BLOCK: [u8; 4] = *b"BLCK";
pub(crate) const INDEX: [u8; 4] = *b"INDX";
pub(crate) const BASES: [u8; 4] = *b"BASE";

pub(crate) const MAX_BLOCK_HEAD: u32 = 1 << 24;
pub(crate) const MAX_BLOCK_BODY: u64 = 1 << 25;
/// Length of the longest block record.
pub(crate) const MAX_BLOCK_RECORD: u64 = HEADER_LEN as u64 + MAX_BLOCK_HEAD as u64 + MAX_BLOCK_BODY;
pub(crate) const MAX_INDEX_HEAD: u32 = 1 << 28;
pub(crate) const MAX_BASES_HEAD: u32 = 1 << 24;
/// Length of the longest skippable record.
pub(crate) const MAX_SKIPPABLE_RECORD: u64 = 1 << 24;
/// Skippable records that a file may have.
pub(crate) const MAX_SKIPPABLE: u64 = 64;

/// The 24 bytes in front of every record. Lengths are checked against the tag's maxima by [`RecordHeader::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) tag: [u8; 4],
    pub(crate) head_len: u32,
    pub(crate) body_len: u64,
    pub(crate) check: u64,
}

impl RecordHeader {
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self> {
        let h = Self {
            tag: bytes[..4].try_into().expect("4 bytes"),
            head_len: u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")),
            body_len: u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes")),
            check: u64::from_le_bytes(bytes[16..].try_into().expect("8 bytes")),
        };
        let fits = match h.tag {
            BLOCK => h.head_len <= MAX_BLOCK_HEAD && h.body_len <= MAX_BLOCK_BODY,
            INDEX => h.head_len <= MAX_INDEX_HEAD && h.body_len == 0,
            BASES => h.head_len <= MAX_BASES_HEAD && h.body_len == 0,
            _ if h.is_skippable() => {
                u64::from(h.head_len) <= MAX_SKIPPABLE_RECORD - HEADER_LEN as u64 && h.body_len == 0
            }
            _ => {
                let tag = h.tag.escape_ascii();
                return Err(Error::damaged(if h.tag.iter().all(u8::is_ascii_graphic) {
                    format!("unknown record {tag}: the file is damaged, or needs a newer lmc")
                } else {
                    format!("no record begins here, but the bytes {tag}; fetch the file again")
                }));
            }
        };
        if fits {
            return Ok(h);
        }
        let (tag, head, body) = (h.tag.escape_ascii(), h.head_len, h.body_len);
        Err(Error::damaged(format!("a record {tag} is too long: its head has {head} bytes, its body {body}")))
    }

    /// Record length in the file, header included.
    pub(crate) fn len(&self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.head_len) + self.body_len
    }

    /// Whether the record holds nothing that decoding needs.
    pub(crate) fn is_skippable(&self) -> bool {
        self.tag[0].is_ascii_lowercase() && self.tag.iter().all(u8::is_ascii_graphic)
    }

    /// Checks the head that followed this header. `bytes` are the header's own.
    pub(crate) fn verify(&self, bytes: &[u8; HEADER_LEN], head: &[u8]) -> Result<()> {
        if check_of(bytes[..16].try_into().expect("16 bytes"), head) == self.check {
            Ok(())
        } else {
            Err(Error::damaged(format!(
                "the checksum of the head of a record {} does not match; fetch the file again",
                self.tag.escape_ascii()
            )))
        }
    }

    /// The 24 header bytes of a record with this head and body length.
    pub(crate) fn encode(tag: [u8; 4], head: &[u8], body_len: u64) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..4].copy_from_slice(&tag);
        b[4..8].copy_from_slice(&(head.len() as u32).to_le_bytes());
        b[8..16].copy_from_slice(&body_len.to_le_bytes());
        let check = check_of(b[..16].try_into().expect("16 bytes"), head);
        b[16..].copy_from_slice(&check.to_le_bytes());
        b
    }
}

fn check_of(first16: &[u8; 16], head: &[u8]) -> u64 {
    let mut h = XxHash3_64::new();
    h.write(first16);
    h.write(head);
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum::check64;
    #[test]
    fn the_check_covers_header_and_head() {
        let b = RecordHeader::encode(BLOCK, b"head", 5);
        assert_eq!(b[16..], check64(&[&b[..16], b"head"].concat()).to_le_bytes());
        let h = RecordHeader::parse(&b).unwrap();
        assert_eq!(h.len(), 33);
        h.verify(&b, b"head").unwrap();
        assert!(h.verify(&b, b"heap").is_err());
    }
}
