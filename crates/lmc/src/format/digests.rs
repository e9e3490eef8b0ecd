//! The record of cryptographic digests (`docs/format.md` §2.7).

use std::fmt;

use super::record::{HEADER_LEN, RecordHeader};
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};

/// The tag of the record.
pub(crate) const DIGESTS: [u8; 4] = *b"dIGS";
/// Bytes of a digest.
pub(crate) const DIGEST_LEN: usize = 32;

/// A cryptographic hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DigestAlgorithm {
    /// SHA-256.
    Sha256,
    /// One that this version does not know, with its number in the file.
    Other(u8),
}

impl DigestAlgorithm {
    fn of_code(code: u8) -> Self {
        match code {
            1 => Self::Sha256,
            other => Self::Other(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Other(code) => code,
        }
    }
}

/// "SHA-256", or "algorithm 7".
impl fmt::Display for DigestAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256 => f.write_str("SHA-256"),
            Self::Other(code) => write!(f, "algorithm {code}"),
        }
    }
}

/// A cryptographic digest of raw bytes, which a file has of its own and of those of its bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawDigest {
    /// 0: of this file; i: of its i-th base.
    pub source: u32,
    /// The hash function.
    pub algorithm: DigestAlgorithm,
    /// The digest.
    pub digest: [u8; DIGEST_LEN],
}

impl RawDigest {
    pub(crate) fn sha256(source: u32, digest: [u8; DIGEST_LEN]) -> Self {
        Self { source, algorithm: DigestAlgorithm::Sha256, digest }
    }

    fn key(&self) -> (u32, u8) {
        (self.source, self.algorithm.code())
    }
}

/// The record with these digests, which rise.
pub(crate) fn encode(digests: &[RawDigest]) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN];
    put(&mut out, digests.len() as u64);
    for d in digests {
        put(&mut out, d.source.into());
        out.push(d.algorithm.code());
        out.extend_from_slice(&d.digest);
    }
    let header = RecordHeader::encode(DIGESTS, &out[HEADER_LEN..], 0);
    out[..HEADER_LEN].copy_from_slice(&header);
    out
}

/// Parses the head of the record of a file with so many bases.
pub(crate) fn parse(head: &[u8], bases: usize) -> Result<Vec<RawDigest>> {
    let mut c = Cursor::new(head);
    let n = c.size(c.remaining() / (DIGEST_LEN + 2), "the number of digests")?;
    if n == 0 {
        return Err(Error::damaged("the record of digests has none"));
    }
    let mut digests: Vec<RawDigest> = Vec::with_capacity(n);
    for _ in 0..n {
        let source = c.size(bases, "the source of a digest")? as u32;
        let next = RawDigest { source, algorithm: DigestAlgorithm::of_code(c.u8()?), digest: c.array()? };
        if digests.last().is_some_and(|last| last.key() >= next.key()) {
            return Err(Error::damaged("digests are not in order, or one is there twice; fetch the file again"));
        }
        digests.push(next);
    }
    c.finish()?;
    Ok(digests)
}

/// Adds the digests of another skippable record to those found before, if it has some.
pub(crate) fn collect(found: &mut Vec<RawDigest>, tag: [u8; 4], head: &[u8], bases: usize) -> Result<()> {
    if tag != DIGESTS {
        return Ok(());
    }
    if !found.is_empty() {
        return Err(Error::damaged("the file has two records of digests"));
    }
    *found = parse(head, bases)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(source: u32, algorithm: DigestAlgorithm) -> RawDigest {
        RawDigest { source, algorithm, digest: [source as u8; DIGEST_LEN] }
    }

    #[test]
    fn digests_are_kept_in_order() {
        use DigestAlgorithm::{Other, Sha256};
        let digests = [digest(0, Sha256), digest(0, Other(2)), digest(0, Other(200)), digest(2, Sha256)];
        let record = encode(&digests);
        let head = &record[HEADER_LEN..];
        assert_eq!(parse(head, 2).unwrap(), digests);
        parse(head, 1).unwrap_err();
        parse(&[head, &[0]].concat(), 2).unwrap_err();
        for n in 0..head.len() {
            parse(&head[..n], 2).unwrap_err();
        }
        for wrong in [&[][..], &[digest(0, Other(2)), digest(0, Sha256)], &[digest(1, Sha256); 2]] {
            parse(&encode(wrong)[HEADER_LEN..], 2).unwrap_err();
        }
        let mut found = vec![];
        collect(&mut found, *b"oTHR", head, 2).unwrap();
        assert!(found.is_empty());
        collect(&mut found, DIGESTS, head, 2).unwrap();
        collect(&mut found, DIGESTS, head, 2).unwrap_err();
    }
}
