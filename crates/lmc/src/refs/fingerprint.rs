//! Samples of tensors, which show whether one is a later state of another.

use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;

/// Elements of a window, and windows.
const WINDOW: usize = 32;
const WINDOWS: usize = 2;

/// A few dozen elements of a tensor, at places that depend on its dtype and length alone.
pub(crate) struct Fingerprint {
    /// The stable bits of each element: sign and exponent of a float, all of an integer.
    keys: Vec<u16>,
    constant: bool,
}

impl Fingerprint {
    /// Samples are taken from this many bytes at the beginning of a tensor, which are available when its first block
    /// is planned.
    pub(crate) const REACH: u64 = 1 << 20;

    /// Samples a tensor of `len` bytes; `read` fills a buffer from an offset on.
    pub(crate) fn take(dtype: Dtype, len: u64, mut read: impl FnMut(&mut [u8], u64) -> Result<()>) -> Result<Self> {
        let width = dtype.coding_width();
        let elements = (len.min(Self::REACH) / width as u64) as usize;
        let size = WINDOW.min(elements / WINDOWS) * width;
        let mut bytes = vec![0; WINDOWS * size];
        for (i, window) in bytes.chunks_mut(size.max(1)).enumerate() {
            let first = (i + 1) * elements / (WINDOWS + 1);
            let at = first.min(elements - window.len() / width) * width;
            read(window, at as u64)?;
        }
        let constant = bytes.chunks(width).all(|e| *e == bytes[..width]);
        Ok(Self { keys: bytes.chunks(width).map(|e| key(dtype, e)).collect(), constant })
    }

    /// Whether all elements are equal: any other constant tensor would look related.
    pub(crate) fn is_constant(&self) -> bool {
        self.constant
    }

    /// Number of equal keys.
    pub(crate) fn agreement(&self, other: &Self) -> usize {
        self.keys.iter().zip(&other.keys).filter(|(a, b)| a == b).count()
    }

    /// Whether most keys agree. Of unrelated weights, one in seven does by chance.
    pub(crate) fn is_related(&self, other: &Self) -> bool {
        self.agreement(other) * 2 > self.keys.len()
    }
}

fn key(dtype: Dtype, element: &[u8]) -> u16 {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    let x = u64::from_le_bytes(bytes);
    let mantissa = match dtype {
        Dtype::F16 => 10,
        Dtype::Bf16 => 7,
        Dtype::F32 | Dtype::C64 => 23,
        Dtype::F64 => 52,
        Dtype::F8E4M3 | Dtype::F8E4M3Fnuz => 3,
        Dtype::F8E5M2 | Dtype::F8E5M2Fnuz => 2,
        _ => 0,
    };
    (x >> mantissa) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(dtype: Dtype, bytes: &[u8]) -> Fingerprint {
        let read = |buf: &mut [u8], at: u64| {
            buf.copy_from_slice(&bytes[at as usize..][..buf.len()]);
            Ok(())
        };
        Fingerprint::take(dtype, bytes.len() as u64, read).unwrap()
    }

    fn f32s(n: usize, f: impl Fn(usize) -> f32) -> Vec<u8> {
        (0..n).flat_map(|i| f(i).to_le_bytes()).collect()
    }

    #[test]
    fn small_changes_leave_tensors_related() {
        let value = |i: usize| ((i * 7919 % 1009) as f32 - 504.0) * 1e-4;
        for n in [256, 1000, 1 << 20] {
            let old = sample(Dtype::F32, &f32s(n, value));
            let new = sample(Dtype::F32, &f32s(n, |i| value(i) * 1.003));
            let other = sample(Dtype::F32, &f32s(n, |i| value(i * 31 + 5)));
            assert!(old.is_related(&new) && !old.is_related(&other) && !old.is_constant());
            assert_eq!(old.agreement(&old), WINDOW * WINDOWS);
        }
    }

    #[test]
    fn constants_are_seen() {
        assert!(sample(Dtype::Bf16, &[1; 2048]).is_constant());
        assert!(!sample(Dtype::Bf16, &f32s(512, |i| i as f32)).is_constant());
        assert!(sample(Dtype::U8, &[3; 3]).is_constant());
    }

    #[test]
    fn only_the_beginning_is_read() {
        let len = 5 << 20;
        let mut end = 0;
        let read = |buf: &mut [u8], at: u64| {
            end = end.max(at + buf.len() as u64);
            Ok(())
        };
        Fingerprint::take(Dtype::F32, len, read).unwrap();
        assert!(end <= Fingerprint::REACH && end > Fingerprint::REACH / 2);
    }
}
