//! The changes of a tensor, as a zstd frame.

use std::fmt;
use std::io::{self, Read};

use super::checksum::Checksum;

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
/// Bytes that are decompressed at a time.
const STEP: usize = 256 << 10;
/// Logarithm of the largest window of a frame: the default limit of zstd's decoder.
const MAX_WINDOW_LOG: u32 = 27;
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

    /// The longest frame for a tensor of `len` bytes.
    pub(super) fn max_frame(self, len: u64) -> u64 {
        let plain = match self {
            Self::Xor => len,
            Self::Overwrite => len.saturating_mul(5).saturating_add(4),
        };
        // More than zstd adds to incompressible bytes.
        plain.saturating_add(plain / 64).saturating_add(1024)
    }

    /// Applies a frame to the base's bytes, and compares the result with its checksum. After an error these are neither the base nor the
    /// new version.
    pub(crate) fn apply(self, frame: &[u8], tensor: &mut [u8], sum: Checksum, expected: &str) -> Result<(), String> {
        let mut plain = Plain::new(frame)?;
        match self {
            Self::Xor => {
                let mut buffer = [0; STEP >> 4];
                for part in tensor.chunks_mut(buffer.len()) {
                    let buffer = &mut buffer[..part.len()];
                    plain.fill(buffer)?;
                    part.iter_mut().zip(buffer).for_each(|(t, x)| *t ^= *x);
                }
            }
            Self::Overwrite => overwrite(&mut plain, tensor)?,
        }
        plain.end()?;
        sum.verify(tensor, expected)
    }
}

/// Applies positions and values: of no more memory than four times the tensor.
fn overwrite(plain: &mut Plain<'_>, tensor: &mut [u8]) -> Result<(), String> {
    let mut count = [0; 4];
    plain.fill(&mut count)?;
    let count = u32::from_le_bytes(count) as usize;
    if count > tensor.len() {
        return Err(format!("its delta changes {count} of {} bytes", tensor.len()));
    }
    let mut positions: Vec<u32> = Vec::new();
    let mut buffer = vec![0; STEP];
    while positions.len() < count {
        let n = (count - positions.len()).min(STEP / 4);
        let buffer = &mut buffer[..4 * n];
        plain.fill(buffer)?;
        for bytes in buffer.as_chunks::<4>().0 {
            let at = u32::from_le_bytes(*bytes);
            if at as usize >= tensor.len() || positions.last().is_some_and(|&before| before >= at) {
                return Err(format!("its delta changes byte {at} of {}, out of order or outside of it", tensor.len()));
            }
            positions.push(at);
        }
    }
    for at in positions.chunks(STEP) {
        let buffer = &mut buffer[..at.len()];
        plain.fill(buffer)?;
        at.iter().zip(buffer).for_each(|(&at, value)| tensor[at as usize] = *value);
    }
    Ok(())
}

/// The contents of a frame, read as they are needed: no length in it is trusted.
struct Plain<'f>(zstd::stream::read::Decoder<'static, &'f [u8]>);

impl<'f> Plain<'f> {
    fn new(frame: &'f [u8]) -> Result<Self, String> {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(frame).map_err(damaged)?.single_frame();
        decoder.window_log_max(MAX_WINDOW_LOG).map_err(damaged)?;
        Ok(Self(decoder))
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), String> {
        self.0.read_exact(out).map_err(damaged)
    }

    /// Checks that the frame has ended.
    fn end(mut self) -> Result<(), String> {
        match self.0.read(&mut [0]).map_err(damaged)? {
            0 if self.0.finish().is_empty() => Ok(()),
            _ => Err("its delta is longer than the tensor".into()),
        }
    }
}

