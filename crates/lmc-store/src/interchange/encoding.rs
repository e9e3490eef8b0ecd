//! The changes of a tensor and its checksum, in the one form that all receivers read.

use crate::error::{Error, Result};

/// How the bytes of a changed tensor are written: XOR with those of the base. Its name is that of the format.
pub(super) const ENCODING: &str = "xor";
/// The checksum with which receivers verify a tensor: the only one of ModelExpress 0.7; slime, miles and SGLang's branch read others, too.
pub(super) const CHECKSUM: &str = "adler32";
/// As other publishers: higher levels make XOR little smaller.
const LEVEL: i32 = 1;

/// The zstd frame that turns `base` into `new`, which are of one length, and how many bytes changed. `None` if none did.
pub(super) fn encode(new: &[u8], base: &[u8]) -> Result<Option<(Vec<u8>, u64)>> {
    let changed = new.iter().zip(base).filter(|(n, b)| n != b).count();
    if changed == 0 {
        return Ok(None);
    }
    let xor: Vec<u8> = new.iter().zip(base).map(|(n, b)| n ^ b).collect();
    let frame =
        zstd::bulk::compress(&xor, LEVEL).map_err(|e| Error::io("cannot compress the changes of a tensor", e))?;
    Ok(Some((frame, changed as u64)))
}

/// The checksum of a tensor's bytes: eight hexadecimal digits.
pub(super) fn checksum(bytes: &[u8]) -> String {
    format!("{:08x}", adler2::adler32_slice(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_turn_the_base_into_the_new_tensor() {
        // As receivers do.
        let applied = |frame: &[u8], base: &[u8]| -> Vec<u8> {
            let xor = zstd::decode_all(frame).unwrap();
            assert_eq!(xor.len(), base.len());
            base.iter().zip(xor).map(|(b, x)| b ^ x).collect()
        };
        for len in [4usize, 1000, 700_000] {
            let base: Vec<u8> = (0..len).map(|i| (i * i / 7) as u8).collect();
            let new: Vec<u8> = base.iter().enumerate().map(|(i, b)| if i % 31 == 3 { b ^ 5 } else { *b }).collect();
            let (frame, changed) = encode(&new, &base).unwrap().unwrap();
            assert_eq!(changed, ((len + 27) / 31) as u64);
            assert!(frame.len() < 200 + len / 3);
            assert_eq!(applied(&frame, &base), new);
        }
        assert_eq!(encode(b"same", b"same").unwrap(), None);
        assert_eq!(encode(b"", b"").unwrap(), None);
        let all = encode(&[1; 999], &[0; 999]).unwrap().unwrap();
        assert_eq!(applied(&all.0, &[0; 999]), [1; 999]);
    }

    #[test]
    fn checksums_are_those_of_zlib() {
        // By Python's zlib.
        assert_eq!((&checksum(b"")[..], &checksum(b"abc")[..]), ("00000001", "024d0127"));
        assert_eq!(checksum(&vec![255; 1 << 20]), "8e88ef11");
    }
}
