//! Records: the self-delimiting units that follow a file's header (`docs/format.md` §2.2).

use crate::checksum::check64;
use crate::error::{Error, Result};

pub(crate) const HEADER_LEN: usize = 24;
pub(crate) const BLOCK: [u8; 4] = *b"BLCK";
pub(crate) const INDEX: [u8; 4] = *b"INDX";

pub(crate) const MAX_BLOCK_HEAD: u32 = 1 << 24;
pub(crate) const MAX_BLOCK_BODY: u64 = 1 << 25;
pub(crate) const MAX_INDEX_HEAD: u32 = 1 << 30;

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
            [b'a'..=b'z', ..] => true,
            _ => return Err(Error::damaged("unknown record: the file is damaged, or needs a newer lmc")),
        };
        if fits { Ok(h) } else { Err(Error::damaged("a record's length is out of range")) }
    }

    /// Record length in the file, header included.
    pub(crate) fn len(&self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.head_len) + self.body_len
    }

    /// Checks the head that followed this header. `bytes` are the header's own.
    pub(crate) fn verify(&self, bytes: &[u8; HEADER_LEN], head: &[u8]) -> Result<()> {
        if check(bytes[..16].try_into().expect("16 bytes"), head) == self.check {
            Ok(())
        } else {
            Err(Error::damaged("the checksum of a record's head does not match"))
        }
    }

    /// The 24 header bytes of a record with this head and body length.
    pub(crate) fn encode(tag: [u8; 4], head: &[u8], body_len: u64) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..4].copy_from_slice(&tag);
        b[4..8].copy_from_slice(&(head.len() as u32).to_le_bytes());
        b[8..16].copy_from_slice(&body_len.to_le_bytes());
        let c = check(b[..16].try_into().expect("16 bytes"), head);
        b[16..].copy_from_slice(&c.to_le_bytes());
        b
    }
}

fn check(first16: &[u8; 16], head: &[u8]) -> u64 {
    let mut h = twox_hash::XxHash3_64::new();
    std::hash::Hasher::write(&mut h, first16);
    std::hash::Hasher::write(&mut h, head);
    let c = std::hash::Hasher::finish(&h);
    debug_assert_eq!(c, check64(&[first16, head].concat()));
    c
}
