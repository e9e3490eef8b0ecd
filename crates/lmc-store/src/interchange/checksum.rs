//! Checksums of tensors, as text.

use std::fmt;

use twox_hash::XxHash3_128;

/// The checksums that verify a tensor's bytes. The names are those of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// XXH3 with 128 bits: the default of slime, miles and SGLang's branch.
    #[default]
    Xxh3,
    /// BLAKE3, a cryptographic hash.
    Blake3,
    /// Adler-32: the only one that ModelExpress 0.7 reads. It finds fewer errors than the others.
    Adler32,
}

impl Checksum {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Xxh3, Self::Blake3, Self::Adler32];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xxh3 => "xxh3-128",
            Self::Blake3 => "blake3",
            Self::Adler32 => "adler32",
        }
    }

    /// The checksum of `bytes`: lower-case hexadecimal digits, the most significant first.
    pub(super) fn of(self, bytes: &[u8]) -> String {
        match self {
            Self::Xxh3 => format!("{:032x}", XxHash3_128::oneshot(bytes)),
            Self::Blake3 => blake3::hash(bytes).to_hex().to_string(),
            Self::Adler32 => format!("{:08x}", adler2::adler32_slice(bytes)),
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Checksum {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|c| c.name() == s);
        found.ok_or_else(|| format!("{s:?} is no checksum: {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_libraries_that_receivers_use() {
        // By Python's zlib, xxhash and blake3.
        for (bytes, expected) in [
            (
                &b""[..],
                [
                    "99aa06d3014798d86001c324468d497f",
                    "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
                    "00000001",
                ],
            ),
            (
                b"abc",
                [
                    "06b05ab6733a618578af5f94892f3950",
                    "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
                    "024d0127",
                ],
            ),
        ] {
            assert_eq!(Checksum::ALL.map(|c| c.of(bytes)), expected);
        }
        assert_eq!(Checksum::Adler32.of(&vec![255; 1 << 20]), "8e88ef11");
        assert_eq!("blake3".parse(), Ok(Checksum::Blake3));
        "crc32".parse::<Checksum>().unwrap_err();
    }
}