fn damaged(e: io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => "its delta is shorter than the tensor".into(),
        _ => format!("its delta is no zstd frame: {e}"),
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

    const SUM: Checksum = Checksum::Xxh3;

    fn pair(len: usize) -> (Vec<u8>, Vec<u8>) {
        let base: Vec<u8> = (0..len).map(|i| (i * i / 7) as u8).collect();
        let new = base.iter().enumerate().map(|(i, b)| if i % 31 == 3 { b ^ 5 } else { *b }).collect();
        (base, new)
    }

    fn applied(encoding: DeltaEncoding, frame: &[u8], base: &[u8], new: &[u8]) -> Result<(), String> {
        let mut tensor = base.to_vec();
        encoding.apply(frame, &mut tensor, SUM, &SUM.of(new))?;
        assert_eq!(tensor, new);
        Ok(())
    }

    fn frame(plain: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(plain, 1).unwrap()
    }

    #[test]
    fn deltas_turn_the_base_into_the_new_tensor() {
        for encoding in DeltaEncoding::ALL {
            for len in [4, 1000, 700_000] {
                let (base, new) = pair(len);
                let (frame, changed) = encoding.encode(&new, &base).unwrap().unwrap();
                assert_eq!(changed, ((len + 27) / 31) as u64);
                assert!(frame.len() as u64 <= encoding.max_frame(len as u64));
                applied(encoding, &frame, &base, &new).unwrap();
            }
            assert_eq!(encoding.encode(b"same", b"same"), Ok(None));
            assert_eq!(encoding.encode(b"", b""), Ok(None));
            let all = encoding.encode(&[1; 999], &[0; 999]).unwrap().unwrap();
            applied(encoding, &all.0, &[0; 999], &[1; 999]).unwrap();
        }
    }

    #[test]
    fn what_numpy_writes_is_read() {
        let (base, new) = pair(1000);
        let at: Vec<u32> = (0..1000u32).filter(|&i| base[i as usize] != new[i as usize]).collect();
        let mut plain = (at.len() as u32).to_le_bytes().to_vec();
        plain.extend(at.iter().flat_map(|i| i.to_le_bytes()));
        plain.extend(at.iter().map(|&i| new[i as usize]));
        applied(DeltaEncoding::Overwrite, &frame(&plain), &base, &new).unwrap();
        // Without its length, as a stream is written.
        let streamed = zstd::stream::encode_all(&plain[..], 3).unwrap();
        applied(DeltaEncoding::Overwrite, &streamed, &base, &new).unwrap();
    }

    #[test]
    fn damage_is_an_error_or_does_not_matter() {
        for encoding in DeltaEncoding::ALL {
            let (base, new) = pair(5000);
            let (frame, _) = encoding.encode(&new, &base).unwrap().unwrap();
            for n in 0..frame.len() {
                applied(encoding, &frame[..n], &base, &new).unwrap_err();
            }
            for bit in 0..8 * frame.len() {
                let mut bad = frame.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                _ = applied(encoding, &bad, &base, &new);
            }
            let twice = [frame.clone(), frame.clone()].concat();
            assert!(applied(encoding, &twice, &base, &new).unwrap_err().contains("longer"));
            assert!(applied(encoding, &frame, &new, &new).is_err() || encoding == DeltaEncoding::Overwrite);
        }
    }

    #[test]
    fn what_a_frame_claims_takes_no_memory() {
        // 64 MiB of zeros, and positions that are not there.
        let bomb = frame(&vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 14);
        for encoding in DeltaEncoding::ALL {
            let e = applied(encoding, &bomb, &[0; 100], &[0; 100]).unwrap_err();
            assert!(e.contains("longer"), "{e}");
        }
        for (plain, why) in [
            (&[&u32::MAX.to_le_bytes()[..], &[0; 20]].concat()[..], "changes 4294967295 of 4 bytes"),
            (&[1, 0, 0, 0, 4, 0, 0, 0, 9], "byte 4 of 4"),
            (&[2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 9], "byte 1 of 4, out of order"),
            (&[1, 0, 0], "shorter"),
            (&[1, 0, 0, 0, 0, 0, 0, 0], "shorter"),
            (&[0, 0, 0, 0, 7], "longer"),
        ] {
            let e = applied(DeltaEncoding::Overwrite, &frame(plain), &[0; 4], &[1; 4]).unwrap_err();
            assert!(e.contains(why), "{e}");
        }
        assert!(DeltaEncoding::Xor.apply(b"no frame", &mut [0; 4], SUM, "").unwrap_err().contains("no zstd frame"));
    }
}
