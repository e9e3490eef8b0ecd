//! The first 16 bytes of a file (`docs/format.md` §2.1).

use std::borrow::Cow;

use lmc_layout::error::{Error, ErrorKind, Result};

pub(crate) const LEN: usize = 16;
/// The first eight bytes of a `.lmc` file.
pub const MAGIC: [u8; 8] = *b"\x89LMC\r\n\x1a\n";
/// The version of the file format.
pub const VERSION: u16 = 1;

/// The hash of all digests: XXH3-128.
const HASH: u8 = 1;

/// What zstd's files begin with.
pub const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// What gzip's files begin with.
pub const GZIP: &[u8] = b"\x1f\x8b";

/// Magic numbers of other formats, so that an error can name the format of the input.
const OTHERS: &[(&[u8], &str)] = &[
    (ZSTD, "a zstd file"),
    (GZIP, "a gzip file"),
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

/// Features of the format that blocks need (`docs/format.md` §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// Blocks may name ranges of other data.
    pub(crate) ranges: bool,
    /// Ranges may be of the file itself.
    pub(crate) own: bool,
    /// Operands may be grids.
    pub(crate) grids: bool,
    /// Operands may be steps of optimizers and terms of rows and columns, and contexts may depend on rows.
    pub(crate) optimizer: bool,
    /// Operands may be derived from data in another precision.
    pub(crate) derived: bool,
    /// The bits of others.
    pub(crate) unknown: u32,
}

impl Features {
    const RANGES: u32 = 1;
    const OWN: u32 = 2;
    const GRIDS: u32 = 4;
    const OPTIMIZER: u32 = 8;
    const DERIVED: u32 = 16;

    /// Their names; of unknown ones the bits.
    pub(crate) fn names(self) -> impl Iterator<Item = Cow<'static, str>> {
        let names = [
            (self.ranges, "ranges"),
            (self.own, "own-ranges"),
            (self.grids, "grids"),
            (self.optimizer, "optimizer"),
            (self.derived, "derived"),
        ];
        let known = names.into_iter().filter_map(|(set, name)| set.then_some(name.into()));
        known.chain(
            (0..u32::BITS).filter(move |bit| self.unknown >> bit & 1 == 1).map(|bit| format!("bit {bit}").into()),
        )
    }

    /// Those of the header of a file whose blocks need these: a record of bases needs one more.
    pub(crate) fn with_bases(self, has_bases: bool) -> Self {
        Self { ranges: self.ranges || has_bases, ..self }
    }

    /// Fails if there are unknown ones.
    ///
    /// # Errors
    /// `Unsupported`, which names the program that wrote the file, if that is known.
    pub(crate) fn check_known(self, writer: Option<&str>) -> Result<()> {
        if self.unknown == 0 {
            return Ok(());
        }
        let unknown = Self { unknown: self.unknown, ..Self::default() };
        let names = unknown.names().collect::<Vec<_>>().join(" and ");
        let by = writer.map(|w| format!(", and was written by {w:?}")).unwrap_or_default();
        Err(Error::unsupported(format!(
            "the file needs a feature of the format ({names}) that lmc {} does not know{by}: use a newer lmc",
            env!("CARGO_PKG_VERSION")
        )))
    }

    /// As they are stored.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.ranges) * Self::RANGES
            + u32::from(self.own) * Self::OWN
            + u32::from(self.grids) * Self::GRIDS
            + u32::from(self.optimizer) * Self::OPTIMIZER
            + u32::from(self.derived) * Self::DERIVED
            + self.unknown
    }

    pub(super) fn of_bits(bits: u32) -> Result<Self> {
        let has = |bit| bits & bit != 0;
        let features = Self {
            ranges: has(Self::RANGES),
            own: has(Self::OWN),
            grids: has(Self::GRIDS),
            optimizer: has(Self::OPTIMIZER),
            derived: has(Self::DERIVED),
            unknown: bits & !(Self::RANGES | Self::OWN | Self::GRIDS | Self::OPTIMIZER | Self::DERIVED),
        };
        if features.own && !features.ranges {
            return Err(Error::damaged(format!(
                "the features are {bits:#x}: own-ranges needs ranges; fetch the file again"
            )));
        }
        Ok(features)
    }
}

impl std::ops::BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            ranges: self.ranges || other.ranges,
            own: self.own || other.own,
            grids: self.grids || other.grids,
            optimizer: self.optimizer || other.optimizer,
            derived: self.derived || other.derived,
            unknown: self.unknown | other.unknown,
        }
    }
}

