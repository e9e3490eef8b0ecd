//! Hybrid integer codes (§3.3.4).

use super::super::numbers::of_bucket;
use std::cmp::Reverse;

/// A code, field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberCode {
    pub raw: u8,
    pub first: u8,
    /// Code lengths of the buckets from `first` on, which are not written if there is one bucket.
    pub lengths: Vec<u8>,
}

impl NumberCode {
    /// A complete code for these numbers, the most frequent buckets with the shortest codes.
    pub fn of(numbers: &[u64], raw: u8) -> Self {
        let mut counts = vec![0u32; 256];
        numbers.iter().for_each(|&number| counts[bucket(number, raw)] += 1);
        let mut present: Vec<usize> = (0..256).filter(|&bucket| counts[bucket] > 0).collect();
        let first = present.first().copied().unwrap_or(0);
        let last = present.last().copied().unwrap_or(0);
        let mut lengths = vec![0; last - first + 1];
        if present.len() > 1 {
            // Every code has 11 bits at first, and is shortened while there is room.
            present.sort_by_key(|&bucket| Reverse(counts[bucket]));
            let mut room = 2048 - present.len();
            for bucket in present {
                let mut length = 11;
                while length > 1 && 1 << (11 - length) <= room {
                    room -= 1 << (11 - length);
                    length -= 1;
                }
                lengths[bucket - first] = length;
            }
        }
        Self { raw, first: first as u8, lengths }
    }

    pub(super) fn write_head(&self, head: &mut Vec<u8>) {
        head.extend([self.raw, self.first, (self.lengths.len() - 1) as u8]);
        if self.lengths.len() > 1 {
            head.extend(self.lengths.chunks(2).map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4));
        }
    }

    /// Appends the bits of a number.
    pub(super) fn write(&self, number: u64, bits: &mut Vec<bool>) -> Result<(), String> {
        let bucket = bucket(number, self.raw);
        let index = bucket.checked_sub(self.first.into()).filter(|&index| index < self.lengths.len());
        let index = index.ok_or("a number has no code")?;
        if self.lengths.len() > 1 {
            let length = self.lengths[index];
            // Codes of this length that come before, and shorter ones, in units of this length.
            let before = |other: &(usize, &u8)| *other.1 > 0 && (*other.1, other.0) < (length, index);
            let units: u32 = self.lengths.iter().enumerate().filter(before).map(|(_, &l)| 1 << (11 - l)).sum();
            let code = units >> (11 - length);
            bits.extend((0..length).rev().map(|i| code >> i & 1 == 1));
        }
        let (_, open) = of_bucket(bucket as u32, self.raw.into());
        bits.extend((0..open).map(|i| number >> i & 1 == 1));
        Ok(())
    }
}

fn bucket(number: u64, raw: u8) -> usize {
    let holds = |&bucket: &u32| {
        let (lowest, open) = of_bucket(bucket, raw.into());
        (lowest..lowest + (1 << open)).contains(&u128::from(number))
    };
    (0..256).find(holds).expect("every number is in a bucket") as usize
}
