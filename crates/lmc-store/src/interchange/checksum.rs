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
            Self::Blake3 | Self::Adler32 => {
                let mut sum = self.begin();
                sum.update(bytes);
                sum.finish()
            }
        }
    }

    /// Begins one of bytes that come in pieces.
    pub(crate) fn begin(self) -> Sum {
        match self {
            Self::Xxh3 => Sum::Xxh3(Box::new(XxHash3_128::new())),
            Self::Blake3 => Sum::Blake3(Box::default()),
            Self::Adler32 => Sum::Adler32(adler2::Adler32::new()),
        }
    }

    /// Compares `bytes` with a checksum.
    pub(crate) fn verify(self, bytes: &[u8], expected: &str) -> Result<(), String> {
        self.compare(&self.of(bytes), expected)
    }

    /// Compares the checksum that was found with the one that was recorded.
    pub(crate) fn compare(self, found: &str, expected: &str) -> Result<(), String> {
        match found == expected {
            true => Ok(()),
            false => Err(format!("its {self} is {found}, and {expected:?} was recorded")),
        }
    }
}

/// The checksum of the bytes so far.
pub(crate) enum Sum {
    Xxh3(Box<XxHash3_128>),
    Blake3(Box<blake3::Hasher>),
    Adler32(adler2::Adler32),
}

impl Sum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Xxh3(sum) => sum.write(bytes),
            Self::Blake3(sum) => _ = sum.update(bytes),
            Self::Adler32(sum) => sum.write_slice(bytes),
        }
    }

    pub(crate) fn finish(&self) -> String {
        match self {
            Self::Xxh3(sum) => format!("{:032x}", sum.finish_128()),
            Self::Blake3(sum) => sum.finalize().to_hex().to_string(),
            Self::Adler32(sum) => format!("{:08x}", sum.checksum()),
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
            assert!(Checksum::ALL.into_iter().zip(expected).all(|(c, e)| c.verify(bytes, e).is_ok()));
            assert!(Checksum::ALL.into_iter().zip(expected).all(|(c, e)| c.verify(b"x", e).is_err()));
        }
        assert_eq!(Checksum::Adler32.of(&vec![255; 1 << 20]), "8e88ef11");
        assert_eq!("blake3".parse(), Ok(Checksum::Blake3));
        "crc32".parse::<Checksum>().unwrap_err();
    }

    #[test]
    fn checksums_in_pieces_are_those_of_the_whole() {
        let bytes: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(i) / 7) as u8).collect();
        for checksum in Checksum::ALL {
            for piece in [1, 255, 4096, 33_333] {
                let mut sum = checksum.begin();
                bytes.chunks(piece).for_each(|piece| sum.update(piece));
                assert_eq!(sum.finish(), checksum.of(&bytes), "{checksum} in pieces of {piece}");
            }
        }
    }
}
