//! Hybrid integer codes (§3.3.4), and sequences of bits.

use super::bytes::Bytes;
use super::faults::must;

/// Bits from bit 0 of the first byte up.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A hybrid integer code.
pub(super) struct NumberCode {
    /// Raw low bits below all buckets.
    r: u32,
    /// Bucket, length and bits of each code; the first bit read is the lowest.
    codes: Vec<(u32, u32, u64)>,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next `n` bits, the first one lowest.
    fn take(&mut self, n: u32) -> Result<u64, String> {
        let mut value = 0;
        for i in 0..n {
            let byte = self.bytes.get(self.at / 8).ok_or("the bits of numbers end too early")?;
            value |= u64::from(byte >> (self.at % 8) & 1) << i;
            self.at += 1;
        }
        Ok(value)
    }

    /// Whether they end in the last byte, whose other bits are 0.
    pub(super) fn end(&self) -> bool {
        let unused = 8 * self.bytes.len() - self.at;
        unused < 8 && self.bytes.last().is_none_or(|last| u32::from(*last) >> (8 - unused) == 0)
    }
}

/// The lowest number of a bucket, and the number of its raw low bits.
pub(super) fn of_bucket(bucket: u32, r: u32) -> (u128, u32) {
    if bucket < 16 {
        return (u128::from(bucket) << r, r);
    }
    let length = (bucket - 16) / 4 + 5;
    let q = 1 << (length - 1) | u128::from((bucket - 16) % 4) << (length - 3);
    (q << r, r + length - 3)
}

impl NumberCode {
    pub(super) fn parse(head: &mut Bytes<'_>) -> Result<Self, String> {
        let r = u32::from(head.u8()?);
        must(r <= 63, "a code of numbers has more than 63 raw bits")?;
        let first = u32::from(head.u8()?);
        let count = u32::from(head.u8()?) + 1;
        must(first + count - 1 <= 255, "a code of numbers has buckets above 255")?;
        let mut lengths = vec![0];
        if count > 1 {
            let packed = head.take(u64::from(count).div_ceil(2))?;
            lengths = packed.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
            if lengths.len() > count as usize {
                must(lengths.pop() == Some(0), "the last half-byte of a code of numbers is not 0")?;
            }
            must(lengths.iter().all(|&length| length <= 11), "a code of numbers has a length above 11")?;
            let kraft: u32 = lengths.iter().filter(|&&length| length > 0).map(|&length| 1 << (11 - length)).sum();
            must(kraft == 1 << 11, "a code of numbers is not complete")?;
        }
        // Canonical codes: by length, then by bucket.
        let mut sorted: Vec<(u32, u32)> =
            (first..).zip(&lengths).filter(|&(_, &l)| l > 0 || count == 1).map(|(b, &l)| (l.into(), b)).collect();
        sorted.sort();
        let (mut code, mut previous) = (0u64, sorted[0].0);
        let mut codes = Vec::new();
        for (i, &(length, bucket)) in sorted.iter().enumerate() {
            if i > 0 {
                code = (code + 1) << (length - previous);
            }
            previous = length;
            let (lowest, open) = of_bucket(bucket, r);
            must(lowest + (1 << open) <= 1 << 64, "a code of numbers has numbers of more than 64 bits")?;
            codes.push((bucket, length, (0..length).fold(0, |bits, i| bits | (code >> i & 1) << (length - 1 - i))));
        }
        Ok(Self { r, codes })
    }

    pub(super) fn number(&self, bits: &mut Bits<'_>) -> Result<u64, String> {
        let (mut code, mut length) = (0, 0);
        let bucket = loop {
            if let Some(&(bucket, ..)) = self.codes.iter().find(|&&(_, l, c)| (l, c) == (length, code)) {
                break bucket;
            }
            code |= bits.take(1)? << length;
            length += 1;
        };
        let (lowest, open) = of_bucket(bucket, self.r);
        Ok(lowest as u64 | bits.take(open)?)
    }
}
