//! The changes of a tensor, as a zstd frame.

use std::fmt;

/// How the bytes of a changed tensor are written. The names are those of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaEncoding {
    /// The exclusive or with the base's bytes, of the whole tensor: applied twice, it is undone.
    #[default]
    Xor,
    /// The number of changed bytes, their positions, and their new values.
    Overwrite,
}

/// As other publishers: higher levels make XOR little smaller.
const LEVEL: i32 = 1;
/// The longest tensor whose bytes have positions of 32 bits.
const MAX_OVERWRITE: u64 = 1 << 32;

impl DeltaEncoding {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Xor, Self::Overwrite];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xor => "xor",
            Self::Overwrite => "overwrite",
        }
    }

    /// The frame that turns `base` into `new`, which are of one length, and how many bytes changed. `None` if none did.
    pub(super) fn encode(self, new: &[u8], base: &[u8]) -> Result<Option<(Vec<u8>, u64)>, String> {
        let changed = new.iter().zip(base).filter(|(n, b)| n != b).count();
        if changed == 0 {
            return Ok(None);
        }
        let plain: Vec<u8> = match self {
            Self::Xor => new.iter().zip(base).map(|(n, b)| n ^ b).collect(),
            Self::Overwrite => {
                if new.len() as u64 > MAX_OVERWRITE || u32::try_from(changed).is_err() {
                    return Err("has more than 4 GiB, which overwrite cannot address: use xor".into());
                }
                let mut plain = Vec::with_capacity(4 + 5 * changed);
                let differ = || (0..).zip(new.iter().zip(base)).filter(|(_, (n, b))| n != b);
                plain.extend((changed as u32).to_le_bytes());
                plain.extend(differ().flat_map(|(i, _): (u64, _)| (i as u32).to_le_bytes()));
                plain.extend(differ().map(|(_, (n, _))| n));
                plain
            }
        };
        let frame = zstd::bulk::compress(&plain, LEVEL).map_err(|e| format!("cannot be compressed: {e}"))?;
        Ok(Some((frame, changed as u64)))
    }
}

impl fmt::Display for DeltaEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for DeltaEncoding {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|c| c.name() == s);
        found.ok_or_else(|| format!("{s:?} is no encoding of deltas: {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a frame, as receivers do.
    fn applied(encoding: DeltaEncoding, frame: &[u8], base: &[u8]) -> Vec<u8> {
        let plain = zstd::decode_all(frame).unwrap();
        match encoding {
            DeltaEncoding::Xor => {
                assert_eq!(plain.len(), base.len());
                base.iter().zip(plain).map(|(b, x)| b ^ x).collect()
            }
            DeltaEncoding::Overwrite => {
                let words = plain.as_chunks::<4>().0;
                let n = u32::from_le_bytes(words[0]) as usize;
                assert_eq!(plain.len(), 4 + 5 * n);
                let at: Vec<u32> = words[1..=n].iter().map(|w| u32::from_le_bytes(*w)).collect();
                assert!(at.is_sorted_by(|a, b| a < b));
                let mut new = base.to_vec();
                at.iter().zip(&plain[4 + 4 * n..]).for_each(|(&at, value)| new[at as usize] = *value);
                new
            }
        }
    }

    #[test]
    fn deltas_turn_the_base_into_the_new_tensor() {
        for encoding in DeltaEncoding::ALL {
            for len in [4usize, 1000, 700_000] {
                let base: Vec<u8> = (0..len).map(|i| (i * i / 7) as u8).collect();
                let new: Vec<u8> = base.iter().enumerate().map(|(i, b)| if i % 31 == 3 { b ^ 5 } else { *b }).collect();
                let (frame, changed) = encoding.encode(&new, &base).unwrap().unwrap();
                assert_eq!(changed, ((len + 27) / 31) as u64);
                assert!(frame.len() < 200 + len / 3);
                assert_eq!(applied(encoding, &frame, &base), new);
            }
            assert_eq!(encoding.encode(b"same", b"same"), Ok(None));
            assert_eq!(encoding.encode(b"", b""), Ok(None));
            let all = encoding.encode(&[1; 999], &[0; 999]).unwrap().unwrap();
            assert_eq!(applied(encoding, &all.0, &[0; 999]), [1; 999]);
        }
    }
}
