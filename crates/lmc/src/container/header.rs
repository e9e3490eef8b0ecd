//! The first 16 bytes of a file (`docs/format.md` §2.1).

use crate::error::{Error, ErrorKind, Result};

pub(crate) const LEN: usize = 16;
/// The first eight bytes of a `.lmc` file.
pub const MAGIC: [u8; 8] = *b"\x89LMC\r\n\x1a\n";
/// The version of the file format that is read and written.
pub const VERSION: u16 = 0;

/// What other files begin with, so that an error can say what was given.
const OTHERS: &[(&[u8], &str)] = &[
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"PK\x03\x04", "a zip file, as torch.save writes"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x04\x22\x4d\x18", "an lz4 file"),
    (b"GGUF", "a GGUF file"),
    (b"\x93NUMPY", "a NumPy file"),
    (b"version https://git-lfs", "a Git LFS pointer: fetch the file itself"),
    (b"<!DOCTYPE", "a web page: the download went wrong"),
    (b"<html", "a web page: the download went wrong"),
];

pub(crate) fn encode() -> [u8; LEN] {
    let mut h = [0; LEN];
    h[..8].copy_from_slice(&MAGIC);
    h[8..10].copy_from_slice(&VERSION.to_le_bytes());
    h
}

/// The error of a file that ends at byte `at`, before its end.
pub(crate) fn ends_early(at: u64) -> Error {
    Error::damaged("the file ends early; fetch it again").at_offset(at)
}

/// Checks the first bytes of a file: 16, or all of a file that is shorter.
pub(crate) fn check(start: &[u8]) -> Result<()> {
    let n = start.len().min(MAGIC.len());
    if start.is_empty() {
        return Err(Error::damaged("the input is empty; an lmc file is not: fetch it again").at_offset(0));
    }
    if start[..n] != MAGIC[..n] {
        return Err(not_lmc(start));
    }
    let Some(rest) = start.get(8..LEN) else { return Err(ends_early(start.len() as u64)) };
    let version = u16::from_le_bytes([rest[0], rest[1]]);
    if version != VERSION {
        return Err(Error::unsupported(format!(
            "the file has version {version} of the lmc format, and this lmc reads version {VERSION}: use the lmc that wrote it, or a newer one"
        ))
        .at_offset(8));
    }
    if rest[2..4] != [0; 2] {
        return Err(Error::damaged("a reserved field of the file's header is not zero; fetch it again").at_offset(10));
    }
    let features = u32::from_le_bytes(rest[4..8].try_into().expect("4 bytes"));
    if features != 0 {
        return Err(Error::unsupported(format!(
            "the file needs features that this lmc does not have ({features:#x}): use a newer one"
        ))
        .at_offset(12));
    }
    Ok(())
}

fn not_lmc(start: &[u8]) -> Error {
    if start.len() >= 4 && start[1..4] == MAGIC[1..4] {
        let m = "the file's first bytes are damaged as by a transfer in text mode; fetch it again in binary mode";
        return Error::damaged(m).at_offset(0);
    }
    let other = OTHERS.iter().find(|(magic, _)| start.starts_with(magic));
    let hint = match other {
        Some((_, what)) => format!("; it looks like {what}"),
        None if start.len() >= 9 && start[8] == b'{' => "; it looks like a safetensors file, not compressed".into(),
        None => String::new(),
    };
    Error::new(ErrorKind::Unsupported, format!("not an lmc file{hint}")).at_offset(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(start: &[u8]) -> (ErrorKind, String) {
        let e = check(start).unwrap_err();
        (e.kind(), e.to_string())
    }

    #[test]
    fn a_header_is_accepted_whole_only() {
        let h = encode();
        check(&h).unwrap();
        assert_eq!(error(&[]).0, ErrorKind::Damaged);
        for n in 1..LEN {
            assert_eq!(error(&h[..n]), (ErrorKind::Damaged, format!("the file ends early; fetch it again (byte {n})")));
        }
    }

    #[test]
    fn errors_say_what_was_given() {
        let mut h = encode();
        h[8] = 7;
        assert_eq!(error(&h).0, ErrorKind::Unsupported);
        assert!(error(&h).1.contains("version 7"));
        h = encode();
        h[10] = 1;
        assert_eq!(error(&h).0, ErrorKind::Damaged);
        h = encode();
        h[15] = 1;
        assert_eq!(error(&h).0, ErrorKind::Unsupported);
        assert!(error(b"\x28\xb5\x2f\xfd0000").1.contains("zstd"));
        assert!(error(b"\x10\0\0\0\0\0\0\0{\"a\"").1.contains("safetensors"));
        assert!(error(b"\x89LMC\n\x1a\n\0").1.contains("text mode"));
        assert_eq!(error(b"x"), (ErrorKind::Unsupported, "not an lmc file (byte 0)".into()));
    }
}