/// The header of a file whose decoder must support these features. No block needs others; a writer of a stream cannot know whether one
/// needs all of them.
pub(crate) fn encode(features: Features) -> [u8; LEN] {
    let mut h = [0; LEN];
    h[..8].copy_from_slice(&MAGIC);
    h[8..10].copy_from_slice(&VERSION.to_le_bytes());
    h[10] = HASH;
    h[12..].copy_from_slice(&features.bits().to_le_bytes());
    h
}

/// The error of a file that ends at byte `at`, before its end.
pub(crate) fn ends_early(at: u64) -> Error {
    Error::damaged("the file ends early; fetch it again").at_offset(at)
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) features: Features,
    hash: u8,
}

impl Header {
    /// Fails unless the digests of the file are those that this version computes.
    pub(crate) fn check_hash(&self) -> Result<()> {
        if self.hash == HASH {
            return Ok(());
        }
        let hash = self.hash;
        let message = format!("the file's hash has id {hash}, and this lmc knows only {HASH}: use a newer lmc");
        Err(Error::unsupported(message).at_offset(10))
    }
}

/// Checks the first bytes of a file, 16, or all of a file that is shorter.
pub(crate) fn check(start: &[u8]) -> Result<Header> {
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
        return Err(wrong_version(version).at_offset(8));
    }
    if rest[3] != 0 {
        let message = format!("the header's reserved byte is {:#04x}, not 0; fetch the file again", rest[3]);
        return Err(Error::damaged(message).at_offset(11));
    }
    let features = u32::from_le_bytes(rest[4..8].try_into().expect("4 bytes"));
    let features = Features::of_bits(features).map_err(|e| e.at_offset(12))?;
    Ok(Header { features, hash: rest[2] })
}

fn wrong_version(version: u16) -> Error {
    Error::unsupported(format!(
        "the file has version {version} of the lmc format, and this lmc reads version {VERSION}: use the lmc that wrote it, \
         or a newer one"
    ))
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
        let h = encode(Features::default());
        assert_eq!(check(&h).unwrap(), Header { features: Features::default(), hash: HASH });
        assert_eq!(error(&[]).0, ErrorKind::Damaged);
        for n in 1..LEN {
            assert_eq!(error(&h[..n]), (ErrorKind::Damaged, format!("the file ends early; fetch it again (byte {n})")));
        }
    }

    #[test]
    fn features_are_kept() {
        for (ranges, own, grids, optimizer, bits) in [
            (false, false, false, false, 0),
            (true, false, false, false, 1),
            (true, true, false, false, 3),
            (false, false, true, false, 4),
            (false, false, false, true, 8),
            (true, true, true, true, 15),
        ] {
            let features = Features { ranges, own, grids, optimizer, ..Features::default() };
            let h = encode(features);
            assert_eq!(h[12..], [bits, 0, 0, 0]);
            assert_eq!(check(&h).unwrap().features, features);
        }
        assert_eq!(error(&encode(Features { own: true, ..Features::default() })).0, ErrorKind::Damaged);
    }

    #[test]
    fn unknown_features_are_kept_and_named() {
        let mut h = encode(Features { ranges: true, ..Features::default() });
        h[14] = 2;
        h[15] = 0x80;
        let features = check(&h).unwrap().features;
        assert_eq!((features.unknown, encode(features)), (0x8002_0000, h));
        assert_eq!(features.names().collect::<Vec<_>>(), ["ranges", "bit 17", "bit 31"]);
        let e = features.check_known(Some("lmc 9.1.0 max")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        for part in ["bit 17 and bit 31", "written by \"lmc 9.1.0 max\""] {
            assert!(e.to_string().contains(part), "{e}");
        }
        Features { unknown: 0, ..features }.check_known(None).unwrap();
    }

    #[test]
    fn errors_say_what_was_given() {
        for version in [0u16, 2, 0xffff] {
            let mut h = encode(Features::default());
            h[8..10].copy_from_slice(&version.to_le_bytes());
            assert_eq!(error(&h).0, ErrorKind::Unsupported);
            assert!(
                error(&h).1.contains(&format!("version {version} of the lmc format, and this lmc reads version 1:"))
            );
        }
        let mut h = encode(Features::default());
        h[10] = 2;
        assert_eq!(check(&h).unwrap().check_hash().unwrap_err().kind(), ErrorKind::Unsupported);
        h = encode(Features::default());
        h[11] = 1;
        assert_eq!(error(&h).0, ErrorKind::Damaged);
        assert!(error(b"\x28\xb5\x2f\xfd0000").1.contains("zstd"));
        assert!(error(b"\x10\0\0\0\0\0\0\0{\"a\"").1.contains("safetensors"));
        assert!(error(b"\x89LMC\n\x1a\n\0").1.contains("text mode"));
        assert_eq!(error(b"x"), (ErrorKind::Unsupported, "not an lmc file (byte 0)".into()));
    }
}
